#!/usr/bin/env python3
"""Scores of Troupe's agents on bsuite's experiments, beside what bsuite's own DQN has there.

    bench/bsuite.py [--bin DIR] [RUN...]

A run is `examples/bsuite AGENT EXPERIMENT/SETTING 1` to its end, which may take two minutes; its score is exact, as bsuite computes it,
and the same with each run. Rows are those of bench/rows.awk. The baseline's figures are those of bench/peers/bsuite_dqn.py with seed 1, as
bench/results/2026-11-24-bsuite.txt lists them: the script needs hours for all. cartpole's settings are one task with one seed, as are theirs."""
import argparse
import re
import subprocess
import sys
from pathlib import Path

SOLVED, BASELINE = "solved", "bsuite's DQN"
SCORE, REGRET = "score", "regret"
# What a row has to have at least, or of a regret at most, where both scores are 0; None: it is told.
EXPERIMENTS = [
    ("bandit/0", SCORE, 0.9, SOLVED),
    ("catch/0", SCORE, 0.9, SOLVED),
    ("cartpole/0", SCORE, 0.8360, BASELINE),
    ("cartpole/10", SCORE, 0.8443, BASELINE),
    ("cartpole/19", SCORE, 0.8360, BASELINE),
    ("umbrella_length/0", SCORE, 1.0, BASELINE),
    ("umbrella_length/11", REGRET, 6828, BASELINE),
    ("umbrella_length/22", REGRET, 9798, BASELINE),
    ("deep_sea/0", SCORE, None, ""),
]
RUNS = {f"{agent} {experiment}": (f"{agent} {experiment} 1", *bar) for agent in ("dqn", "ppo") for experiment, *bar in EXPERIMENTS}
RUNS["r2d2 memory_len/13"] = "r2d2 memory_len/13 1 trace=21 period=21", SCORE, 1.0, "solved, of length 20"

FIGURES = {SCORE: re.compile(r", score ([\d.]+)$", re.MULTILINE), REGRET: re.compile(r", total_regret ([\d.e+]+)")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=Path("build/release"))
    parser.add_argument("runs", nargs="*", metavar="RUN", help="such as 'dqn catch/0'")
    options = parser.parse_args()
    unknown = [name for name in options.runs if name not in RUNS]
    if unknown:
        parser.error(f"no run {unknown[0]!r}; there are: {', '.join(RUNS)}")
    for name in options.runs or RUNS:
        words, unit, bar, bar_is = RUNS[name]
        done = subprocess.run([options.bin / "bsuite", *words.split()], stdout=subprocess.PIPE, text=True, timeout=900)
        figure = FIGURES[unit].search(done.stdout)
        if done.returncode or not figure:
            sys.exit(f"bench: bsuite {words} ended with {done.returncode}, and says {done.stdout!r}")
        print(f"bsuite, {name}", figure[1], unit, bar or 0, bar_is, 0, "", sep="\t", flush=True)


main()
