"""Many clients at once, the TensorFlow client, and a server that comes and goes fast."""

import threading
import time

import numpy as np
import reverb
import tensorflow as tf

from replay_server import Server
from replay_test import REFERENCE, WAIT_SECONDS, ClientTest, beyond_reverb

START_SECONDS = 3  # 100 ms are promised; the machine of the tests may be busy


class CrowdTest(ClientTest):
    tables = ['name=t sampler=uniform max_size=100000', 'name=p sampler=prioritized(1)']

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.tables, reference=REFERENCE)

    @classmethod
    def tearDownClass(cls):
        cls.server.remove()

    def setUp(self):
        super().setUp()
        self.client = reverb.Client(self.server.address)
        for table in ['t', 'p']:
            self.client.reset(table)

    def test_64_threads_insert_and_sample_at_once(self):
        failures = []

        def work(number):
            try:
                client = reverb.Client(self.server.address)
                for i in range(4):
                    client.insert(np.int64(1000 * number + i), {'t': 1.0})
                    sample = next(iter(client.sample('t', 1, emit_timesteps=False)))
                    self.assertEqual(sample.info.table_size > 0, True)
            except Exception as error:  # whatever it is, the test names it
                failures.append(f'{number}: {error}')

        threads = [threading.Thread(target=work, args=(i,)) for i in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_SECONDS)
        self.assertEqual(failures, [])
        self.assertEqual(self.size('t'), 64 * 4)

    def test_hundreds_of_short_streams_follow_each_other(self):
        for i in range(300):
            self.client.insert(np.int64(i), {'t': 1.0})
        self.assertEqual(self.size('t'), 300)
        values = {int(self.draw('t')[0].data[0][0]) for _ in range(300)}
        self.assertTrue(values <= set(range(300)) and len(values) > 100)

    def test_the_tensorflow_client_inserts_samples_and_updates(self):
        client = reverb.TFClient(self.server.address)
        client.insert([tf.constant([7], tf.int64)], tf.constant(['p']),
                      tf.constant([2.0], tf.float64))
        sample = client.sample('p', [tf.int64])
        self.assertEqual(sample.data[0].numpy().tolist(), [7])
        self.assertEqual(float(sample.info.priority), 2.0)
        client.update_priorities('p', tf.expand_dims(sample.info.key, 0),
                                 tf.constant([5.0], tf.float64))
        self.assertEqual(float(client.sample('p', [tf.int64]).info.priority), 5.0)

    def test_statuses_reach_the_client_with_their_texts(self):
        for call in [lambda: self.client.reset('nope'),
                     lambda: self.client.mutate_priorities('nope', {1: 1.0})]:
            with self.assertRaisesRegex(RuntimeError, 'Priority table nope was not found'):
                call()
        self.insert_values('p', [1])
        key = self.draw('p')[0].info.key
        with self.assertRaisesRegex(ValueError, 'Priority must not be negative.'):
            self.client.mutate_priorities('p', {key: -1.0})

    def test_episodes_and_unique_samples_are_counted(self):
        for value in range(3):
            self.client.insert(np.int64(value), {'t': 1.0})
        info = self.info('t')
        self.assertEqual((info.num_episodes, info.num_deleted_episodes), (3, 0))
        key = self.draw('t')[0].info.key
        self.client.mutate_priorities('t', {}, [key])
        info = self.info('t')
        self.assertEqual((info.num_episodes, info.num_deleted_episodes), (2, 1))
        self.assertEqual(info.num_unique_samples, 1)

    def test_the_time_of_a_table_is_told(self):
        for value in range(50):
            self.client.insert(np.int64(value), {'t': 1.0})
        time_of = self.info('t').table_worker_time
        parts = [time_of.sleeping_ms, time_of.inserting_ms, time_of.sampling_ms,
                 time_of.waiting_for_sampling_ms, time_of.waiting_for_inserts_ms]
        self.assertTrue(all(part >= 0 for part in parts + [time_of.running_ms]))
        self.assertGreater(sum(parts), 0)

    @beyond_reverb
    def test_a_server_starts_fast_and_its_port_is_free_at_once(self):
        server = Server(self.tables, reference=False)
        self.addCleanup(server.remove)
        client = reverb.Client(server.address)
        client.insert(np.int64(1), {'t': 1.0})
        for _ in range(3):
            self.assertEqual(server.terminate(), 0)
            begin = time.monotonic()
            server.start()  # on the same port
            self.assertLess(time.monotonic() - begin, START_SECONDS)
        self.assertEqual(reverb.Client(server.address).server_info(
            timeout=WAIT_SECONDS)['t'].current_size, 1)
