"""Writes cartpole.h: trajectories of Gymnasium's CartPole-v1 from given states.

    python make_cartpole.py > cartpole.h        (made with Gymnasium 1.4.0, NumPy 2.4.6)
"""
import random

import gymnasium
import numpy as np


def rows(env, start, actions):
    """One row per state: the action that led to it, the state, terminated, truncated."""
    env.reset(seed=0)
    env.unwrapped.state = np.array(start, dtype=np.float64)
    yield -1, start, False, False
    for action in actions:
        action = action(env.unwrapped.state) if callable(action) else action
        _, reward, terminated, truncated, _ = env.step(action)
        assert reward == 1
        yield action, env.unwrapped.state, terminated, truncated
        if terminated or truncated:
            return


def trajectories():
    rng = random.Random(1)
    spread = (2.4, 3, 0.2, 3)
    for _ in range(12):
        start = [rng.uniform(-s, s) for s in spread]
        yield start, [rng.randrange(2) for _ in range(24)], 1
    for start in ([0, 0, 0, 0], [-2.39, -0.5, 0, 0], [2.3, 1, 0.01, 0], [0, 0, -0.209, -0.02]):
        yield [float(x) for x in start], [rng.randrange(2) for _ in range(30)], 1
    # A policy that balances: all 500 steps, every 25th written.
    balance = lambda s: int(0.1 * s[0] + 0.3 * s[1] + 3 * s[2] + s[3] > 0)
    yield [0.03, -0.02, 0.04, 0.01], [balance] * 500, 25


def main():
    env = gymnasium.make("CartPole-v1")
    print("/* Made by make_cartpole.py; a row with action -1 starts a trajectory. `steps` actions")
    print(" * lead from the row before to this one, all the same policy's where there are more. */")
    print("/* clang-format off */")
    print("static const struct {")
    print("    int32_t steps, action;")
    print("    double state[4];")
    print("    bool terminated, truncated;")
    print("} golden_cartpole[] = {")
    for start, actions, every in trajectories():
        for i, (action, state, terminated, truncated) in enumerate(rows(env, start, actions)):
            if i % every == 0 or terminated or truncated:
                numbers = ", ".join(float(x).hex() for x in state)
                print(f"    {{{0 if i == 0 else every}, {action},\n     {{{numbers}}},\n"
                      f"     {int(terminated)}, {int(truncated)}}},")
    print("};")


main()
