"""bsuite's own DQN (baselines/jax/dqn, its default agent) on settings of bsuite, and its scores.

    python bsuite_dqn.py SEED EXPERIMENT/SETTING...

with bsuite 0.3.6, jax 0.10.2, dm-haiku 0.0.17, optax 0.2.8, rlax 0.1.9; a row: what ran, seed,
episodes, steps, what was counted, the score by this run alone, seconds.
"""
import contextlib
import io
import sys
import time

import numpy as np
import pandas as pd

import bsuite
from bsuite import sweep
from bsuite.baselines import experiment
from bsuite.baselines.jax import dqn
from bsuite.experiments import summary_analysis
from bsuite.utils import wrappers


class Rows:
    def __init__(self):
        self.rows = []

    def write(self, data):
        self.rows.append(dict(data))


def run(bsuite_id, seed):
    rows = Rows()
    with contextlib.redirect_stdout(io.StringIO()):
        raw = bsuite.load_from_id(bsuite_id)
    env = wrappers.Logging(raw, rows)
    np.random.seed(seed)
    agent = dqn.default_agent(env.observation_spec(), env.action_spec(), seed=seed)
    started = time.time()
    experiment.run(agent, env, raw.bsuite_num_episodes)
    frame = pd.DataFrame(rows.rows)
    frame["bsuite_id"] = bsuite_id
    for key, value in sweep.SETTINGS[bsuite_id].items():
        frame[key] = value
    name = bsuite_id.split("/")[0]
    score = summary_analysis.BSUITE_INFO[name].score(frame)
    last = rows.rows[-1]
    print(bsuite_id, "seed", seed, "episodes", last["episode"], "steps", last["steps"],
          *[f"{key} {value:g}" for key, value in raw.bsuite_info().items()],
          f"score {score:.4f} seconds {time.time() - started:.0f}", flush=True)


for name in sys.argv[2:]:
    run(name, int(sys.argv[1]))
