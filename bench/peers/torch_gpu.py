"""Steps of learners' networks by PyTorch on a GPU, as bench_gpu has them: forward, backward of half the square of what
comes out, Adam. What to do comes line by line: CASE<tab>PRECISION is answered `ready HOW`, or why not; `run`, with the
microseconds a step.

    torch_gpu.py [cuda:0]

The peer is torch.compile with the whole step in one CUDA graph, which leaves the host a single launch. Where that does not go,
the next of WAYS is taken, in a process of its own, for a capture that failed may leave anything behind; HOW says which, and why.
"""
import gc
import os
import sys
import time

import torch
from torch import nn

RUN_S, WARM, AHEAD = 0.3, 11, 2
DEVICE = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cuda:0")
IS_GPU = DEVICE.type == "cuda"


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.a = nn.Conv2d(channels, channels, 3, padding=1)
        self.b = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(torch.relu(x))))


class Resnet(nn.Module):
    def __init__(self):
        super().__init__()
        layers, inputs = [], 4
        for filters in (16, 32, 32):
            layers += [nn.Conv2d(inputs, filters, 3, padding=1), nn.MaxPool2d(3, 2, 1), Block(filters), Block(filters)]
            inputs = filters
        self.body = nn.Sequential(*layers)
        self.linear = nn.Linear(32 * 11 * 11, 256)
        self.head = nn.Linear(256, 18)

    def forward(self, x):
        x = torch.relu(self.body(x.float() / 255)).flatten(1)
        return self.head(torch.relu(self.linear(x)))


class Nature(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
                                  nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(),
                                  nn.Linear(512, 18))

    def forward(self, x):
        return self.body(x.float() / 255)


def cell(gates, hidden, memory, keep, weights):
    """Of an LSTM; `gates` are its input's, `keep` is 0 where an episode begins."""
    gates = gates + (keep * hidden) @ weights
    i, f, g, o = gates.chunk(4, 1)
    memory = torch.sigmoid(f) * keep * memory + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(memory), memory


class Loop(nn.Module):
    """An LSTM with resets, which nn.LSTM has not: a loop over steps. Their cell is what is compiled."""

    def __init__(self, compiled):
        super().__init__()
        self.body, self.gates, self.head = nn.Linear(512, 512), nn.Linear(512, 4 * 512), nn.Linear(512, 18)
        self.weights = nn.Parameter(torch.randn(512, 4 * 512) / 512**0.5)
        self.cell = torch.compile(cell, dynamic=False) if compiled else cell
        self.register_buffer("keep", torch.ones(80, 64, 1), persistent=False)

    def forward(self, x):
        gates = self.gates(torch.relu(self.body(x)))
        weights = self.weights.to(gates.dtype)
        hidden = memory = torch.zeros(64, 512, device=x.device, dtype=gates.dtype)
        outputs = []
        for t in range(80):
            hidden, memory = self.cell(gates[t], hidden, memory, self.keep[t].to(gates.dtype), weights)
            outputs.append(hidden)
        return self.head(torch.stack(outputs))


class Library(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.core, self.head = nn.Linear(512, 512), nn.LSTM(512, 512), nn.Linear(512, 18)

    def forward(self, x):
        y, _ = self.core(torch.relu(self.body(x)))
        return self.head(y)


def mlp():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 18))


def images(rows):
    return lambda: torch.randint(0, 256, (rows, 4, 84, 84), dtype=torch.uint8, device=DEVICE).contiguous(
        memory_format=torch.channels_last)


def floats(*shape):
    return lambda: torch.randn(*shape, device=DEVICE)


CASES = {
    "MLP 2x256, B=256": (mlp, floats(256, 64)),
    "Nature CNN, B=256": (Nature, images(256)),
    "IMPALA ResNet, T=20 B=32": (Resnet, images(640)),
    "Nature CNN, B=2048": (Nature, images(2048)),
    "IMPALA ResNet, T=20 B=256": (Resnet, images(5120)),
    "LSTM 512, T=80 B=64, resets": (Loop, floats(80, 64, 512)),
    "LSTM 512, T=80 B=64, no resets": (Library, floats(80, 64, 512)),
}


WAYS = ("torch.compile, one graph", "torch.compile, its own graphs", "one graph", "eager")


def make_step(name, precision, way):
    """A function that puts one step."""
    make, inputs = CASES[name]
    compiled = way.startswith("torch.compile")
    torch.manual_seed(1)
    net, x = (make(compiled) if make is Loop else make()).to(DEVICE), inputs()
    if x.dim() == 4:
        net = net.to(memory_format=torch.channels_last)
    adam = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True, capturable=IS_GPU)

    def forward(batch):  # no cache of weights: a graph has to make them anew
        with torch.autocast(DEVICE.type, dtype=torch.bfloat16, enabled=precision == "bf16", cache_enabled=False):
            return net(batch).float()

    if compiled and make is not Loop:
        forward = torch.compile(forward, dynamic=False, mode="reduce-overhead" if "own" in way else None)

    def step():
        adam.zero_grad(set_to_none=True)
        y = forward(x)
        y.backward(y.detach())
        adam.step()

    return step


def graph_of(step):
    """The same as one CUDA graph; what is made ready at first has been by steps on a stream beside."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(WARM):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return lambda kept=step: graph.replay()  # which reads what the step has


def first_line(error):
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0][:160].replace("\t", " ")


def prepare(name, precision, way):
    # By these names: torch.compile of 2.9 to 2.11 reads them, and fails where the newer ones (fp32_precision) were set.
    torch.backends.cuda.matmul.allow_tf32 = precision != "f32"
    torch.backends.cudnn.allow_tf32 = precision != "f32"
    torch.backends.cudnn.benchmark = True
    torch.compiler.reset()  # of one piece of code it keeps a few forms, and is not compiled any more beyond
    step = make_step(name, precision, way)
    for _ in range(WARM):
        step()
    if "one graph" in way:
        step = graph_of(step)
    step()
    if IS_GPU:
        torch.cuda.synchronize()
    return step


def run(step):
    """As bench_gpu: AHEAD steps are under way."""
    events = [torch.cuda.Event() for _ in range(AHEAD + 1)] if IS_GPU else []
    if IS_GPU:
        torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < RUN_S:
        step()
        steps += 1
        if IS_GPU:
            events[steps % len(events)].record()
            if steps > AHEAD:
                events[(steps + 1) % len(events)].synchronize()
    if IS_GPU:
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / steps * 1e6


def can(name, way):
    """Without resets an LSTM is the library's, which is not compiled; the host has no graphs."""
    return not (name.endswith("no resets") and way.startswith("torch.compile")) and (IS_GPU or "one graph" not in way)


def answer(words, first, why):
    """Makes ready for a case, by the first of WAYS from that on; goes on in a new process where one fails."""
    way = next(i for i in range(first, len(WAYS)) if can(words[0], WAYS[i]))
    try:
        step = prepare(*words, WAYS[way])
    except Exception as error:
        if way + 1 == len(WAYS):
            raise
        os.dup2(ANSWERS, 1)
        os.execv(sys.executable, [sys.executable, __file__, str(DEVICE), *words, str(way + 1), f"{WAYS[way]}: {first_line(error)}"])
    return step, f"ready PyTorch {torch.__version__} {WAYS[way]}{why and f' ({why})'}"


def main():
    step, words, first, why = None, sys.argv[2:4], 0, ""
    if words:
        first, why = int(sys.argv[4]), sys.argv[5]
    answers = os.fdopen(ANSWERS, "w", buffering=1, closefd=False)
    while words or (words := sys.stdin.buffer.raw.readline().decode().rstrip("\n").split("\t")) != [""]:
        try:
            if words == ["run"]:
                said = f"{run(step):.6g}"
            elif words[0] not in CASES:
                said = f"has no case {words[0]}"
            else:
                step = None
                gc.collect()
                if IS_GPU:
                    torch.cuda.empty_cache()
                step, said = answer(words, first, why)
        except Exception as error:
            said = first_line(error)
        print(said, file=answers)
        words = None


if __name__ == "__main__":
    ANSWERS = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed is no answer
    main()
