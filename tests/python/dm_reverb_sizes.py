"""Big chunks, big items, many samples, many columns, and a store that is full."""

import numpy as np
import reverb
import tensorflow as tf

from replay_server import Server
from replay_test import WAIT_MS, ClientTest, ReplayTest, beyond_reverb


class SizeTest(ReplayTest):
    tables = ['name=chunk', 'name=item', 'name=samples max_size=300', 'name=wide']

    def test_a_chunk_of_many_megabytes(self):
        data = np.random.default_rng(1).standard_normal(3_000_000)
        self.client.insert(data, {'chunk': 1.0})
        (sample,) = self.draw('chunk')
        self.assert_same(sample.data, [data[np.newaxis]])

    def test_an_item_of_twenty_chunks_of_four_megabytes(self):
        steps = np.frombuffer(np.random.default_rng(2).bytes(80_000_000), np.uint8).reshape(20, -1)
        with self.client.trajectory_writer(num_keep_alive_refs=20) as writer:
            for step in steps:
                writer.append(step)
            writer.create_item('item', 1.0, writer.history[:])
        (sample,) = self.draw('item')
        self.assert_same(sample.data, [steps])
        dataset = self.dataset('item', [tf.uint8], [tf.TensorShape([20, 4_000_000])], max_samples=2,
                               max_in_flight_samples_per_worker=2)
        for sample in dataset.as_numpy_iterator():
            self.assert_same(sample.data, (steps,))

    def test_many_samples_of_28_kilobytes(self):
        rng = np.random.default_rng(3)
        frames = rng.integers(0, 256, (100, 84, 84, 4), np.uint8)
        with self.client.trajectory_writer(num_keep_alive_refs=1) as writer:
            for i, frame in enumerate(frames):
                writer.append([np.int64(i), frame])
                writer.create_item('samples', 1.0, [c[-1:] for c in writer.history])
                writer.flush(block_until_num_items=40)
        dataset = self.dataset('samples', [tf.int64, tf.uint8],
                               [tf.TensorShape([1]), tf.TensorShape([1, 84, 84, 4])],
                               max_samples=500, max_in_flight_samples_per_worker=200)
        for sample in dataset.as_numpy_iterator():
            self.assert_same(sample.data[1][0], frames[int(sample.data[0][0])])

    def test_an_item_of_300_columns(self):
        data = [np.full((i % 3,), i, np.float32) for i in range(300)]
        with self.client.trajectory_writer(num_keep_alive_refs=1) as writer:
            writer.append(data)
            writer.create_item('wide', 1.0, [column[0] for column in writer.history])
        (sample,) = self.draw('wide')
        self.assert_same(sample.data, data)


@beyond_reverb
class FullStoreTest(ClientTest):
    def setUp(self):
        super().setUp()
        self.server = Server(['name=items sampler=fifo', 'name=small'], flags=['--max-bytes=64M'])
        self.addCleanup(self.server.remove)
        self.client = reverb.Client(self.server.address)

    def insert_megabyte(self, writer, value):
        writer.append(np.random.default_rng(value).bytes(1 << 20))
        writer.create_item('items', 1.0, writer.history[-1:])
        writer.flush(timeout_ms=WAIT_MS)

    def test_a_full_store_refuses_items_and_recovers_when_there_is_room(self):
        writer = self.client.trajectory_writer(num_keep_alive_refs=1)
        with self.assertRaisesRegex(IndexError, 'bytes'):
            for value in range(100):
                self.insert_megabyte(writer, value)
        size = self.size('items')
        self.assertGreater(size, 20)
        (sample,) = self.draw('items')
        self.assertEqual(sample.data[0][0], np.random.default_rng(0).bytes(1 << 20))
        self.client.reset('items')
        writer = self.client.trajectory_writer(num_keep_alive_refs=1)
        for value in range(20):
            self.insert_megabyte(writer, value)
        self.assertEqual(self.size('items'), 20)
        self.assertEqual(self.server.terminate(), 0)
