"""Writes classic_control.h: trajectories of Gymnasium's classic control from given states.

    python make_classic_control.py > classic_control.h     (made with Gymnasium 1.4.0, NumPy 2.4.6)

A row is one action for some steps and what there is after them, so that long episodes are short.
"""
import math
import random

import gymnasium
from gymnasium.envs.classic_control import pendulum as pendulum_module
import numpy as np

RUN_MAX = 40


class Libm:
    """NumPy, but with libm's sine and cosine, which NumPy's are on most processors."""

    def __getattr__(self, name):
        return getattr(np, name)

    def sin(self, x):
        return np.float64(math.sin(x))

    def cos(self, x):
        return np.float64(math.cos(x))


pendulum_module.np = Libm()


def episode(name, start, policy, limit):
    """(action, state, observation, reward, terminated, truncated) of each step."""
    name, _, g = name.partition("?g=")
    env = gymnasium.make(name, disable_env_checker=True, **({"g": float(g)} if g else {}))
    box = isinstance(env.action_space, gymnasium.spaces.Box)
    env.reset(seed=0)
    env.unwrapped.state = np.array(start, dtype=np.float64)
    for _ in range(limit):
        action = policy(env.unwrapped.state)
        applied = np.array([action], np.float32) if box else int(action)
        observation, reward, terminated, truncated, _ = env.step(applied)
        assert observation.dtype == np.float32
        state = [float(x) for x in env.unwrapped.state]
        yield action, state, observation, reward, terminated, truncated
        if terminated or truncated:
            return


def rows(name, start, policy, limit):
    yield 0, 0, start, None, 0, False, False
    steps = list(episode(name, start, policy, limit))
    run = 0
    for i, (action, *rest) in enumerate(steps):
        run += 1
        if i + 1 == len(steps) or run == RUN_MAX or steps[i + 1][0] != action:
            yield run, action, *rest
            run = 0


class Held:
    """A random action, held for some steps."""

    def __init__(self, seed, draw):
        self.random, self.draw, self.left = random.Random(seed), draw, 0

    def __call__(self, state):
        if self.left == 0:
            self.left, self.action = self.random.randrange(1, 7), self.draw(self.random)
        self.left -= 1
        return self.action


def always(action):
    return lambda state: action


def mountain_car():
    pump = lambda s: 2 if s[1] >= 0 else 0
    for start in ([-0.5, 0.0], [-1.15, -0.05], [0.45, 0.03]):
        yield start, pump, 200
    yield [-0.45678, 0.0], always(1), 200
    yield [-0.9, -0.069], always(0), 20
    for seed in range(3):
        yield [-0.6 + 0.07 * seed, 0.01 * seed], Held(seed, lambda r: r.randrange(3)), 60


def mountain_car_continuous():
    f = lambda x: float(np.float32(x))
    pump = lambda push: lambda s: f(push) if s[1] >= 0 else f(-push)
    for push in (1, 0.8, 1.7):
        yield [-0.51234, 0.0], pump(push), 999
    yield [-0.45678, 0.0], always(f(0.1)), 999
    yield [-1.15, -0.06], always(f(-0.3)), 30
    yield [-1.19, -0.069], always(-2.0), 5
    yield [0.56, 0.069], always(2.0), 5
    for seed in range(4):
        draw = lambda r: f(r.uniform(-1.3, 1.3))
        yield [-0.58 + 0.05 * seed, 0.0], Held(seed, draw), 60


def acrobot():
    pump = lambda s: 2 if s[3] >= 0 else 0
    for start in ([0.05, -0.03, 0.0, 0.08], [-2.9, 1.3, 4.0, -20.0], [3.1, -3.1, -12.5, 28.0]):
        yield start, pump, 200
    yield [0.09, 0.02, -0.05, 0.01], always(1), 500
    for seed in range(5):
        draw = random.Random(seed)
        yield [draw.uniform(-3, 3), draw.uniform(-3, 3), draw.uniform(-6, 6), draw.uniform(-9, 9)], \
            Held(seed, lambda r: r.randrange(3)), 40
    # Velocities whose square by libm's pow() is not the product.
    draw = random.Random(9)
    odd = [v for v in (draw.uniform(3, 12) for _ in range(20000)) if math.pow(v, 2) != v * v]
    for i in range(4):
        yield [0.3 * i, 0.5 + 0.4 * i, odd[2 * i], odd[2 * i + 1]], always(2), 2


def pendulum():
    f = lambda x: float(np.float32(x))
    # Uphill where it moves uphill.
    swing = lambda push: lambda s: f(push) if s[1] >= 0 else f(-push)
    for start in ([math.pi - 0.1, 0.0], [2.0, -7.9], [1e3, 0.5]):
        yield start, swing(2), 200
    yield [0.0, 0.0], always(0.0), 200
    yield [-math.pi, 8.0], always(f(2.5)), 40
    yield [3 * math.pi, -8.0], always(f(-7)), 40
    # Torques whose square by libm's powf() is not the product.
    draw = random.Random(9)
    floats = [np.float32(draw.uniform(-2, 2)) for _ in range(20000)]
    odd = [float(x) for x in floats if x**2 != x * x]
    for i in range(6):
        yield [1e-5 * i, 1e-4], always(odd[i]), 3
    for seed in range(5):
        draw = lambda r: f(r.uniform(-2.5, 2.5))
        yield [-3 + 1.3 * seed, 0.4 * seed], Held(seed, draw), 30


def moon_pendulum():
    f = lambda x: float(np.float32(x))
    yield [1.0, 0.5], always(f(0.7)), 60
    yield [-2.5, -0.5], Held(7, lambda r: f(r.uniform(-2, 2))), 60


def number(x):
    """Exactly, as short as C reads it."""
    if x == int(x) and (x != 0 or math.copysign(1, x) > 0):
        return str(int(x))
    mantissa, exponent = float(x).hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"


def show(line):
    while len(line) > 100:
        cut = line.rindex(", ", 0, 100) + 1
        print(line[:cut])
        line = "     " + line[cut:]
    print(line)


def table(name, env, cases):
    print(f"static const struct golden_step golden_{name}[] = {{")
    for start, policy, limit in cases:
        for run, action, state, observation, reward, terminated, truncated in rows(
                env, start, policy, limit):
            states = ", ".join(number(x) for x in state)
            seen = "0" if observation is None else ", ".join(number(x) for x in observation)
            rest = f"{number(np.float32(reward))}, {int(terminated)}, {int(truncated)}"
            show(f"    {{{run}, {number(action)}, {{{states}}}, {{{seen}}}, {rest}}},")
    print("};")


def main():
    print("/* Made by make_classic_control.py; a row of 0 steps starts a trajectory. `steps` times")
    print(" * the action leads from the row before to this one. */")
    print("/* clang-format off */")
    print("struct golden_step {")
    print("    int32_t steps;")
    print("    float action;")
    print("    double state[4];")
    print("    float observation[6], reward;")
    print("    bool terminated, truncated;")
    print("};")
    table("mountain_car", "MountainCar-v0", mountain_car())
    table("mountain_car_continuous", "MountainCarContinuous-v0", mountain_car_continuous())
    table("acrobot", "Acrobot-v1", acrobot())
    table("pendulum", "Pendulum-v1", pendulum())
    table("moon_pendulum", "Pendulum-v1?g=1.62", moon_pendulum())


main()
