"""Our C structured writer and Reverb's make the same items of the same steps."""

import os
import random
import subprocess

import numpy as np
import reverb
from reverb import structured_writer

from replay_server import Server
from replay_test import REFERENCE, ClientTest

PATTERNS = 3
SCENARIOS = 40
TABLE = ' sampler=fifo max_times_sampled=1 max_size=100000 limiter=min_size(1)'


class Scenario:
    """Patterns and steps as both writers take them; made at random."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.columns = self.random.randint(1, 5)
        self.patterns = [self.make_pattern() for _ in range(PATTERNS)]
        self.calls = [self.make_call() for _ in range(60)]

    def make_pattern(self):
        nodes = [self.make_node() for _ in range(self.random.randint(1, 4))]
        conditions = [self.make_condition() for _ in range(self.random.choice([0, 1, 1, 2]))]
        return nodes, conditions

    def make_node(self):
        column = self.random.randrange(self.columns)
        if self.random.random() < 0.3:
            return column, 0, -self.random.randint(1, 5), 0
        start = -self.random.randint(1, 6)
        stop = self.random.randint(start + 1, 0)
        return column, start, stop, self.random.choice([0, 0, 1, 2, 3])

    def make_condition(self):
        kind = self.random.choice([0, 1, 2, 3, 4])
        if kind == 3:
            return 3, 0, 0, 1, 0, 0
        test = self.random.randrange(3)
        column = self.random.randrange(self.columns)
        modulus = self.random.randint(1, 4)
        value = self.random.randrange(modulus) if test == 2 else self.random.randint(0, 4)
        return kind, column, test, value, modulus, self.random.randrange(2)

    def make_call(self):
        if self.random.random() < 0.08:
            return 'end', self.random.random() < 0.4
        partial = self.random.random() < 0.25
        return 'step', partial

    def steps(self):
        """Calls with the cells that have not been given yet."""
        given, value = set(), 0
        for word, flag in self.calls + [('end', False)]:
            if word == 'end':
                given = set()
                yield word, flag, None
                continue
            cells = []
            for column in range(self.columns):
                value += 1
                there = column not in given and self.random.random() < 0.85
                cells.append(value % 7 if there else None)
                given |= {column} if there else set()
            if not flag:
                given = set()
            yield word, flag, cells

    def text(self, prefix, steps):
        lines = [f'columns {self.columns}']
        for i, (nodes, conditions) in enumerate(self.patterns):
            lines.append(f'pattern {prefix}{i} {len(nodes)} {len(conditions)}')
            lines += [' '.join(map(str, node)) for node in nodes + conditions]
        lines.append('begin')
        for word, flag, cells in steps:
            cells = ['-' if cell is None else str(cell) for cell in cells or ()]
            lines.append(' '.join([word, str(int(flag))] + cells))
        return '\n'.join(lines) + '\n'

    def configs(self, prefix):
        return [self.config(prefix + str(i), *pattern) for i, pattern in enumerate(self.patterns)]

    def config(self, table, nodes, conditions):
        reference = structured_writer.create_reference_step([None] * self.columns)
        pattern = [reference[column][stop] if start == 0 else
                   reference[column][slice(start, stop or None, step or None)]
                   for column, start, stop, step in nodes]
        return structured_writer.create_config(
            pattern, table, [self.condition(*condition) for condition in conditions])

    def condition(self, kind, column, test, value, modulus, inverse):
        condition_type = structured_writer.Condition
        if kind == 3:
            return condition_type.is_end_episode()
        left = structured_writer.patterns_pb2.Condition()
        if kind == 0:
            left.step_index = True
        elif kind == 1:
            left.steps_since_applied = True
        elif kind == 2:
            left.buffer_length = True
        else:
            left.flat_source_index = column
        if test == 0:
            left.eq = value
        elif test == 1:
            left.ge = value
        else:
            left.mod_eq.mod = modulus
            left.mod_eq.eq = value
        left.inverse = bool(inverse)
        return left


class StructuredWriterTest(ClientTest):

    def setUp(self):
        super().setUp()
        tables = [f'name={prefix}{i}' + TABLE for prefix in 'pc' for i in range(PATTERNS)]
        self.server = Server(tables, reference=REFERENCE)
        self.addCleanup(self.server.remove)
        self.client = reverb.Client(self.server.address)

    def items(self, table, nodes):
        """Of strided columns the length and the first row: Reverb's writer takes neighbours for
        the others when its chunks have several rows. tests/test_client.c looks at all of ours."""
        count = self.size(table)
        items = []
        for sample in self.draw(table, count) if count else []:
            columns = [np.asarray(column).tolist() for column in sample.data]
            for i, (_, _, _, step) in enumerate(nodes):
                if step > 1:
                    columns[i] = [len(columns[i]), columns[i][0]]
            items.append((columns, sample.info.priority))
        return items

    def write_with_python(self, scenario, steps):
        writer = self.client.structured_writer(scenario.configs('p'))
        for word, flag, cells in steps:
            if word == 'end':
                writer.end_episode(clear_buffers=not flag)
                continue
            writer.append([None if cell is None else np.int64(cell) for cell in cells],
                          partial_step=flag)
        writer.flush()

    def write_with_c(self, scenario, steps):
        program = os.path.join(os.environ['BUILD_DIR'], 'test_structured_writer')
        subprocess.run([program, self.server.address], input=scenario.text('c', steps), text=True,
                       check=True, timeout=60)

    def test_the_same_steps_make_the_same_items(self):
        total = 0
        for seed in range(SCENARIOS):
            scenario = Scenario(seed)
            steps = list(scenario.steps())
            self.write_with_python(scenario, steps)
            self.write_with_c(scenario, steps)
            for i in range(PATTERNS):
                with self.subTest(seed=seed, pattern=scenario.patterns[i]):
                    nodes = scenario.patterns[i][0]
                    expected = self.items(f'p{i}', nodes)
                    total += len(expected)
                    self.assertEqual(self.items(f'c{i}', nodes), expected)
        self.assertGreater(total, 10 * SCENARIOS)
