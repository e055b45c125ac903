"""Client.sample and the datasets: signatures, streams, timeouts, unknown tables."""

import numpy as np
import reverb
import tensorflow as tf
import tree

from replay_test import BLOCKED_MS, WAIT_SECONDS, ReplayTest, beyond_reverb, in_thread

STEP = {'action': tf.TensorSpec([], tf.int32), 'obs': {
    'image': tf.TensorSpec([2, 2], tf.uint8), 'text': tf.TensorSpec([], tf.string)}}
SEQUENCE = tree.map_structure(lambda spec: tf.TensorSpec([None, *spec.shape], spec.dtype), STEP)


def make_step(t):
    return {'action': np.int32(t), 'obs': {
        'image': np.full((2, 2), t, np.uint8), 'text': np.array(f'step {t}'.encode(), object)}}


class SampleTest(ReplayTest):
    tables = [f'name={name} sampler=fifo' for name in (
        'steps', 'sequences', 'timesteps', 'unpacked', 'wrong', 'plain', 'many', 'waits')]
    tables += ['name=bulk max_size=50', 'name=reopened sampler=fifo max_times_sampled=1',
               'name=late sampler=fifo max_times_sampled=1',
               'name=immediate sampler=fifo max_times_sampled=1', 'name=nothing',
               'name=abandoned sampler=fifo max_times_sampled=1 limiter=queue(100)']
    signatures = {'steps': STEP, 'sequences': SEQUENCE, 'timesteps': STEP, 'unpacked': SEQUENCE,
                  'wrong': SEQUENCE}

    def write_steps(self, table, count):
        with self.client.writer(max_sequence_length=count) as writer:
            for t in range(count):
                writer.append(make_step(t))
            writer.create_item(table, count, 1.0)

    def write_trajectory(self, table, count):
        with self.client.trajectory_writer(num_keep_alive_refs=count) as writer:
            for t in range(count):
                writer.append(make_step(t))
            writer.create_item(table, 1.0, tree.map_structure(lambda c: c[:], writer.history))

    def test_client_sample_emits_timesteps(self):
        self.write_steps('steps', 4)
        (steps,) = self.client.sample('steps', unpack_as_table_signature=True)
        self.assertEqual(len(steps), 4)
        for t, step in enumerate(steps):
            self.assert_same(step.data, make_step(t))
            self.assertEqual(step.info.table_size, 1)

    def test_client_sample_unpacks_as_the_signature_says(self):
        self.write_trajectory('unpacked', 2)
        (sample,) = self.client.sample('unpacked', emit_timesteps=False,
                                       unpack_as_table_signature=True)
        self.assert_same(sample.data, tree.map_structure(
            lambda *rows: np.stack(rows), make_step(0), make_step(1)))

    def test_trajectory_dataset_from_the_table_signature(self):
        self.write_trajectory('sequences', 3)
        dataset = reverb.TrajectoryDataset.from_table_signature(
            self.server.address, 'sequences', max_in_flight_samples_per_worker=5, max_samples=7,
            get_signature_timeout_secs=WAIT_SECONDS)
        samples = list(dataset.as_numpy_iterator())
        self.assertEqual([s.info.times_sampled for s in samples], list(range(1, 8)))
        for sample in samples:
            self.assert_same(sample.data, tree.map_structure(
                lambda *rows: np.stack(rows), *[make_step(t) for t in range(3)]))

    def test_timestep_dataset_gives_one_row_at_a_time(self):
        self.write_steps('timesteps', 3)
        dataset = reverb.TimestepDataset.from_table_signature(
            self.server.address, 'timesteps', max_in_flight_samples_per_worker=1)
        steps = list(dataset.take(6).as_numpy_iterator())
        for t, step in enumerate(steps):
            self.assert_same(step.data, make_step(t % 3))

    def test_signature_refuses_other_data_in_the_client(self):
        with self.assertRaises(ValueError):
            with self.client.trajectory_writer(num_keep_alive_refs=1) as writer:
                writer.append(np.float32(1))
                writer.create_item('wrong', 1.0, writer.history[:])
        self.assertEqual(self.size('wrong'), 0)
        with self.assertRaises(ValueError):
            reverb.TrajectoryDataset.from_table_signature(self.server.address, 'plain', 1)

    def test_dataset_reopens_streams_and_misses_nothing(self):
        self.insert_values('reopened', range(11))
        dataset = self.dataset('reopened', max_samples=11, max_samples_per_stream=4,
                               max_in_flight_samples_per_worker=3, num_workers_per_iterator=1)
        values = [int(sample.data[0]) for sample in dataset.as_numpy_iterator()]
        self.assertEqual(values, list(range(11)))

    def test_parallel_workers_draw_as_many_as_asked(self):
        self.insert_values('bulk', range(60))
        dataset = self.dataset('bulk', max_samples=1000, num_workers_per_iterator=4,
                               max_in_flight_samples_per_worker=100)
        values = [int(sample.data[0]) for sample in dataset.as_numpy_iterator()]
        self.assertEqual(len(values), 1000)
        self.assertEqual(set(values), set(range(10, 60)))

    def test_big_requests_are_answered_in_full(self):
        self.insert_values('many', [5])
        counts = [int(row[4]) for row in self.draw_many('many', 1500)]
        self.assertEqual(counts, list(range(1, 1501)))

    def test_a_timeout_ends_the_sequence_after_what_there_was(self):
        dataset = self.dataset('late', rate_limiter_timeout_ms=BLOCKED_MS)
        self.assertEqual(list(dataset.as_numpy_iterator()), [])
        steps = reverb.TimestepDataset(
            self.server.address, 'late', tf.int64, tf.TensorShape([]), 10,
            rate_limiter_timeout_ms=BLOCKED_MS)
        self.assertEqual(list(steps.as_numpy_iterator()), [])
        self.insert_values('late', range(3))
        values = [int(sample.data[0]) for sample in dataset.as_numpy_iterator()]
        self.assertEqual(values, [0, 1, 2])

    @beyond_reverb
    def test_a_timeout_of_zero_delivers_what_is_there_and_ends(self):
        # Another table: an iterator that has ended may ask again until TensorFlow lets it go.
        nothing = self.dataset('nothing', rate_limiter_timeout_ms=0)
        self.assertEqual(list(nothing.as_numpy_iterator()), [])
        self.insert_values('immediate', range(3))
        dataset = self.dataset('immediate', rate_limiter_timeout_ms=0)
        values = [int(sample.data[0]) for sample in dataset.as_numpy_iterator()]
        self.assertEqual(values, [0, 1, 2])

    def test_a_waiting_sample_gets_the_item_that_comes(self):
        wait = in_thread(lambda: self.draw_values('waits', 1))
        dataset = self.dataset('waits', rate_limiter_timeout_ms=BLOCKED_MS)
        self.assertEqual(list(dataset.as_numpy_iterator()), [])
        self.assertFalse(wait.is_done())
        self.insert_values('waits', [3])
        self.assertEqual(wait(), [3])

    def test_an_unknown_table_is_named(self):
        missing = 'Priority table nope was not found'
        for call in (lambda: self.draw('nope'), lambda: self.client.reset('nope'),
                     lambda: self.client.mutate_priorities('nope', {1: 1.0})):
            with self.assertRaisesRegex(RuntimeError, missing):
                call()
        with self.assertRaisesRegex(tf.errors.NotFoundError, missing):
            list(self.dataset('nope').as_numpy_iterator())
        with self.assertRaisesRegex(ValueError, "table 'nope'"):
            self.client.insert([1], {'nope': 1.0})

    @beyond_reverb
    def test_an_abandoned_sampler_takes_no_items(self):
        sampler = self.client._client.NewSampler('abandoned', 5, 5)
        dataset = self.dataset('abandoned', rate_limiter_timeout_ms=BLOCKED_MS)
        self.assertEqual(list(dataset.as_numpy_iterator()), [])
        del sampler
        self.assertEqual(list(dataset.as_numpy_iterator()), [])
        self.insert_values('abandoned', range(5))
        self.assertEqual(self.draw_values('abandoned', 5), list(range(5)))
