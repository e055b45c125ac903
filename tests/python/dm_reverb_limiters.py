"""Rate limiters hold writers and samplers back, and let exactly the right number through."""

import numpy as np
import reverb

from replay_test import BLOCKED_MS, WAIT_MS, ReplayTest, in_thread


class LimiterTest(ReplayTest):
    tables = [
        'name=queue sampler=fifo remover=fifo max_size=3 max_times_sampled=1 limiter=queue(3)',
        'name=stack sampler=lifo remover=lifo max_size=9 max_times_sampled=1 limiter=stack(9)',
        'name=ratio sampler=fifo limiter=samples_per_insert(2,2,4.0)',
        'name=min limiter=min_size(3)',
        'name=blocked sampler=fifo max_times_sampled=1 limiter=queue(2)',
        'name=legacy sampler=fifo max_times_sampled=1 limiter=queue(2)',
        'name=below sampler=fifo limiter=queue(2)',
        'name=reset sampler=fifo max_times_sampled=1 limiter=queue(2)', 'name=free',
        'name=gone sampler=fifo max_times_sampled=1 limiter=queue(2)']

    def start_items(self, table, values):
        writer = self.client.trajectory_writer(num_keep_alive_refs=1)
        for value in values:
            writer.append(np.int64(value))
            writer.create_item(table, 1.0, writer.history[-1:])
        return writer

    def assert_blocked(self, writer):
        with self.assertRaises(reverb.errors.DeadlineExceededError):
            writer.flush(timeout_ms=BLOCKED_MS)

    def assert_no_sample(self, table):
        dataset = self.dataset(table, rate_limiter_timeout_ms=BLOCKED_MS)
        self.assertEqual(list(dataset.as_numpy_iterator()), [])

    def test_a_queue_gives_each_item_once_and_holds_writers_back(self):
        writer = self.start_items('queue', range(7))
        self.assert_blocked(writer)
        self.assertEqual(self.size('queue'), 3)
        self.assertEqual(self.draw_values('queue', 7), list(range(7)))
        writer.flush(timeout_ms=WAIT_MS)
        self.assertEqual(self.size('queue'), 0)
        self.assert_no_sample('queue')

    def test_a_stack_gives_the_newest_first(self):
        self.insert_values('stack', range(4))
        self.assertEqual(self.draw_values('stack', 2), [3, 2])
        self.insert_values('stack', [9])
        self.assertEqual(self.draw_values('stack', 3), [9, 1, 0])

    def test_samples_per_insert_lets_exactly_so_many_through(self):
        writer = self.start_items('ratio', range(9))
        self.assert_blocked(writer)
        self.assertEqual(self.size('ratio'), 4)
        self.draw('ratio', 18)
        writer.flush(timeout_ms=WAIT_MS)
        self.assertEqual(self.size('ratio'), 9)
        self.assert_no_sample('ratio')

    def test_min_size_holds_samples_back(self):
        self.insert_values('min', range(2))
        self.assert_no_sample('min')
        self.insert_values('min', [2])
        self.assertEqual(len(self.draw('min', 20)), 20)
        self.client.mutate_priorities('min', deletes=[self.draw('min')[0].info.key])
        self.assert_no_sample('min')

    def test_deletes_make_no_room_in_the_ratio_but_below_min_size_inserts_pass(self):
        writer = self.start_items('below', range(4))
        self.assert_blocked(writer)
        keys = [sample.info.key for sample in self.draw('below', 2)]
        writer.flush(timeout_ms=WAIT_MS)
        self.client.mutate_priorities('below', deletes=keys[:1])
        writer = self.start_items('below', [4, 5])
        self.assert_blocked(writer)
        self.assertEqual(self.size('below'), 3)

    def test_a_reset_lets_held_back_items_in(self):
        writer = self.start_items('reset', range(4))
        self.assert_blocked(writer)
        self.client.reset('reset')
        writer.flush(timeout_ms=WAIT_MS)
        self.assertEqual(self.draw_values('reset', 2), [2, 3])

    def test_end_episode_times_out_and_the_items_come_later(self):
        writer = self.start_items('blocked', range(4))
        with self.assertRaises(reverb.errors.DeadlineExceededError):
            writer.end_episode(timeout_ms=BLOCKED_MS)
        self.assertEqual(self.draw_values('blocked', 4), list(range(4)))
        writer.flush(timeout_ms=WAIT_MS)

    def test_a_blocked_table_holds_back_no_other(self):
        writer = self.start_items('gone', range(5))
        self.assert_blocked(writer)
        self.insert_values('free', range(5))
        self.assertEqual(self.size('free'), 5)
        writer.close()
        self.assertEqual(self.draw_values('gone', 5), list(range(5)))

    def test_a_blocked_legacy_writer_goes_on_when_there_is_room(self):
        wait = in_thread(lambda: self.insert_values('legacy', range(5)) or True)
        self.assertEqual(self.draw_values('legacy', 5), list(range(5)))
        self.assertTrue(wait())
