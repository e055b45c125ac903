"""kill -9 and TERM, then a server on the same directory and port."""

import numpy as np
import reverb
import tensorflow as tf

from replay_server import Server
from replay_test import REFERENCE, WAIT_MS, WAIT_SECONDS, ClientTest, beyond_reverb, in_thread


class RestartTest(ClientTest):
    tables = ['name=items sampler=prioritized(1)', 'name=late sampler=fifo',
              'name=steps sampler=fifo',
              'name=queue sampler=fifo max_times_sampled=1 limiter=queue(10)']

    def setUp(self):
        super().setUp()
        self.server = Server(self.tables, reference=REFERENCE)
        self.addCleanup(self.server.remove)
        self.client = reverb.Client(self.server.address)

    def write(self, writer, values):
        for value in values:
            writer.append(np.int64(value))
            writer.create_item('items', 10.0 + value, writer.history[-1:])  # each is drawn soon

    def infos_after_restart(self):
        """A call may go to the old server's connection before the client sees it gone."""
        try:
            return self.client.server_info(timeout=WAIT_SECONDS)
        except RuntimeError:
            return self.client.server_info(timeout=WAIT_SECONDS)

    def test_after_a_kill_the_writer_reconnects_and_confirmed_items_are_there(self):
        writer = self.client.trajectory_writer(num_keep_alive_refs=1)
        self.write(writer, range(20))
        writer.flush(timeout_ms=WAIT_MS)
        before = {} if REFERENCE else self.infos_by_value('items', range(20))
        iterator = self.dataset('late', max_in_flight_samples_per_worker=1).as_numpy_iterator()
        wait = in_thread(lambda: int(next(iterator).data[0]))
        timesteps = reverb.TimestepDataset(self.server.address, 'steps', tf.int64,
                                           tf.TensorShape([]), 1).as_numpy_iterator()
        wait_step = in_thread(lambda: int(next(timesteps).data))
        self.write(writer, range(20, 25))
        self.server.kill()
        self.write(writer, range(25, 30))
        self.server.start()
        writer.flush(timeout_ms=WAIT_MS)
        writer.close()
        if not REFERENCE:
            self.assertEqual(self.size('items'), 30)
            after = self.infos_by_value('items', range(30))
            for value, info in before.items():
                self.assertEqual((after[value].key, after[value].priority),
                                 (info.key, info.priority))
        self.insert_values('late', [77])
        self.assertEqual(wait(), 77)
        self.insert_values('steps', [78])
        self.assertEqual(wait_step(), 78)
        self.assertEqual(self.server.terminate(), 0)

    @beyond_reverb
    def test_priorities_counters_and_the_limiter_outlive_a_kill(self):
        self.insert_values('items', range(3), [1.0, 2.0, 3.0])
        keys = {value: info.key for value, info in self.infos_by_value('items', range(3)).items()}
        self.client.mutate_priorities('items', {keys[0]: 6.0}, [keys[1]])
        self.insert_values('queue', range(10))
        self.assertEqual(self.draw_values('queue', 4), [0, 1, 2, 3])
        before = self.client.server_info()
        self.server.kill()
        self.server.start()
        after = self.infos_after_restart()
        for name in ('items', 'queue', 'late'):
            for field in ('current_size', 'rate_limiter_info', 'sampler_options'):
                self.assertEqual(getattr(after[name], field), getattr(before[name], field),
                                 f'{name}.{field}')
        self.client.mutate_priorities('items', {keys[2]: 2.0})
        for value, info in self.infos_by_value('items', [0, 2]).items():
            self.assertEqual(info.key, keys[value])
            self.assertAlmostEqual(info.probability, {0: 6 / 8, 2: 2 / 8}[value], 12)
        self.assertEqual(self.draw_values('queue', 6), [4, 5, 6, 7, 8, 9])
        self.assertEqual(self.server.terminate(), 0)

    @beyond_reverb
    def test_items_outlive_a_clean_stop_with_clients_connected(self):
        self.insert_values('items', range(5))
        iterator = self.dataset('late').as_numpy_iterator()
        wait = in_thread(lambda: int(next(iterator).data[0]))
        writer = self.client.trajectory_writer(num_keep_alive_refs=1)
        self.write(writer, [5])
        writer.flush(timeout_ms=WAIT_MS)
        self.assertEqual(self.server.terminate(), 0)
        self.server.start()
        self.write(writer, [6])
        writer.flush(timeout_ms=WAIT_MS)
        self.assertEqual(self.size('items'), 7)
        self.insert_values('late', [1])
        self.assertEqual(wait(), 1)
        self.assertEqual(self.server.terminate(), 0)

    @beyond_reverb
    def test_a_damaged_chunk_is_an_error_and_the_others_are_sampled(self):
        noise = np.random.default_rng(1).integers(0, 256, (4, 30000), np.uint8)
        for step in noise:
            self.client.insert(step, {'items': 1.0})
        self.server.terminate()
        self.server.damage(noise[1][20000:20016].tobytes())
        self.server.start()
        self.infos_after_restart()
        wait = in_thread(lambda: self.sample_error('items', 200))
        self.assertIn('table items, key ', wait())
        self.assertEqual(self.size('items'), 3)
        for sample in self.draw('items', 50):
            self.assertTrue(any(np.array_equal(sample.data[0][0], step) for step in noise))
        self.assertEqual(self.server.log().count('took out a damaged item table=items'), 1)

    def sample_error(self, table, count):
        try:
            self.draw(table, count)
        except RuntimeError as error:
            return str(error)
        return 'no error'
