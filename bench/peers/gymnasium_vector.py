"""Steps/s of Gymnasium's vector environment NAME with COPIES copies: its own where it has one, else
SyncVectorEnv; 0 where it has no such environment. Actions are drawn before."""
import sys
import time

import gymnasium

RUNS, SECONDS = 5, 0.15

name, copies = sys.argv[1], int(sys.argv[2])
if name not in gymnasium.registry:
    print(0)
    sys.exit()
own = gymnasium.registry[name].vector_entry_point
env = gymnasium.make_vec(name, copies, vectorization_mode="vector_entry_point" if own else "sync")
env.reset(seed=1)
actions = [env.action_space.sample() for _ in range(16)]
best, steps = 0, 0
for _ in range(RUNS):
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS:
        env.step(actions[steps % len(actions)])
        steps, count = steps + 1, count + copies
    best = max(best, count / (time.perf_counter() - start))
print(best)
