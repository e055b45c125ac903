"""Our C client against Reverb's own server, whatever server the other tests are for."""

import os
import subprocess
import tempfile
import unittest

from replay_server import Server

RUN_SECONDS = 60


def program(name):
    return os.path.join(os.environ['BUILD_DIR'], name)


class CClientTest(unittest.TestCase):
    """Programs that print the tables they need and take the address of a server that has them."""

    def run_program(self, name):
        with tempfile.TemporaryDirectory(prefix='troupe-reverb-') as folder:
            tables = subprocess.run([program(name), '--tables', folder], check=True, text=True,
                                    stdout=subprocess.PIPE).stdout.splitlines()
            server = Server(tables, reference=True)
            self.addCleanup(server.remove)
            run = subprocess.run([program(name), server.address], timeout=RUN_SECONDS, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            self.assertEqual(run.returncode, 0, run.stdout)

    def test_trajectories_and_samples(self):
        self.run_program('test_client')
