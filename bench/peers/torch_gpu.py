"""Steps of learners' networks by PyTorch on a GPU, as bench_gpu has them: forward, backward of half the square of what
comes out, Adam. What to do comes line by line: CASE<tab>PRECISION is answered `ready HOW`, or why not; `run`, with the
microseconds a step.

    torch_gpu.py [cuda:0]

The peer is torch.compile with the whole step in one CUDA graph, which leaves the host a single launch. Where one of both does
not go, HOW says so, and the rest is what is measured.
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


def make_step(name, precision, compiled):
    """A function that puts one step."""
    make, inputs = CASES[name]
    torch.manual_seed(1)
    net, x = (make(compiled) if make is Loop else make()).to(DEVICE), inputs()
    if x.dim() == 4:
        net = net.to(memory_format=torch.channels_last)
    adam = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True, capturable=IS_GPU)

    def forward(batch):  # no cache of weights: a graph has to make them anew
        with torch.autocast(DEVICE.type, dtype=torch.bfloat16, enabled=precision == "bf16", cache_enabled=False):
            return net(batch).float()

    if compiled and make not in (Loop, Library):
        forward = torch.compile(forward, dynamic=False)

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
    return graph.replay


def first_line(error):
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0][:200]


def prepare(name, precision):
    """A step, and how it computes."""
    torch.backends.cuda.matmul.allow_tf32 = precision != "f32"
    torch.backends.cudnn.allow_tf32 = precision != "f32"
    torch.backends.cudnn.benchmark = True
    torch.compiler.reset()  # of one piece of code it keeps a few forms, and is not compiled any more beyond
    how = f"PyTorch {torch.__version__}"
    for compiled in (True, False):
        if compiled and name.endswith("no resets"):
            how += " nn.LSTM"
            continue
        try:
            step = make_step(name, precision, compiled)
            for _ in range(3):
                step()
            how += " torch.compile" if compiled else ""
            break
        except Exception as error:
            if not compiled:
                raise
            how += f" (no torch.compile: {first_line(error)})"
    if not IS_GPU:
        return step, how
    try:
        replay = graph_of(step)
        replay()
        torch.cuda.synchronize()
        return replay, how + " in a graph"
    except Exception as error:
        torch.cuda.synchronize()
        return step, how + f" (no graph: {first_line(error)})"


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


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else is printed is no answer
    step = None
    for line in sys.stdin:
        words = line.rstrip("\n").split("\t")
        try:
            if words == ["run"]:
                print(f"{run(step):.6g}", file=answers)
            elif words[0] not in CASES:
                print(f"has no case {words[0]}", file=answers)
            else:
                step = None
                gc.collect()
                if IS_GPU:
                    torch.cuda.empty_cache()
                step, how = prepare(*words)
                print("ready " + how.replace("\t", " "), file=answers)
        except Exception as error:
            print(first_line(error).replace("\t", " "), file=answers)


if __name__ == "__main__":
    main()
