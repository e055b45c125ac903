"""ServerInfo: options and signatures as they were given, counters as things happened."""

import collections
import math
import sys

import numpy as np
import tensorflow as tf
import tree

from replay_test import WAIT_SECONDS, ReplayTest

STEP = {'action': tf.TensorSpec([], tf.int32), 'text': tf.TensorSpec([], tf.string)}
Pair = collections.namedtuple('Pair', ['obs', 'act'])
NESTED = [(tf.TensorSpec([3, None], tf.bool),), {
    'q': {'k': tf.TensorSpec([], tf.bfloat16)}, 'z': tf.TensorSpec(None, tf.string)},
    tf.TensorSpec([0], tf.uint8),
    Pair(tf.TensorSpec([2], tf.float32, 'o'), tf.TensorSpec([], tf.int32))]
DBL_MAX = sys.float_info.max


class ServerInfoTest(ReplayTest):
    tables = [
        'name=uniform sampler=uniform remover=fifo max_size=100 limiter=min_size(3)',
        'name=prio sampler=prioritized(0.6) remover=lifo max_times_sampled=4 '
        'limiter=samples_per_insert(2,5,10.5)',
        'name=heaps sampler=max_heap remover=min_heap limiter=rate(1.5,2,-7.25,inf)',
        'name=lifo sampler=lifo remover=uniform limiter=stack(9)',
        'name=queue sampler=fifo remover=prioritized(0) max_size=4 max_times_sampled=1 '
        'limiter=queue(4)']
    signatures = {'prio': STEP, 'heaps': NESTED}

    def test_tables_are_echoed_as_they_were_given(self):
        infos = self.client.server_info(timeout=WAIT_SECONDS)
        self.assertEqual(set(infos), {'uniform', 'prio', 'heaps', 'lifo', 'queue'})
        found = {name: (info.name, info.max_size, info.max_times_sampled)
                 for name, info in infos.items()}
        self.assertEqual(found, {
            'uniform': ('uniform', 100, 0), 'prio': ('prio', 1_000_000, 4),
            'heaps': ('heaps', 1_000_000, 0), 'lifo': ('lifo', 1_000_000, 0),
            'queue': ('queue', 4, 1)})

    def test_selectors_are_echoed(self):
        def describe(options):
            kind = options.WhichOneof('distribution')
            detail = {'prioritized': options.prioritized.priority_exponent,
                      'heap': options.heap.min_heap}.get(kind)
            return kind, detail, options.is_deterministic
        infos = self.client.server_info()
        found = {name: (describe(info.sampler_options), describe(info.remover_options))
                 for name, info in infos.items()}
        self.assertEqual(found, {
            'uniform': (('uniform', None, False), ('fifo', None, True)),
            'prio': (('prioritized', 0.6, False), ('lifo', None, True)),
            'heaps': (('heap', False, True), ('heap', True, True)),
            'lifo': (('lifo', None, True), ('uniform', None, False)),
            'queue': (('fifo', None, True), ('prioritized', 0.0, False))})

    def test_limiters_are_echoed(self):
        found = {}
        for name, info in self.client.server_info().items():
            limiter = info.rate_limiter_info
            self.assertTrue(limiter.HasField('insert_stats') and limiter.HasField('sample_stats'))
            found[name] = (limiter.samples_per_insert, limiter.min_size_to_sample,
                           limiter.min_diff, limiter.max_diff)
        top = found['heaps'][3]
        self.assertTrue(top in (DBL_MAX, math.inf))
        self.assertEqual(found, {
            'uniform': (1.0, 3, -DBL_MAX, DBL_MAX), 'prio': (2.0, 5, -0.5, 20.5),
            'heaps': (1.5, 2, -7.25, top), 'lifo': (1.0, 1, 0.0, 9.0),
            'queue': (1.0, 1, 0.0, 4.0)})

    def test_signatures_are_echoed(self):
        infos = self.client.server_info()
        self.assertEqual(infos['prio'].signature, STEP)
        self.assertEqual(infos['uniform'].signature, None)
        signature = infos['heaps'].signature
        tree.assert_same_structure(signature[:3], NESTED[:3])
        self.assertEqual(signature[3]._asdict(), NESTED[3]._asdict())
        self.assertEqual(tree.flatten(signature), tree.flatten(NESTED))

    def test_counters_follow_inserts_and_samples(self):
        self.client.insert(np.int64(1), {'queue': 1.0})
        self.client.insert(np.int64(2), {'queue': 1.0, 'lifo': 1.0})
        self.draw('queue', 1)
        info = self.info('queue')
        self.assertEqual((info.current_size, info.num_unique_samples), (1, 1))
        stats = info.rate_limiter_info
        self.assertEqual((stats.insert_stats.completed, stats.sample_stats.completed), (2, 1))
