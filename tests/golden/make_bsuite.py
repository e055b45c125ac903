"""Writes bsuite.h: what bsuite's own environments do from given states, and its own scores.

    python make_bsuite.py > bsuite.h     (made with bsuite 0.3.6, NumPy 1.26.4, pandas 1.5.3)

Every setting of every experiment plays some episodes by rules that a test in C knows, too; what was
seen, paid and counted is one hash. What is drawn at random is left out of it, and where a start is,
it is set.
"""
import contextlib
import io
import math
import struct
import warnings

import numpy as np
import pandas as pd

import bsuite
from bsuite import sweep
from bsuite.environments import cartpole as cartpole_module
from bsuite.environments import mountain_car as mountain_car_module
from bsuite.experiments import summary_analysis
from bsuite.experiments.cartpole_swingup import cartpole_swingup as swingup_module
from bsuite.utils import wrappers

warnings.simplefilter("ignore", FutureWarning)  # of pandas, that bsuite needs an old one
MASK = (1 << 64) - 1


class Libm:
    """NumPy, but with libm's sine and cosine, which NumPy's are on most processors."""

    def __getattr__(self, name):
        return getattr(np, name)

    def sin(self, x):
        return np.float64(math.sin(x))

    def cos(self, x):
        return np.float64(math.cos(x))


for module in (cartpole_module, mountain_car_module, swingup_module):
    module.np = Libm()


class Hash:
    """FNV-1a of 64 bits."""

    def __init__(self):
        self.value = 0xcbf29ce484222325

    def add(self, data):
        for byte in data:
            self.value = (self.value ^ byte) * 0x100000001b3 & MASK


def load(experiment, setting):
    with contextlib.redirect_stdout(io.StringIO()):
        return bsuite.load_from_id(f"{experiment}/{setting}")


# ---- starts: what a reset would draw; the test sets the same -----------------------------------

STARTS = [  # of poles: x, x_dot, theta, theta_dot
    (0.01, -0.02, 0.03, -0.04), (-0.5, 0.7, 0.11, -0.2), (0.3, 0.1, -0.0625, 0.05),
    (2.9, 1.5, 0.2, 0.4)]
POSITIONS = [-0.51234, -0.45, -0.59, -0.55]


def start(experiment, raw, episode):
    if "cartpole" in experiment:
        x, x_dot, theta, theta_dot = STARTS[episode]
        if "swingup" in experiment:
            theta += math.pi
        raw._state = cartpole_module.CartpoleState(x, x_dot, theta, theta_dot, 0.)
    elif "mountain_car" in experiment:
        raw._position = POSITIONS[episode]
    elif "catch" in experiment:
        raw._ball_x = (3 * episode + 1) % 5
    elif "memory" in experiment:
        raw._context = np.array([(i * i + episode + i // 3) % 2 for i in range(raw._num_bits)])
        raw._query = (7 * episode + 2) % raw._num_bits
    elif "umbrella" in experiment:
        raw._need_umbrella, raw._has_umbrella = episode % 2, episode // 2


def state(experiment, raw):
    if "cartpole" in experiment:
        return struct.pack("5d", *[float(x) for x in raw._state])
    if "mountain_car" in experiment:
        return struct.pack("2d", float(raw._position), float(raw._velocity))
    return b""


def act(experiment, k, episode, setting, observation, raw):
    """Of step k: one action held for a while, or what helps."""
    count = raw.action_spec().num_values
    if episode % 2 == 1:
        flat = [float(x) for x in np.ravel(observation)]
        if "cartpole" in experiment:
            return 2 if flat[2] + 0.3 * flat[4] > 0 else 0
        if "mountain_car" in experiment:
            return 2 if flat[1] >= 0 else 0
        if "deep_sea" in experiment:
            return int(raw._action_mapping[raw._row, raw._column])
    held = k // (1 + episode)
    return (held * held * 7 + held * 2 + k // 8 + setting + episode) % count


def play(experiment, setting):
    env = load(experiment, setting)
    raw = env.raw_env if hasattr(env, "raw_env") else env
    noisy = experiment.endswith("_noise")
    seen = 3 if "umbrella" in experiment else None
    code, steps, total_return = Hash(), 0, 0.0
    for episode in range(4):
        timestep = env.reset()
        start(experiment, raw, episode)
        observation = raw.observation if "cartpole" in experiment else \
            raw._observation() if "catch" in experiment else raw._get_observation()
        k = 0
        while not timestep.last():
            action = act(experiment, k, episode, setting, observation, raw)
            timestep = env.step(action)
            observation = timestep.observation
            assert observation.dtype == np.float32
            assert timestep.discount == (0.0 if timestep.last() else 1.0)
            total_return += timestep.reward
            code.add(np.ravel(observation)[:seen].tobytes())
            if not noisy and ("umbrella" not in experiment or timestep.last()):
                code.add(np.float32(timestep.reward).tobytes())
            code.add(bytes([timestep.last()]))
            if not timestep.last():
                code.add(state(experiment, raw))
            k += 1
        steps += k
    if experiment == "deep_sea_stochastic":  # the wind is in all of it
        code.value, raw._total_bad_episodes = 0, 0
    info = env.bsuite_info()
    total, best = counted(experiment)
    total = info[total] if total in info else total_return
    best = info[best] if best in info else 0
    shape = env.observation_spec().shape
    return (setting, env.action_spec().num_values, *shape, env.bsuite_num_episodes, steps,
            code.value, float(total), float(best))


def counted(experiment):
    if "cartpole" in experiment:
        return "raw_return", "best_episode"
    if "mountain_car" in experiment:
        return "raw_return", ""
    if "deep_sea" in experiment:
        return "total_bad_episodes", ""
    if "memory" in experiment:
        return "total_perfect", ""
    return "total_regret", ""


# ---- when deep_sea counts as solved -------------------------------------------------------------

class Rows:
    def __init__(self):
        self.rows = []

    def write(self, data):
        self.rows.append(dict(data))


def solved(experiment, setting, bad_first, bad_every):
    """The episode that bsuite finds in its log when the first episodes and every n-th are bad."""
    raw, rows = load(experiment, setting), Rows()
    env = wrappers.Logging(raw, rows)
    for episode in range(raw.bsuite_num_episodes):
        timestep = env.reset()
        bad = episode < bad_first or (bad_every and episode % bad_every == 0)
        while not timestep.last():
            right = int(raw._action_mapping[raw._row, raw._column])
            timestep = env.step(1 - right if bad else right)
    frame = pd.DataFrame(rows.rows)
    for key, value in sweep.SETTINGS[f"{experiment}/{setting}"].items():
        frame[key] = value
    module = getattr(summary_analysis, experiment + "_analysis")
    found = module.find_solution(frame)
    episode = int(found.episode[0]) if found.solved[0] else 0
    return setting, bad_first, bad_every, episode, float(module.score(frame))


# ---- scores --------------------------------------------------------------------------------------

LOGGED = [e for e in range(1, 10001) if wrappers._logarithmic_logging(e)]


def share(setting, case, what):
    """A number in [0, 1) that the test in C computes, too."""
    return (setting * 7919 + case * 104729 + what * 1299709 + 13) % 1009 / 1009


def frames(experiment, case, low, high, best_low, best_high, partial):
    count = len([i for i in sweep.SWEEP if i.split("/")[0] == experiment])
    limit = summary_analysis.BSUITE_INFO[experiment].episode
    rows = []
    for setting in range(count):
        episodes = limit // 2 if partial and setting % 3 == 0 else limit
        rate = low + share(setting, case, 0) * (high - low)
        best = best_low + share(setting, case, 1) * (best_high - best_low)
        total, best = float(round(rate * episodes)), float(round(best))
        row = {"bsuite_id": f"{experiment}/{setting}", "episode": episodes, "best_episode": best}
        row |= sweep.SETTINGS[row["bsuite_id"]]
        if "deep_sea" in experiment:
            at = LOGGED[int(share(setting, case, 2) * len(LOGGED))]
            for e in LOGGED:
                if e <= episodes:
                    bad = 0 if e >= at and share(setting, case, 3) > 0.2 else e
                    rows.append(row | {"episode": e, "total_bad_episodes": bad})
            continue
        rows.append(row | {key: total for key in (
            "total_regret", "raw_return", "total_return", "total_perfect")})
    return pd.DataFrame(rows)


SCORES = {  # of a total per episode: low, high; of the best: low, high
    "bandit": [(0.0, 0.3, 0, 0), (0.3, 0.9, 0, 0)],
    "catch": [(0.0, 0.9, 0, 0), (1.0, 2.0, 0, 0)],
    "cartpole": [(0, 600, 100, 800), (700, 1001, 800, 1000)],
    "cartpole_swingup": [(-100, 300, 0, 300), (300, 900, 50, 700)],
    "mountain_car": [(-1000, -100, 0, 0), (-300, -50, 0, 0)],
    "deep_sea": [(0, 0, 0, 0), (0, 0, 0, 0)],
    "deep_sea_stochastic": [(0, 0, 0, 0), (0, 0, 0, 0)],
    "discounting_chain": [(1.0, 1.1, 0, 0), (0.9, 1.1, 0, 0)],
    "memory_len": [(0.5, 1, 0, 0), (0.6, 0.7, 0, 0)],
    "memory_size": [(0.5, 1, 0, 0), (0.6, 0.7, 0, 0)],
    "umbrella_length": [(0, 1, 0, 0), (0.4, 0.6, 0, 0)],
    "umbrella_distract": [(0, 1, 0, 0), (0.4, 0.6, 0, 0)],
}


def score_rows(experiment):
    base = experiment.replace("_noise", "").replace("_scale", "")
    for case, (low, high, best_low, best_high) in enumerate(SCORES[base] + SCORES[base][:1]):
        partial = case == 2
        frame = frames(experiment, case, low, high, best_low, best_high, partial)
        score = summary_analysis.BSUITE_INFO[experiment].score(frame)
        yield case, low, high, best_low, best_high, partial, float(score)


# ---- the header ------------------------------------------------------------------------------------

def number(x):
    """So that C reads the same bits."""
    return str(int(x)) if x == int(x) else repr(float(x))


def main():
    names = sorted({i.split("/")[0] for i in sweep.SWEEP if "mnist" not in i})
    print("/* Made by make_bsuite.py. */")
    print("/* clang-format off */")
    print("struct bsuite_episodes {\n    const char *experiment;\n    uint32_t setting;\n"
          "    int32_t actions, shape[2];\n    int64_t episodes, steps;\n    uint64_t hash;\n"
          "    double total, best;\n};")
    print("static const struct bsuite_episodes golden_episodes[] = {")
    for name in names:
        for i in sweep.SWEEP:
            if i.split("/")[0] == name:
                setting, actions, h, w, episodes, steps, code, *rest = play(
                    name, int(i.split("/")[1]))
                print(f'    {{"{name}", {setting}, {actions}, {{{h}, {w}}}, {episodes}, {steps}, '
                      f'0x{code:016x}, {", ".join(number(x) for x in rest)}}},')
    print("};")
    print("struct bsuite_solved {\n    const char *experiment;\n    uint32_t setting;\n"
          "    int64_t bad_first, bad_every;\n    double solved, score;\n};")
    print("static const struct bsuite_solved golden_solved[] = {")
    for name in ("deep_sea", "deep_sea_stochastic"):
        for case in ((0, 0, 0), (0, 7, 0), (0, 12, 0), (0, 15, 0), (0, 21, 0), (0, 95, 0),
                     (0, 1000, 0), (0, 1130, 0), (0, 1400, 0), (0, 9100, 0), (0, 9999, 0),
                     (0, 0, 2), (0, 900, 1), (1, 1400, 3), (2, 7000, 4)):
            print(f'    {{"{name}", {", ".join(number(x) for x in solved(name, *case))}}},')
    print("};")
    print("struct bsuite_scores {\n    const char *experiment;\n    uint32_t which;\n"
          "    double low, high, best_low, best_high;\n    bool partial;\n    double score;\n};")
    print("static const struct bsuite_scores golden_scores[] = {")
    for name in names:
        for row in score_rows(name):
            print(f'    {{"{name}", {", ".join(number(x) for x in row)}}},')
    print("};")


main()
