"""Steps of learners' networks by PyTorch on a GPU: torch.compile with CUDA graphs, fused Adam, as bench_gpu.c has them.

Prints CASE<tab>microseconds<tab>unit, the median of seven runs.
"""
import statistics
import time

import torch
from torch import nn

RUNS, RUN_S = 7, 0.3
DEVICE = "cuda"


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
        x = torch.relu(self.body(x / 255)).flatten(1)
        return self.head(torch.relu(self.linear(x)))


class Nature(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
                                  nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(),
                                  nn.Linear(512, 18))

    def forward(self, x):
        return self.body(x / 255)


class Recurrent(nn.Module):
    """Without resets, which nn.LSTM has not."""

    def __init__(self):
        super().__init__()
        self.body, self.core, self.head = nn.Linear(512, 512), nn.LSTM(512, 512), nn.Linear(512, 18)

    def forward(self, x):
        y, _ = self.core(torch.relu(self.body(x)))
        return self.head(y)


def mlp():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 18))


def images(rows):
    return torch.randint(0, 256, (rows, 4, 84, 84), device=DEVICE).float().contiguous(memory_format=torch.channels_last)


CASES = [
    ("MLP 2x256, B=256", mlp, lambda: torch.randn(256, 64, device=DEVICE)),
    ("Nature CNN, B=256", Nature, lambda: images(256)),
    ("IMPALA ResNet, T=20 B=32", Resnet, lambda: images(640)),
    ("Nature CNN, B=2048", Nature, lambda: images(2048)),
    ("IMPALA ResNet, T=20 B=256", Resnet, lambda: images(5120)),
    ("LSTM 512, T=80 B=64, no resets", Recurrent, lambda: torch.randn(80, 64, 512, device=DEVICE)),
]


def bench(name, make, inputs, precision):
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.manual_seed(1)
    net, x = make().to(DEVICE), inputs()
    if x.dim() == 4:
        net = net.to(memory_format=torch.channels_last)
    adam = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True, capturable=True)

    def forward(batch):
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=precision == "bf16"):
            return net(batch).float().square().sum() / 2

    compiled = torch.compile(forward, mode="reduce-overhead")

    def step():
        adam.zero_grad(set_to_none=False)
        compiled(x).backward()
        adam.step()

    for _ in range(20):
        step()
    times = []
    for _ in range(RUNS):
        torch.cuda.synchronize()
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < RUN_S:
            step()
            steps += 1
            if steps % 8 == 0:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) / steps * 1e6)
    print(f"PyTorch {torch.__version__}: {name}, {precision}\t{statistics.median(times):.4g}\tus/step", flush=True)


def main():
    for name, make, inputs in CASES:
        for precision in ("f32", "bf16", "tf32"):
            bench(name, make, inputs, precision)


if __name__ == "__main__":
    main()
