"""Mean return of d3rlpy 2.8.1 (PyTorch 2.15.0) on Pendulum-v1 after learning from stored steps, its standard error over 100 episodes, and
the seconds of learning: the last line.

    python d3rlpy_return.py ALGORITHM STEPS FILE.npz

FILE.npz has the columns of one actor's single steps in the order in which they were taken, as `troupe replay dump` writes them. Sizes
are those of examples/offline_pendulum.c: two layers of 64, a rate of 1e-3, batches of 256; all else is d3rlpy's default."""
import sys
import time

import gymnasium
import numpy as np
import torch
from d3rlpy import seed
from d3rlpy.algos import BCConfig, CQLConfig, CRRConfig, IQLConfig, TD3PlusBCConfig
from d3rlpy.constants import ActionSpace
from d3rlpy.dataset import MDPDataset
from d3rlpy.logging import NoopAdapterFactory
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy.preprocessing import MinMaxActionScaler

RATE, EPISODES = 1e-3, 100
HIDDEN = VectorEncoderFactory([64, 64])
CRITICS = dict(actor_learning_rate=RATE, critic_learning_rate=RATE, actor_encoder_factory=HIDDEN, critic_encoder_factory=HIDDEN)
CONFIGS = {
    "bc": (BCConfig, dict(learning_rate=RATE, encoder_factory=HIDDEN)),
    "td3_bc": (TD3PlusBCConfig, CRITICS),
    "cql": (CQLConfig, CRITICS),
    "iql": (IQLConfig, dict(CRITICS, value_encoder_factory=HIDDEN)),
    "crr": (CRRConfig, CRITICS),
}


def read_steps(path):
    """A step whose next observation is not that of the step behind it is the last of its episode, which was cut there."""
    columns = np.load(path)
    observations, follow = columns["observation"], columns["next_observation"]
    cut = np.ones(len(observations), np.float32)
    cut[:-1] = (follow[:-1] != observations[1:]).any(axis=1)
    return MDPDataset(observations, columns["action"], columns["reward"].reshape(-1), terminals=np.zeros_like(cut), timeouts=cut,
                      action_space=ActionSpace.CONTINUOUS)


def play(algorithm, env, number):
    observation, _ = env.reset(seed=number)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(algorithm.predict(observation[None])[0])
        total, over = total + reward, terminated or truncated
    return total


def main(name, steps, path):
    torch.set_num_threads(1)
    seed(1)
    config, settings = CONFIGS[name]
    algorithm = config(batch_size=256, action_scaler=MinMaxActionScaler(minimum=-2.0, maximum=2.0), **settings).create(device="cpu:0")
    started = time.perf_counter()
    algorithm.fit(read_steps(path), n_steps=steps, n_steps_per_epoch=steps, logger_adapter=NoopAdapterFactory(), show_progress=False)
    seconds = time.perf_counter() - started
    env = gymnasium.make("Pendulum-v1")
    returns = [play(algorithm, env, number) for number in range(EPISODES)]
    print(np.mean(returns), np.std(returns, ddof=1) / EPISODES ** 0.5, seconds)


main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
