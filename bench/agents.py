#!/usr/bin/env python3
"""Runs the agents' examples as a user does, and prints how long they took to their targets.

    bench/agents.py [--bin DIR] [--peer DIR] [--keep DIR] [CASE...]

A case is a program, run to its own end with seeds 1 to 5 (IMPALA's 1 to 15: their steps scatter by more than what is told apart),
a process per node, in a fresh run directory each: its evaluator has to see the target reached, confirm it on fresh episodes, save those parameters and end the program with status 0, and they have to be
made within so many environment steps and seconds. Seconds are those of the whole program, from its start until it is gone. A peer's are the steps of
its published result at the steps/s that it has here (bench/peers/sb3_steps.py). Rows are those of bench/rows.awk. Cases that are compared
with one another take turns, seed by seed: what else keeps the machine busy does so for all of them.

Cases of offline agents learn from the same store, which is made first. They say the mean return over fresh episodes of what a seed ends
with, over seeds, and d3rlpy's (bench/peers/d3rlpy_return.py) after as many learner steps as the median seed, of the same steps.

--keep DIR has the run directories as DIR/CASE/SEED, for bench/curves.py; else they go."""
import argparse
import csv
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import monotonic


@dataclass(frozen=True)
class Case:
    name: str
    words: str  # the program and what stands behind "--"
    target: str  # for readers: the program knows it
    steps: int  # of environments: whoever needs more has not reached it
    seconds: int  # of one seed
    peer: str = ""  # of sb3_steps.py; offline: of d3rlpy_return.py
    alike: str = ""  # options with which a step is as much work as there, and an end
    bf16: bool = False  # the same in bfloat16, too
    beside: str = ""  # the case that does the same with one learner, or one actor
    sets: str = ""  # options of every run
    learners: int = 1  # together: what they send is told
    seeds: int = 5
    learned: int = 0  # steps of environments in a learner's step, if each is learned from once; 0: as actors tell them, every 100 ms
    offline: bool = False


IMPALA = {"seeds": 15, "learned": 8 * 32}  # its options unroll and batch_size

CASES = [
    Case("ppo_cartpole_fused", "ppo_cartpole fused", "CartPole-v1 to 475", 500_000, 60, "ppo_cartpole",
         "agent.epochs=20 agent.minibatches=1 learner.max_steps=400"),
    Case("ppo_cartpole", "ppo_cartpole", "CartPole-v1 to 475", 500_000, 60, "ppo_cartpole",
         "agent.epochs=20 agent.minibatches=1 actor.max_steps=100000"),
    Case("dqn_cartpole", "dqn_cartpole", "CartPole-v1 to 475", 100_000, 120, "dqn_cartpole",
         "agent.hidden=256,256 agent.n_step=1 agent.priority_exponent=0 learner.batch_size=64 agent.samples_per_insert=32 "
         "agent.target_period=10 actor.max_steps=50000"),
    Case("dqn_learners", "dqn_learners", "CartPole-v1 to 475", 100_000, 120, learners=2, beside="dqn_cartpole"),
    Case("dqn_sharded", "dqn_learners", "CartPole-v1 to 475", 100_000, 120, learners=2, sets="learner.mode=sharded"),
    Case("dqn_local_sgd", "dqn_learners", "CartPole-v1 to 475", 100_000, 120, learners=2, sets="learner.mode=local_sgd"),
    Case("dqn_gossip", "dqn_learners", "CartPole-v1 to 475", 100_000, 120, learners=2, sets="learner.mode=gossip"),
    Case("dqn_hogwild", "dqn_learners", "CartPole-v1 to 475", 100_000, 120, learners=2, sets="learner.mode=hogwild"),
    Case("dqn_dogwild", "dqn_learners", "CartPole-v1 to 475", 100_000, 120, learners=2, sets="learner.mode=dogwild"),
    Case("dqn_gaia", "dqn_learners", "CartPole-v1 to 475", 100_000, 120, learners=2, sets="learner.mode=gaia learner.sites=a,b"),
    Case("ps_sync", "ps", "CartPole-v1 to 475", 100_000, 120, learners=2, sets="server.rule=sync"),
    Case("ps_async", "ps", "CartPole-v1 to 475", 100_000, 120, learners=2, sets="server.rule=async"),
    Case("ps_ssp", "ps", "CartPole-v1 to 475", 100_000, 120, learners=2, sets="server.rule=ssp"),
    Case("ps_softsync", "ps", "CartPole-v1 to 475", 100_000, 120, learners=2, sets="server.rule=softsync"),
    Case("ps_dynsgd", "ps", "CartPole-v1 to 475", 100_000, 120, learners=2,
         sets="server.rule=dynsgd agent.optimizer=sgd agent.learning_rate=0.05"),
    Case("a3c", "a3c", "CartPole-v1 to 475", 1_000_000, 60),
    Case("dqn_acrobot", "dqn_acrobot", "Acrobot-v1 to -80", 100_000, 120, "dqn_acrobot",
         "agent.hidden=256,256 agent.n_step=1 agent.priority_exponent=0 agent.dueling=false agent.batch_size=128 "
         "agent.samples_per_insert=128 agent.min_replay_size=100 actor.max_steps=10000"),
    Case("rainbow_acrobot", "dqn_acrobot rainbow", "Acrobot-v1 to -80", 100_000, 240),
    Case("qrdqn_mountaincar", "qrdqn_mountaincar", "MountainCar-v0 to -110", 120_000, 120, "qrdqn_mountaincar",
         "agent.hidden=256,256 agent.n_step=1 agent.priority_exponent=0 agent.batch_size=128 "
         "agent.samples_per_insert=64 agent.min_replay_size=100 actor.max_steps=10000"),
    Case("impala_cartpole_1", "impala_cartpole 1", "CartPole-v1 to 475", 5_000_000, 60, **IMPALA),
    Case("impala_cartpole_2", "impala_cartpole 2", "CartPole-v1 to 475", 5_000_000, 60, beside="impala_cartpole_1", **IMPALA),
    Case("impala_cartpole_4", "impala_cartpole 4", "CartPole-v1 to 475", 5_000_000, 60, beside="impala_cartpole_1", **IMPALA),
    Case("impala_catch_1", "impala_cartpole Catch 1", "Catch to 0.95", 5_000_000, 60, **IMPALA),
    Case("impala_catch_2", "impala_cartpole Catch 2", "Catch to 0.95", 5_000_000, 60, beside="impala_catch_1", **IMPALA),
    Case("impala_catch_4", "impala_cartpole Catch 4", "Catch to 0.95", 5_000_000, 60, beside="impala_catch_1", **IMPALA),
    Case("r2d2_memory", "r2d2_memory", "Corridor to 0.9", 1_000_000, 60),
    Case("sac_pendulum", "sac_pendulum", "Pendulum-v1 to -170", 20_000, 120, "sac_pendulum",
         "agent.hidden=256,256 agent.batch_size=256 agent.samples_per_insert=256 agent.min_replay_size=100 learner.threads=2 actor.max_steps=10000", bf16=True),
    Case("td3_pendulum", "td3_pendulum", "Pendulum-v1 to -170", 20_000, 120, "td3_pendulum",
         "agent.hidden=400,300 agent.batch_size=256 agent.samples_per_insert=256 agent.min_replay_size=100 learner.threads=2 actor.max_steps=10000", bf16=True),
    Case("mpo_pendulum", "mpo_pendulum", "Pendulum-v1 to -200", 30_000, 120),
    Case("d4pg_pendulum", "d4pg_pendulum", "Pendulum-v1 to -200", 30_000, 120, "ddpg_pendulum"),
    Case("offline_bc", "offline_pendulum bc", "20000 learner steps", 0, 120, "bc",
         sets="learner.max_steps=20000 evaluator.target_return=0", offline=True),
    Case("offline_td3_bc", "offline_pendulum td3_bc", "Pendulum-v1 to -200", 0, 120, "td3_bc", offline=True),
    Case("offline_cql", "offline_pendulum cql", "Pendulum-v1 to -200", 0, 120, "cql", offline=True),
    Case("offline_iql", "offline_pendulum iql", "Pendulum-v1 to -200", 0, 180, "iql", offline=True),
    Case("offline_crr", "offline_pendulum crr", "Pendulum-v1 to -200", 0, 120, "crr", offline=True),
]


@dataclass
class Run:
    reached: bool
    seconds: float
    steps: float  # to the target; offline: of the learner
    rate: float  # all steps over all seconds
    mean: float  # return of the last evaluation
    sent: float | None  # bytes of a learner in a step; None: nothing says so


running = None  # the process of a program or peer


def end(_signal, _frame):
    """As scripts/bench does: what it started ends with it."""
    if running:
        running.terminate()
        running.wait()
    sys.exit(143)


def call(command, seconds, **how):
    """Exit status and what was printed, if it is captured; a program that does not end is killed."""
    global running
    with subprocess.Popen(command, text=True, **how) as running:
        try:
            out, _ = running.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            running.terminate()
            out, _ = running.communicate()
    return running.returncode, out


def rows_of(path):
    if not path.exists():
        return []
    with open(path, newline="") as rows:
        return list(csv.DictReader(rows))


def last_evaluation(run_dir, case):
    """Its mean return, and the steps that its parameters are made of: of the actors, or of the learner."""
    evaluations = rows_of(run_dir / "evaluator.csv")
    if not evaluations:
        return 0.0, 0.0
    mean, learner_steps, actor_steps = (float(evaluations[-1][column]) for column in ("mean", "learner_steps", "actor_steps"))
    return mean, learner_steps if case.offline else learner_steps * case.learned or actor_steps


def last_said(run_dir, metric):
    """Of each node."""
    return {said["node"]: float(said["last"]) for said in rows_of(run_dir / "metrics.csv") if said["metric"] == metric}.values()


def steps_done(run_dir):
    """By all actors together, as they said themselves and the learner; whoever is stopped at once says less."""
    return max([sum(last_said(run_dir, "actor_steps")), *last_said(run_dir, "total_actor_steps")])


SENT = re.compile(rb"(?:learner leaves group=.* sent_bytes|(?:gaia sent|streams ended) .* bytes)=(\d+)")


def bytes_sent(run_dir, learners):
    """Of a learner in a step: its gradients to servers and their values to it, as servers count them; else what learners say when they leave
    that they sent. Steps are those of all together, but servers' are one learner's each."""
    steps, served = max(last_said(run_dir, "learner_steps"), default=0), [*last_said(run_dir, "push_bytes"), *last_said(run_dir, "pull_bytes")]
    sent = [int(said) for log in (run_dir / "logs").glob("learner-*.log") for said in SENT.findall(log.read_bytes())]
    if not steps or not (served or sent):
        return None
    return sum(served) / steps if served else sum(sent) / steps / learners


def run_seed(case, seed, options, run_dir):
    program, *words = case.words.split()
    command = [options.bin / program, f"--seed={seed}", f"--run-dir={run_dir}", f"--max-seconds={case.seconds}",
               *(f"--set={word}" for word in case.sets.split()), "--", *words]
    if case.offline:
        command.append(options.store.path)
    start = monotonic()
    with open(run_dir.with_suffix(".log"), "w") as log:
        status, _ = call(command, case.seconds + 60, stdout=log, stderr=log)
    seconds, (mean, steps) = monotonic() - start, last_evaluation(run_dir, case)
    # What reached the target, nobody else, saves the parameters there.
    reached = status == 0 and ((case.offline and bool(case.sets)) or (run_dir / "params.safetensors").exists()) and (case.offline or steps <= case.steps)
    print(f"bench: {case.name} seed {seed}: {'reached' if reached else 'NOT reached'}, {seconds:.1f} s, {steps:.0f} steps, {mean:.1f}",
          file=sys.stderr)
    return Run(reached, seconds, steps, max(steps, steps_done(run_dir)) / seconds, mean, bytes_sent(run_dir, case.learners))


def rate_alike(case, options, run_dir, precision="f32"):
    """Steps/s with the peer's network, batch and updates, from the start of the program to its end; 0: it failed."""
    program, *words = case.words.split()
    sets = case.alike.split() + ["evaluator.target_return=0", "evaluator.episodes=1", f"agent.precision={precision}"]
    command = [options.bin / program, "--seed=1", f"--run-dir={run_dir}", *(f"--set={word}" for word in sets), "--", *words]
    shutil.rmtree(run_dir, ignore_errors=True)
    start = monotonic()
    with open(run_dir.with_suffix(".log"), "w") as log:
        status, _ = call(command, 300, stdout=log, stderr=log)
    rate = steps_done(run_dir) / (monotonic() - start)
    shutil.rmtree(run_dir, ignore_errors=True)
    return rate if status == 0 else 0.0


def peer_of(case, options):
    """Steps/s and the steps of the published result; zeros without a peer."""
    python = options.peer / "sb3" / "bin" / "python" if options.peer and case.peer else None
    if not python or not python.exists():
        return 0.0, 0.0
    status, out = call([python, "bench/peers/sb3_steps.py", case.peer], 600, stdout=subprocess.PIPE)
    if status != 0:
        print(f"bench: the peer of {case.name} failed", file=sys.stderr)
        return 0.0, 0.0
    rate, steps = map(float, out.split())
    return rate, steps


class Store:
    """What SAC stored for offline cases, made when the first of them is run."""

    def __init__(self, options, base):
        self.options, self.base, self.mean = options, base.resolve(), None
        self.path, self.file = self.base / "runs/offline_pendulum-data/replay", self.base / "steps.npz"

    def make(self):
        if self.mean is not None:
            return
        self.base.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.path.parent, ignore_errors=True)
        sets = ["--set=learner.max_steps=1", "--set=evaluator.target_return=0"]
        binaries = self.options.bin.resolve()
        with open(self.base / "store.log", "w") as log:
            made, _ = call([binaries / "offline_pendulum", f"--run-dir={self.base / 'store'}", *sets, "--", "bc"], 120, cwd=self.base,
                           stdout=log, stderr=log)
            dumped, _ = call([binaries / "troupe", "replay", "dump", self.path, "transitions", self.file], 60, stdout=log, stderr=log)
        if made or dumped:
            sys.exit(f"bench: no store, see {log.name}")
        said = [float(row["last"]) for row in rows_of(self.path.parent / "metrics.csv") if row["metric"] == "return"]
        self.mean = said[-1]  # of all its episodes, which are fewer than an actor's mean has
        print_row("offline: mean return of the stored episodes", self.mean, "return")


class Others:
    """How many cores work that is not ours kept busy since this was made."""

    def __init__(self):
        self.start, self.busy = monotonic(), self.busy_seconds()

    @staticmethod
    def busy_seconds():
        """Of all cores, without what our programs used that have ended."""
        with open("/proc/stat") as stat:
            user, nice, system, _, _, irq, softirq, steal = map(int, stat.readline().split()[1:9])
        ours = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK") - ours.ru_utime - ours.ru_stime

    def cores(self):
        return max(0.0, (self.busy_seconds() - self.busy) / (monotonic() - self.start))


def print_row(case, measured, unit, ceiling=0.0, ceiling_is="", peer=0.0, peer_is=""):
    print(case, "-" if measured is None else f"{measured:.6g}", unit, f"{ceiling:g}", ceiling_is, f"{peer:.6g}", peer_is, sep="\t", flush=True)


def row(case, what, measured, unit, ceiling=0.0, ceiling_is="", peer=0.0):
    print_row(f"{case.name}: {what}", measured, unit, ceiling, ceiling_is, peer, f"SB3, {case.peer}")


def offline_rows(case, options, reached):
    """How good it is at the end, and how good d3rlpy after as many learner steps."""
    steps = statistics.median(run.steps for run in reached)
    row(case, "learner steps, median", steps, "steps")
    row(case, "time, median", statistics.median(run.seconds for run in reached), "s")
    row(case, "mean return at the end, mean over seeds", statistics.fmean(run.mean for run in reached), "return")
    if len(reached) > 1:
        row(case, "standard error of that", statistics.stdev(run.mean for run in reached) / len(reached) ** 0.5, "return")
    python = options.peer / "d3rlpy" / "bin" / "python" if options.peer else None
    if not python or not python.exists():
        return
    others = Others()
    status, out = call([python, "bench/peers/d3rlpy_return.py", case.peer, f"{steps:.0f}", options.store.file], 1800,
                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if status != 0:
        print(f"bench: the peer of {case.name} failed", file=sys.stderr)
        return
    mean, error, seconds = map(float, out.splitlines()[-1].split())
    row(case, "d3rlpy's mean return after as many steps, one seed", mean, "return")
    row(case, "standard error of that over its 100 episodes", error, "return")
    row(case, "d3rlpy's time for them", seconds, "s")
    row(case, "cores busy with other work while it ran", others.cores(), "cores", os.cpu_count(), "all")


medians = {}  # steps and seconds to the targets, by case


def run_cases(cases, options, base):
    """Those that are compared with one another, seed by seed in turns."""
    if any(case.offline for case in cases):
        options.store.make()
    runs, others = {case.name: [] for case in cases}, Others()
    for seed in range(1, max(case.seeds for case in cases) + 1):
        for case in (case for case in cases if seed <= case.seeds):
            run_dir = base / case.name / str(seed)
            run_dir.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(run_dir, ignore_errors=True)
            runs[case.name].append(run_seed(case, seed, options, run_dir))
            if not options.keep:
                shutil.rmtree(run_dir, ignore_errors=True)
    busy = others.cores()
    for case in sorted(cases, key=lambda case: bool(case.beside)):
        report(case, runs[case.name], busy, options, base)


def report(case, runs, busy, options, base):
    reached = [run for run in runs if run.reached]
    row(case, f"seeds that reach {case.target}", len(reached), "seeds", len(runs), "all")
    row(case, "cores busy with other work meanwhile", busy, "cores", os.cpu_count(), "all")
    if not reached:
        return
    if case.offline:
        offline_rows(case, options, reached)
        return
    others = Others()
    rate, published = peer_of(case, options)
    if rate:
        row(case, "the same while the peer ran", others.cores(), "cores", os.cpu_count(), "all")
    # Of those that reach it.
    steps, seconds = statistics.median(run.steps for run in reached), statistics.median(run.seconds for run in reached)
    medians[case.name] = steps, seconds
    one_steps, one_seconds = medians.get(case.beside, (0.0, 0.0))  # known where that case was run, too
    one_is = case.beside if one_steps else ""
    row(case, "steps to it, median", steps, "steps", one_steps, one_is)
    row(case, "time to it, median", seconds, "s", one_seconds, one_is, peer=published / rate if rate else 0.0)
    row(case, "speed, start and end included", statistics.median(run.rate for run in reached), "steps/s")
    if case.learners > 1:
        sent = [run.sent for run in reached if run.sent is not None]
        row(case, "bytes of a learner in a step, median", statistics.median(sent) if sent else None, "B")
    if rate and case.alike:
        row(case, "speed with the peer's sizes", rate_alike(case, options, base / case.name / "alike"), "steps/s", peer=rate)
    if rate and case.bf16:
        bf16_rate = rate_alike(case, options, base / case.name / "alike", "bf16")
        row(case, "speed with the peer's sizes, bfloat16", bf16_rate, "steps/s", peer=rate)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=Path("build/release"))
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args()
    known = {case.name: case for case in CASES}
    unknown = [name for name in options.cases if name not in known]
    if unknown:
        parser.error(f"no case {unknown[0]}; there are: {' '.join(known)}")
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    with tempfile.TemporaryDirectory(prefix="troupe-bench-") as scratch:
        base = options.keep or Path(scratch)
        options.store = Store(options, base)
        compared = {}
        for name in options.cases or known:
            compared.setdefault(known[name].beside or name, []).append(known[name])
        for cases in compared.values():
            run_cases(cases, options, base)


main()
