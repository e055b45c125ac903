"""What the tests of the dm-reverb client share: a server a class, and short ways to use it."""

import faulthandler
import os
import threading
import unittest

import numpy as np
import reverb
import tensorflow as tf
import tree

from replay_server import Server

REFERENCE = 'TROUPE_REVERB_REFERENCE' in os.environ
HANG_SECONDS = 60  # of one test; the stacks are printed and the run fails
WAIT_SECONDS = 20  # for something that happens at once unless it is broken
WAIT_MS = 1000 * WAIT_SECONDS
BLOCKED_MS = 300  # how long a blocked call is watched

beyond_reverb = unittest.skipIf(REFERENCE, "Reverb's own server does not do this")


def as_array(value):
    return np.array(value, object) if isinstance(value, bytes) else np.asarray(value)


class ClientTest(unittest.TestCase):
    """Short ways to use `self.client` of `self.server`; a test that hangs ends the run."""

    def setUp(self):
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        self.addCleanup(faulthandler.cancel_dump_traceback_later)

    def info(self, table):
        return self.client.server_info(timeout=WAIT_SECONDS)[table]

    def size(self, table):
        return self.info(table).current_size

    def insert_values(self, table, values, priorities=None):
        for i, value in enumerate(values):
            priority = 1.0 if priorities is None else priorities[i]
            self.client.insert(np.int64(value), {table: priority})

    def draw(self, table, count=1):
        """Samples without their steps."""
        return list(self.client.sample(table, count, emit_timesteps=False))

    def draw_values(self, table, count):
        return [int(sample.data[0][0]) for sample in self.draw(table, count)]

    def draw_many(self, table, count):
        """In one request; the rows are the info's five fields and the columns."""
        sampler = self.client._client.NewSampler(table, count, count)
        return [sampler.GetNextTrajectory() for _ in range(count)]

    def infos_by_value(self, table, values):
        """Draws until each of the values was seen."""
        infos = {}
        for _ in range(100):
            for sample in self.draw(table, 20):
                infos[int(sample.data[0][0])] = sample.info
            if set(infos) >= set(values):
                return infos
        raise AssertionError(f'of {values} only {sorted(infos)} were drawn from {table}')

    def dataset(self, table, dtypes=tf.int64, shapes=tf.TensorShape([None]), **options):
        options.setdefault('max_in_flight_samples_per_worker', 10)
        return reverb.TrajectoryDataset(self.server.address, table, dtypes, shapes, **options)

    def assert_same(self, actual, expected):
        """Equal in structure, dtype, shape and every bit."""
        tree.assert_same_structure(actual, expected)
        for a, b in zip(tree.flatten(actual), tree.flatten(expected)):
            a, b = as_array(a), as_array(b)
            self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape))
            self.assertEqual(a.tolist() if a.dtype == object else a.tobytes(),
                             b.tolist() if b.dtype == object else b.tobytes())


class ReplayTest(ClientTest):
    """One server a class; a test has tables of its own on it."""

    tables = []
    signatures = {}

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.tables, cls.signatures, REFERENCE)
        cls.client = reverb.Client(cls.server.address)

    @classmethod
    def tearDownClass(cls):
        alive = cls.server.is_alive()
        status = cls.server.terminate()
        log = cls.server.log()
        cls.server.remove()
        if not alive or status != 0:
            raise AssertionError(f'the server ended with {status}, alive before: {alive}: {log}')


def in_thread(function):
    """Runs it on a thread; call what is returned to wait for its result."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()

    def wait():
        thread.join(WAIT_SECONDS)
        assert results, 'still blocked, or failed: see above'
        return results[0]

    wait.is_done = lambda: bool(results)
    return wait
