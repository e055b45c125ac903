"""cpprb's prioritized buffer at a million items: microseconds for a sample and an update of 256."""
import time

import numpy as np
from cpprb import PrioritizedReplayBuffer

ITEMS = 1_000_000
buffer = PrioritizedReplayBuffer(ITEMS, {'obs': {'shape': 4}}, alpha=0.6)
for _ in range(100):
    buffer.add(obs=np.random.rand(10_000, 4), priorities=np.random.rand(10_000))
best = 1e9
for _ in range(9):
    begin = time.monotonic()
    for _ in range(400):
        sample = buffer.sample(256, 0.4)
        buffer.update_priorities(sample['indexes'], np.random.rand(256))
    best = min(best, (time.monotonic() - begin) / 400 * 1e6)
print(best)
