"""A replay server in a process of its own, as the tests see it."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from tensorflow.python.saved_model import nested_structure_coder

STOP_SECONDS = 20
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def command(reference):
    """`troupe replay serve`, or Reverb's own server under the same flags."""
    here = os.path.dirname(os.path.abspath(__file__))
    if reference:
        return [sys.executable, os.path.join(here, 'reference_server.py')]
    return [os.path.join(os.environ['BUILD_DIR'], 'troupe'), 'replay', 'serve']


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Server:
    """Tables are lines as --table takes them; `signatures` maps table names to nests of specs."""

    def __init__(self, tables, signatures=None, reference=False, flags=()):
        self.dir = tempfile.mkdtemp(prefix='troupe-reverb-')
        self.reference = reference
        self.flags = list(flags)
        self.port = 0
        self.tables = []
        for table in tables:
            name = table.split()[0].removeprefix('name=')
            if name in (signatures or {}):
                table += f' signature={self.write_signature(name, signatures[name])}'
            self.tables.append(table)
        self.process = None
        self.start()

    def write_signature(self, name, signature):
        path = os.path.join(self.dir, name + '.signature')
        with open(path, 'wb') as file:
            file.write(nested_structure_coder.encode_structure(signature).SerializeToString())
        return path

    def start(self):
        """Returns when the server says that it listens; a second start keeps the port."""
        flags = [f'--listen=127.0.0.1:{self.port}', f'--dir={self.dir}/store']
        flags += [f'--table={table}' for table in self.tables] + self.flags
        with open(self.log_path(), 'ab') as log:
            self.process = subprocess.Popen(
                command(self.reference) + flags, stdout=subprocess.PIPE, stderr=log, text=True,
                preexec_fn=die_with_parent)
        line = self.process.stdout.readline()
        if not line.startswith('listening on 127.0.0.1:'):
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f'the server said {line!r}; its log: {self.log()}')
        self.port = int(line.rsplit(':', 1)[1])

    def damage(self, found):
        """Flips a bit of these bytes, wherever the stopped server's file has them."""
        with open(f'{self.dir}/store/data.mdb', 'r+b') as file:
            data = file.read()
            at = data.find(found)
            while at >= 0:
                file.seek(at)
                file.write(bytes([data[at] ^ 1]))
                at = data.find(found, at + 1)

    @property
    def address(self):
        return f'127.0.0.1:{self.port}'

    def log_path(self):
        return os.path.join(self.dir, 'log')

    def log(self):
        with open(self.log_path(), encoding='utf-8', errors='replace') as file:
            return file.read()

    def is_alive(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait(STOP_SECONDS)
        self.process.stdout.close()

    def terminate(self):
        """The exit status after TERM; None if it did not end in time."""
        self.process.terminate()
        try:
            status = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            status = None
        self.process.stdout.close()
        return status

    def remove(self):
        if self.is_alive():
            self.kill()
        shutil.rmtree(self.dir)
