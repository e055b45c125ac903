"""Samplers, removers, priorities and reset."""

import collections
import math

import numpy as np

from replay_test import WAIT_MS, ReplayTest, beyond_reverb


class SelectorTest(ReplayTest):
    tables = [
        'name=fifo sampler=fifo max_times_sampled=1', 'name=lifo sampler=lifo max_times_sampled=1',
        'name=max sampler=max_heap', 'name=min sampler=min_heap',
        'name=prio sampler=prioritized(0.6)', 'name=flat sampler=prioritized(0)',
        'name=zeros sampler=prioritized(1)', 'name=often sampler=prioritized(0.6)',
        'name=uniform sampler=uniform', 'name=twice sampler=fifo max_times_sampled=2',
        'name=drop_old max_size=3 remover=fifo', 'name=drop_new max_size=3 remover=lifo',
        'name=drop_low max_size=3 remover=min_heap', 'name=drop_high max_size=3 remover=max_heap',
        'name=drop_any max_size=3 remover=uniform',
        'name=drop_prio max_size=3 remover=prioritized(1)',
        'name=updates sampler=max_heap', 'name=deletes', 'name=both', 'name=unknown',
        'name=bad sampler=prioritized(0.6)', 'name=poison sampler=prioritized(0.6)', 'name=reset',
        'name=nan sampler=prioritized(1)']

    def test_fifo_and_lifo_give_their_order_with_probability_one(self):
        self.insert_values('fifo', range(5))
        self.insert_values('lifo', range(5))
        self.assertEqual([s.info.probability for s in self.draw('fifo', 2)], [1.0, 1.0])
        self.assertEqual(self.draw_values('fifo', 3), [2, 3, 4])
        self.assertEqual(self.draw_values('lifo', 5), [4, 3, 2, 1, 0])

    def test_heaps_give_the_extreme_and_the_oldest_of_equals(self):
        for table in ('max', 'min'):
            self.insert_values(table, range(4), [2.0, 5.0, 5.0, 2.0])
        self.assertEqual(self.draw_values('max', 2), [1, 1])
        self.assertEqual(self.draw_values('min', 2), [0, 0])
        for table in ('max', 'min'):
            (sample,) = self.draw(table)
            self.client.mutate_priorities(table, {sample.info.key: sample.info.priority})
        self.assertEqual(self.draw_values('max', 1), [2])
        self.assertEqual(self.draw_values('min', 1), [3])

    def test_prioritized_reports_the_exact_probability(self):
        priorities = [0.0, 1.0, 2.0, 3.0, 0.5, 1e-3]
        self.insert_values('prio', range(6), priorities)
        weights = [p**0.6 if p else 0.0 for p in priorities]
        for sample in self.draw('prio', 100):
            value = int(sample.data[0][0])
            self.assertNotEqual(value, 0)
            self.assertAlmostEqual(sample.info.probability, weights[value] / sum(weights), 12)
            self.assertEqual((sample.info.priority, sample.info.table_size),
                             (priorities[value], 6))

    def test_prioritized_draws_as_often_as_it_reports(self):
        priorities = [1.0, 2.0, 4.0, 8.0]
        self.insert_values('often', range(4), priorities)
        count = 10_000
        drawn = collections.Counter(int(row[5][0]) for row in self.draw_many('often', count))
        total = sum(p**0.6 for p in priorities)
        for value, priority in enumerate(priorities):
            p = priority**0.6 / total
            self.assertLess(abs(drawn[value] - count * p), 6 * math.sqrt(count * p * (1 - p)))

    def test_exponent_zero_is_uniform_over_what_is_not_zero(self):
        self.insert_values('flat', range(4), [0.0, 1.0, 10.0, 100.0])
        infos = self.infos_by_value('flat', [1, 2, 3])
        self.assertEqual(set(infos), {1, 2, 3})
        for info in infos.values():
            self.assertAlmostEqual(info.probability, 1 / 3, 12)

    def test_only_zero_priorities_are_drawn_uniformly(self):
        self.insert_values('zeros', range(3), [0.0] * 3)
        for info in self.infos_by_value('zeros', range(3)).values():
            self.assertAlmostEqual(info.probability, 1 / 3, 12)

    def test_uniform_is_uniform(self):
        self.insert_values('uniform', range(5), [0.0, 1.0, 2.0, 3.0, 1e9])
        count = 10_000
        rows = self.draw_many('uniform', count)
        self.assertEqual({float(row[1]) for row in rows}, {0.2})
        drawn = collections.Counter(int(row[5][0]) for row in rows)
        for value in range(5):
            self.assertLess(abs(drawn[value] - count / 5), 6 * math.sqrt(count * 0.16))

    def test_max_times_sampled_delivers_the_last_sample_and_deletes(self):
        self.insert_values('twice', range(2))
        samples = self.draw('twice', 4)
        self.assertEqual([(int(s.data[0][0]), s.info.times_sampled, s.info.table_size)
                          for s in samples], [(0, 1, 2), (0, 2, 2), (1, 1, 1), (1, 2, 1)])
        info = self.info('twice')
        self.assertEqual((info.current_size, info.num_unique_samples), (0, 2))

    def test_removers_choose_who_leaves_and_the_new_item_takes_part(self):
        priorities = [2.0, 9.0, 1.0, 5.0]
        for table, left in (('drop_old', {1, 2, 3}), ('drop_new', {0, 1, 2}),
                            ('drop_low', {0, 1, 3}), ('drop_high', {0, 2, 3})):
            with self.subTest(table):
                self.insert_values(table, range(4), priorities)
                self.assertEqual(set(self.infos_by_value(table, left)), left)
        for table in ('drop_any', 'drop_prio'):
            self.insert_values(table, range(10), [1.0] * 10)
            self.assertEqual(self.size(table), 3)

    def test_updates_change_priorities(self):
        self.insert_values('updates', range(3), [1.0, 2.0, 3.0])
        (sample,) = self.draw('updates')
        self.client.mutate_priorities('updates', {sample.info.key: 1.5})
        self.assertEqual(self.draw_values('updates', 1), [1])
        (sample,) = self.draw('updates')
        self.client.mutate_priorities('updates', {sample.info.key: 0.0})
        (sample,) = self.draw('updates')
        self.assertEqual((int(sample.data[0][0]), sample.info.priority), (2, 1.5))

    def test_deletes_remove(self):
        self.insert_values('deletes', range(4))
        infos = self.infos_by_value('deletes', range(4))
        self.client.mutate_priorities('deletes', deletes=[infos[1].key, infos[3].key])
        self.assertEqual(set(self.infos_by_value('deletes', [0, 2])), {0, 2})
        self.assertEqual(self.size('deletes'), 2)

    def test_a_key_that_is_updated_and_deleted_is_gone(self):
        self.insert_values('both', range(2))
        infos = self.infos_by_value('both', range(2))
        self.client.mutate_priorities('both', {infos[0].key: 5.0, infos[1].key: 6.0},
                                      [infos[0].key])
        self.assertEqual(set(self.draw_values('both', 10)), {1})
        self.assertEqual(self.draw('both')[0].info.priority, 6.0)

    def test_unknown_keys_are_ignored(self):
        self.insert_values('unknown', [1])
        self.client.mutate_priorities('unknown', {123: 2.0, 2**64 - 1: 3.0}, [456])
        self.assertEqual(self.size('unknown'), 1)

    def test_a_bad_priority_is_refused_and_the_table_lives_on(self):
        self.insert_values('bad', range(2), [1.0, 1.0])
        infos = self.infos_by_value('bad', range(2))
        for priority, text in ((-1.0, 'must not be negative'), (math.nan, 'must not be NaN')):
            with self.assertRaisesRegex(ValueError, text):
                self.client.mutate_priorities('bad', {infos[0].key: priority})
        self.client.mutate_priorities('bad', {infos[0].key: 2.0, infos[1].key: 2.0})
        for info in self.infos_by_value('bad', range(2)).values():
            self.assertEqual((info.priority, info.probability), (2.0, 0.5))

    @beyond_reverb
    def test_a_writer_hears_of_a_negative_priority_and_the_table_lives_on(self):
        writer = self.client.trajectory_writer(num_keep_alive_refs=1)
        writer.append(np.int64(1))
        writer.create_item('poison', -1.0, writer.history[:])
        with self.assertRaisesRegex(ValueError, 'must not be negative'):
            writer.flush(timeout_ms=WAIT_MS)
        writer.close()
        self.assertEqual(self.size('poison'), 0)
        self.insert_values('poison', [2])
        self.assertEqual(self.draw_values('poison', 1), [2])

    def test_reset_empties_a_table_and_its_counters(self):
        self.insert_values('reset', range(3))
        self.draw('reset', 5)
        self.client.mutate_priorities('reset', deletes=[self.draw('reset')[0].info.key])
        self.client.reset('reset')
        info = self.info('reset')
        stats = info.rate_limiter_info
        self.assertEqual(
            (info.current_size, info.num_unique_samples, stats.insert_stats.completed,
             stats.sample_stats.completed), (0, 0, 0, 0))
        self.insert_values('reset', [8])
        self.assertEqual(self.draw_values('reset', 1), [8])
