"""`troupe replay dump` of what a Python client wrote, read by numpy and loaded back."""

import json
import os
import subprocess
import tempfile

import numpy as np

from replay_test import WAIT_MS, ReplayTest, beyond_reverb

TROUPE = os.path.join(os.path.abspath(os.environ['BUILD_DIR']), 'troupe')


@beyond_reverb
class DumpTest(ReplayTest):
    tables = ['name=same sampler=fifo', 'name=ragged sampler=fifo', 'name=copy sampler=fifo']

    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def troupe(self, *words):
        return subprocess.run([TROUPE, 'replay', *words], cwd=self.folder.name, check=True,
                              capture_output=True, text=True, timeout=60).stdout

    def dump(self, table):
        self.troupe('dump', self.server.address, table, 'x.npz')
        with np.load(os.path.join(self.folder.name, 'x.npz')) as arrays:
            return dict(arrays)

    def step(self, number):
        return {'frame': np.arange(number, number + 12, dtype=np.uint8).reshape(3, 4),
                'half': np.float16(number / 3), 'big': np.int64(2**62 + number),
                'flag': np.bool_(number % 2), 'wave': np.complex64(number + 1j)}

    def write(self, table, lengths):
        with self.client.trajectory_writer(num_keep_alive_refs=8) as writer:
            for number in range(10):
                writer.append(self.step(number))
                if number >= 4:
                    length = lengths[number % len(lengths)]
                    writer.create_item(table, float(number), {
                        name: column[-length:] for name, column in writer.history.items()})
            writer.flush(timeout_ms=WAIT_MS)

    def test_numpy_reads_columns_of_one_shape_as_one_array_each(self):
        self.client.reset('same')
        self.write('same', [3])
        arrays = self.dump('same')
        self.assertEqual(arrays['priorities'].tolist(), [4, 5, 6, 7, 8, 9])
        self.assertEqual(len(set(arrays['keys'].tolist())), 6)
        self.assertEqual(arrays['keys'].dtype, np.uint64)
        self.assertTrue((np.abs(arrays['inserted_at'] / 1e9 - arrays['inserted_at'][0] / 1e9) < 60)
                        .all())
        for index, name in enumerate(sorted(self.step(0))):
            column = arrays[f'column_{index}']
            expected = np.stack([np.stack([self.step(i)[name] for i in range(n - 2, n + 1)])
                                 for n in range(4, 10)])
            self.assertEqual(column.dtype, expected.dtype)
            np.testing.assert_array_equal(column, expected)

    def test_items_of_several_lengths_become_an_array_each(self):
        self.write('ragged', [1, 2])
        arrays = self.dump('ragged')
        self.assertEqual(arrays['priorities'].shape, (6,))
        names = sorted(self.step(0))
        for i, number in enumerate(range(4, 10)):
            length = [1, 2][number % 2]
            for index, name in enumerate(names):
                expected = np.stack([self.step(n)[name]
                                     for n in range(number + 1 - length, number + 1)])
                np.testing.assert_array_equal(arrays[f'column_{index}/{i}'], expected)

    def test_what_is_loaded_back_is_sampled_as_it_was(self):
        self.client.reset('same')
        self.write('same', [2])
        self.client.insert([b'text', 'more'], {'same': 1.0})
        self.troupe('dump', self.server.address, 'same', 'x.jsonl')
        self.troupe('load', self.server.address, 'x.jsonl', '--table=copy')
        for original, copy in zip(self.draw('same', 1), self.draw('copy', 1)):
            for a, b in zip(original.data, copy.data):
                np.testing.assert_array_equal(a, b)
        listed = {table: json.loads(self.troupe('items', self.server.address, table, '-o', 'json',
                                                '--sort=oldest', '-n', '100'))
                  for table in ('same', 'copy')}
        pairs = {table: [(item['key'], item['priority']) for item in answer['items']]
                 for table, answer in listed.items()}
        self.assertEqual(len(pairs['same']), 7)
        self.assertEqual(pairs['same'], pairs['copy'])
