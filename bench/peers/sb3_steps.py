"""Environment steps/s of Stable-Baselines3 2.9.2 or sb3-contrib 2.9.2 (Gymnasium 1.4.0, PyTorch 2.15.0) in CASE while it learns, and
the steps that it learned in for its published result: steps that only fill the replay buffer are in neither. The settings are those
of rl-baselines3-zoo (MIT), hyperparams/*.yml and benchmark.md, read 2026-11. The faster of one thread and two is taken: beside other
work two may be far slower."""
import sys
import time

import gymnasium
import torch
from sb3_contrib import QRDQN
from stable_baselines3 import DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

STEPS, SECONDS = 10_000, 60  # at most, each time

CASES = {  # case: algorithm, environment, copies, published steps, settings
    "ppo_cartpole": (PPO, "CartPole-v1", 8, 100_000, dict(
        n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20, ent_coef=0.0,
        learning_rate=lambda left: left * 1e-3, clip_range=lambda left: left * 0.2)),
    "dqn_cartpole": (DQN, "CartPole-v1", 1, 50_000, dict(
        learning_rate=2.3e-3, batch_size=64, buffer_size=100_000, learning_starts=1000, gamma=0.99, target_update_interval=10,
        train_freq=256, gradient_steps=128, exploration_fraction=0.16, exploration_final_eps=0.04,
        policy_kwargs=dict(net_arch=[256, 256]))),
    "dqn_acrobot": (DQN, "Acrobot-v1", 1, 100_000, dict(
        learning_rate=6.3e-4, batch_size=128, buffer_size=50_000, learning_starts=0, gamma=0.99, target_update_interval=250,
        train_freq=4, gradient_steps=-1, exploration_fraction=0.12, exploration_final_eps=0.1,
        policy_kwargs=dict(net_arch=[256, 256]))),
    "qrdqn_mountaincar": (QRDQN, "MountainCar-v0", 1, 120_000, dict(
        learning_rate=4e-3, batch_size=128, buffer_size=10_000, learning_starts=1000, gamma=0.98, target_update_interval=600,
        train_freq=16, gradient_steps=8, exploration_fraction=0.2, exploration_final_eps=0.07,
        policy_kwargs=dict(net_arch=[256, 256], n_quantiles=25))),
    "sac_pendulum": (SAC, "Pendulum-v1", 1, 20_000, dict(learning_rate=1e-3)),
    "td3_pendulum": (TD3, "Pendulum-v1", 1, 20_000, dict(
        gamma=0.98, buffer_size=200_000, learning_starts=10_000, train_freq=1, gradient_steps=1, learning_rate=1e-3,
        policy_kwargs=dict(net_arch=[400, 300]))),
    "ddpg_pendulum": (DDPG, "Pendulum-v1", 1, 20_000, dict(
        gamma=0.98, buffer_size=200_000, learning_starts=10_000, train_freq=1, gradient_steps=1, learning_rate=1e-3,
        policy_kwargs=dict(net_arch=[400, 300]))),
}


class Clock(BaseCallback):
    """Seconds and steps since the buffer was full enough to learn from."""

    def __init__(self, begin):
        super().__init__()
        self.begin, self.start = begin, None

    def _on_step(self):
        if self.start is None and self.num_timesteps >= self.begin:
            self.start, self.first = time.perf_counter(), self.num_timesteps
        return self.start is None or time.perf_counter() - self.start < SECONDS

    def rate(self):
        return (self.num_timesteps - self.first) / (time.perf_counter() - self.start)


def rate_of(algorithm, name, copies, settings, threads):
    torch.set_num_threads(threads)
    env = make_vec_env(name, copies) if copies > 1 else gymnasium.make(name)
    model = algorithm("MlpPolicy", env, seed=1, device="cpu", **settings)
    clock = Clock(settings.get("learning_starts", 100))  # SAC's own
    model.learn(STEPS, callback=clock)
    return clock.rate()


def main(case):
    algorithm, name, copies, published, settings = CASES[case]
    if "learning_starts" in settings:
        published -= settings["learning_starts"]
        settings = dict(settings, learning_starts=min(settings["learning_starts"], 1000))
    print(max(rate_of(algorithm, name, copies, settings, threads) for threads in (1, 2)), published)


main(sys.argv[1])
