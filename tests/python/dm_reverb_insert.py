"""Items that the client's writers make come back as they were written."""

import functools
import math

import numpy as np
import reverb
import tensorflow as tf

from replay_test import ReplayTest, in_thread

EVERY_DTYPE = [
    np.array([[1.5, -0.0], [np.inf, 6e-8]], np.float16),
    np.array([1.5, -2.25, np.nan, -np.inf], np.float32),
    np.array([[math.pi], [5e-324]], np.float64),
    np.array([-128, 127], np.int8),
    np.array([-32768, 32767], np.int16),
    np.array([-2**31, 2**31 - 1], np.int32),
    np.array([-2**63, 2**63 - 1], np.int64),
    np.array([0, 255], np.uint8),
    np.array([0, 65535], np.uint16),
    np.array([0, 2**32 - 1], np.uint32),
    np.array([0, 2**64 - 1], np.uint64),
    np.array([True, False, True]),
    np.array([1 + 2j, -3.5j], np.complex64),
    np.array([1e300 - 1e-300j], np.complex128),
    np.array([b'', b'\x00\xff', 'h\u00e9'.encode(), b'x' * 300], object),
    np.float32(7.0),
    np.array(b'scalar', object),
    np.zeros((0,), np.float32),
    np.zeros((2, 0, 3), np.int64),
    np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
]


class InsertTest(ReplayTest):
    tables = [f'name={name}' for name in (
        'dtypes', 'dtypes_steps', 'first', 'second', 'legacy', 'delta', 'spans', 'sequence',
        'mixed', 'slices', 'partial', 'tuned', 'episodes', 'tf', 'assign', 'empty')]
    tables += ['name=parallel sampler=fifo', 'name=structured sampler=fifo',
               'name=ordered sampler=fifo max_times_sampled=1']

    def test_insert_puts_one_item_into_each_table(self):
        data = {'b': np.float32(1.5), 'a': np.arange(3)}
        self.client.insert(data, {'first': 2.0, 'second': 0.5})
        keys = set()
        for table, priority in (('first', 2.0), ('second', 0.5)):
            (steps,) = self.client.sample(table)
            (step,) = steps
            self.assert_same(step.data, [np.arange(3), np.float32(1.5)])
            self.assertEqual(step.info[1:], (1.0, 1, priority, 1))
            keys.add(step.info.key)
        self.assertEqual(len(keys), 2)

    def test_every_dtype_comes_back_bit_for_bit(self):
        self.client.insert(EVERY_DTYPE, {'dtypes': 1.0})
        (sample,) = self.draw('dtypes')
        self.assert_same([column[0] if column.ndim > 1 or column.dtype != object
                          else np.array(column[0], object) for column in sample.data], EVERY_DTYPE)

    def test_every_dtype_comes_back_from_a_dataset_and_a_trajectory_writer(self):
        with self.client.trajectory_writer(num_keep_alive_refs=3) as writer:
            for _ in range(3):
                writer.append(EVERY_DTYPE)
            writer.create_item('dtypes_steps', 1.0, [column[:] for column in writer.history])
        dtypes = [tf.as_dtype(a.dtype) if a.dtype != object else tf.string for a in EVERY_DTYPE]
        shapes = [tf.TensorShape([None, *a.shape]) for a in EVERY_DTYPE]
        dataset = self.dataset('dtypes_steps', dtypes, shapes, max_samples=1)
        (sample,) = dataset.as_numpy_iterator()
        self.assert_same(list(sample.data), [np.stack([a] * 3) for a in EVERY_DTYPE])

    def test_writer_with_delta_encoding_gives_the_rows_back(self):
        frames = np.random.default_rng(0).integers(0, 256, (4, 5, 6), np.uint8)
        with self.client.writer(4, delta_encoded=True) as writer:
            for t in range(4):
                writer.append([np.int64(t * 3), frames[t], np.array([-7 * t * t] * 3, np.int16),
                               np.array([t, -t], np.float32), np.array([t > 1]), b'abc'])
            writer.create_item('delta', 4, 3.0)
        (sample,) = self.draw('delta')
        self.assert_same(sample.data, [
            np.arange(4) * 3, frames, np.array([[-7 * t * t] * 3 for t in range(4)], np.int16),
            np.array([[t, -t] for t in range(4)], np.float32),
            np.array([[t > 1] for t in range(4)]), np.array([b'abc'] * 4, object)])

    def test_writer_items_overlap_and_span_chunks(self):
        with self.client.writer(max_sequence_length=5, chunk_length=2) as writer:
            for t in range(10):
                writer.append([np.int64(t), np.full((3,), t, np.float32)])
                if t >= 4:
                    writer.create_item('spans', num_timesteps=5, priority=t)
        self.assertEqual(self.size('spans'), 6)
        for first, info in self.infos_by_value('spans', range(6)).items():
            self.assertEqual(info.priority, first + 4)
        for sample in self.draw('spans', 20):
            first = int(sample.data[0][0])
            self.assert_same(sample.data, [
                np.arange(first, first + 5),
                np.stack([np.full((3,), t, np.float32) for t in range(first, first + 5)])])

    def test_writer_sends_each_item_of_a_long_run(self):
        with self.client.writer(1, max_in_flight_items=3) as writer:
            for t in range(200):
                writer.append(np.int64(t))
                writer.create_item('legacy', 1, 1.0)
                if t % 50 == 0:
                    writer.flush()
                    self.assertEqual(self.size('legacy'), t + 1)
        self.assertEqual(self.size('legacy'), 200)

    def test_append_sequence_is_a_loop_of_appends(self):
        with self.client.writer(2) as writer:
            writer.append_sequence([np.array([[1, 2, 3], [4, 5, 6]])])
            writer.create_item('sequence', 2, 1.0)
        (sample,) = self.draw('sequence')
        self.assert_same(sample.data, [np.array([[1, 2, 3], [4, 5, 6]])])

    def test_trajectory_columns_are_single_rows_slices_and_lists(self):
        with self.client.trajectory_writer(num_keep_alive_refs=5) as writer:
            for t in range(5):
                writer.append({'x': np.int32(t), 'y': {'z': np.full((2,), t / 2, np.float64)}})
            history = writer.history
            writer.create_item('mixed', 1.5, {
                'int': history['x'][-1], 'list': history['x'][[0, 2]],
                'slice': history['y']['z'][1:4], 'strided': history['x'][::2],
                'whole': history['y']['z'][:], 'zint': history['y']['z'][0]})
            writer.create_item('slices', 2.5, history['x'][-2:])
        (sample,) = self.draw('mixed')
        z = np.stack([np.full((2,), t / 2) for t in range(5)])
        self.assert_same(sample.data, [
            np.array(4, np.int32), np.array([0, 2], np.int32), z[1:4],
            np.array([0, 2, 4], np.int32), z, z[0]])
        (sample,) = self.draw('slices')
        self.assert_same(sample.data, [np.array([3, 4], np.int32)])
        self.assertEqual(sample.info.priority, 2.5)

    def test_a_column_but_the_first_may_be_empty(self):
        with self.client.trajectory_writer(num_keep_alive_refs=2) as writer:
            writer.append({'a': np.int64(1), 'b': np.float32(2)})
            writer.create_item('empty', 1.0, {
                'a': writer.history['a'][:], 'b': writer.history['b'][:]})
        (sample,) = self.draw('empty')
        self.assert_same(sample.data, [np.array([1]), np.array([2], np.float32)])

    def test_partial_steps_and_late_columns_line_up(self):
        with self.client.trajectory_writer(num_keep_alive_refs=3) as writer:
            writer.append({'o': np.int64(0)})
            for t in range(1, 3):
                writer.append({'o': np.int64(t)}, partial_step=True)
                writer.append({'a': np.int64(10 * t)})
            writer.create_item('partial', 1.0, {
                'o': writer.history['o'][:], 'a': writer.history['a'][1:]})
        (sample,) = self.draw('partial')
        self.assert_same(sample.data, [np.array([10, 20]), np.array([0, 1, 2])])

    def test_chunks_whose_length_is_tuned_keep_every_row(self):
        with self.client.trajectory_writer(num_keep_alive_refs=8) as writer:
            for t in range(120):
                writer.append([np.int64(t), np.full((50,), t, np.float32)])
                if t >= 5:
                    writer.create_item('tuned', 1.0, [
                        writer.history[0][-6:], writer.history[1][-3:]])
                    writer.flush(block_until_num_items=10)
        self.assertEqual(self.size('tuned'), 115)
        for sample in self.draw('tuned', 100):
            first = int(sample.data[0][0])
            self.assert_same(sample.data, [np.arange(first, first + 6), np.stack(
                [np.full((50,), t, np.float32) for t in range(first + 3, first + 6)])])

    def test_fixed_chunk_length_and_episodes(self):
        writer = self.client.trajectory_writer(num_keep_alive_refs=4)
        writer.configure(('a',), num_keep_alive_refs=4, max_chunk_length=3)
        for episode in range(3):
            for t in range(4):
                writer.append({'a': np.int64(episode * 10 + t)})
            writer.create_item('episodes', 1.0, writer.history['a'][-4:])
            writer.end_episode(clear_buffers=episode != 1)
            self.assertEqual(writer.episode_steps, 0)
        writer.close()
        self.assertEqual(self.size('episodes'), 3)
        self.infos_by_value('episodes', [0, 10, 20])

    def test_structured_writer_inserts_what_its_patterns_say(self):
        step = {'o': None, 'r': None}
        pattern = reverb.structured_writer.pattern_from_transform(step, lambda ref: {
            'last': ref['o'][-1], 'two': ref['o'][-2:], 'r': ref['r'][-1:]})
        config = reverb.structured_writer.create_config(pattern, 'structured')
        writer = self.client.structured_writer([config])
        for t in range(5):
            writer.append({'o': np.array([t, -t], np.int32), 'r': np.float32(t)})
        writer.end_episode()
        self.assertEqual(self.size('structured'), 4)
        (sample,) = self.draw('structured')
        self.assert_same(sample.data, [
            np.array([1, -1], np.int32), np.array([1], np.float32),
            np.array([[0, 0], [1, -1]], np.int32)])

    def test_items_of_one_stream_keep_their_order(self):
        with self.client.trajectory_writer(num_keep_alive_refs=1) as writer:
            for t in range(100):
                writer.append(np.int64(t))
                writer.create_item('ordered', 1.0, writer.history[-1:])
                writer.flush(block_until_num_items=40)
        self.assertEqual(self.draw_values('ordered', 100), list(range(100)))

    def test_parallel_writers_lose_nothing(self):
        def write(base):
            client = reverb.Client(self.server.address)
            with client.trajectory_writer(num_keep_alive_refs=2) as writer:
                for t in range(100):
                    writer.append(np.int64(base + t))
                    writer.create_item('parallel', 1.0, writer.history[-1:])
                    writer.flush(block_until_num_items=40)
            return True
        for wait in [in_thread(functools.partial(write, 1000 * i)) for i in range(4)]:
            self.assertTrue(wait())
        self.assertEqual(self.size('parallel'), 400)

    def test_tensorflow_client_inserts_samples_and_updates(self):
        client = reverb.TFClient(self.server.address)
        half = tf.constant([1.5, -3.0], tf.bfloat16)
        client.insert([half, tf.constant(3)], tf.constant(['tf']), tf.constant([2.0], tf.float64))
        sample = client.sample('tf', [tf.bfloat16, tf.int32])
        self.assertTrue(bool(tf.reduce_all(sample.data[0] == half)))
        self.assertEqual(sample.info.priority.numpy(), 2.0)
        client.update_priorities('tf', tf.reshape(sample.info.key, [1]),
                                 tf.constant([4.0], tf.float64))
        self.assertEqual(client.sample('tf', [tf.bfloat16, tf.int32]).info.priority.numpy(), 4.0)
