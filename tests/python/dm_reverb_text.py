"""Names that Reverb allows, and signatures as text: both ways between them and Python's nests."""

import collections
import os
import subprocess

import numpy as np
import tensorflow as tf
import tree

from replay_test import WAIT_SECONDS, ReplayTest, beyond_reverb

Pair = collections.namedtuple('Pair', ['obs', 'act'])
SPEC = {'obs': tf.TensorSpec([4, None], tf.float32), 'a b': (tf.TensorSpec([], tf.int32),)}
NESTED = [(tf.TensorSpec([3, None], tf.bool),), {
    'q': {'k': tf.TensorSpec([], tf.bfloat16)}, 'z "\\': tf.TensorSpec(None, tf.string)},
    tf.TensorSpec([0], tf.uint8, 'named'),
    Pair(tf.TensorSpec([2], tf.float32), tf.TensorSpec([], tf.int32))]


@beyond_reverb
class TextTest(ReplayTest):
    tables = ['name="a b, c=d" sampler=fifo signature={obs: float32[4,?], "a b": (int32)}',
              'name=all sampler=fifo', 'name="e f, (g)" sampler=fifo']
    signatures = {'all': NESTED}

    def troupe(self, *words):
        tool = os.path.join(os.environ['BUILD_DIR'], 'troupe')
        done = subprocess.run([tool, 'replay', *words], check=True, text=True,
                              stdout=subprocess.PIPE, timeout=WAIT_SECONDS)
        return done.stdout

    def signature_text(self, table):
        lines = self.troupe('info', self.server.address, table).splitlines()
        (text,) = [line for line in lines if line.startswith('  signature ')]
        return text.removeprefix('  signature ')

    def test_a_table_of_any_name_is_inserted_into_and_sampled(self):
        self.client.insert(np.int64(7), {'e f, (g)': 1.0})
        (sample,) = self.draw('e f, (g)', 1)
        self.assertEqual(int(sample.data[0][0]), 7)
        infos = self.client.server_info(timeout=WAIT_SECONDS)
        self.assertLessEqual({'a b, c=d', 'all', 'e f, (g)'}, set(infos))

    def test_text_becomes_a_nest(self):
        signature = self.client.server_info()['a b, c=d'].signature
        tree.assert_same_structure(signature, SPEC)
        self.assertEqual(tree.flatten(signature), tree.flatten(SPEC))

    def test_a_nest_becomes_text_and_a_nest_again(self):
        text = self.signature_text('all')
        self.assertEqual(text, '[(bool[3,?]), {q: {k: bfloat16}, "z \\"\\\\": string[...]}, uint8[0], '
                         'Pair(obs: float32[2], act: int32)]')
        self.troupe('create', self.server.address, 'name=again', f'signature={text}')
        self.assertEqual(self.signature_text('again'), text)
        signature = self.client.server_info()['again'].signature
        tree.assert_same_structure(signature[:3], NESTED[:3])
        self.assertEqual(signature[3]._fields, NESTED[3]._fields)
        nameless = [tf.TensorSpec(spec.shape, spec.dtype) for spec in tree.flatten(NESTED)]
        self.assertEqual(tree.flatten(signature), nameless)
