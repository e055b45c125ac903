"""The real dm-reverb 0.14 client against `troupe replay serve`."""

import os
import unittest

BUILD_DIR = os.environ['BUILD_DIR']


class Server(unittest.TestCase):
    def test_binary_exists(self):
        self.assertTrue(os.access(os.path.join(BUILD_DIR, 'troupe'), os.X_OK))


if __name__ == '__main__':
    unittest.main()
