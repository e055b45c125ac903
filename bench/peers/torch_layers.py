"""Eager PyTorch on one thread, on a network of bench_layers: prints the median step's microseconds
of its own thread. Of the two layouts of images, the faster one."""
import sys
import time

import torch
from torch import nn

torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1),
                                  nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1))

    def forward(self, x):
        return x + self.body(x)


def nature():
    return nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
                         nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512),
                         nn.ReLU(), nn.Linear(512, 18))


def impala():
    layers, channels = [], 4
    for filters in 16, 32, 32:
        layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.MaxPool2d(3, 2, 1),
                   Block(filters), Block(filters)]
        channels = filters
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.Linear(3872, 256), nn.ReLU())


def image_step(network, batch, learn, layout, low):
    network = network.to(memory_format=layout)
    optimizer = torch.optim.Adam(network.parameters(), 1e-4, fused=True)
    images = torch.randint(0, 256, (batch, 84, 84, 4), dtype=torch.uint8)
    dy = torch.randn(network(torch.zeros(1, 4, 84, 84)).shape).expand(batch, -1)

    def step():
        optimizer.zero_grad(set_to_none=True)
        x = images.permute(0, 3, 1, 2).contiguous(memory_format=layout).float() / 255
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            y = network(x)
        y.float().backward(dy)
        if learn:
            optimizer.step()
    return step


def median_us(step):
    times = []
    for _ in range(8):
        start = time.thread_time()
        step()
        times.append(time.thread_time() - start)
    return sorted(times[1:])[3] * 1e6


what, batch = sys.argv[1], int(sys.argv[2])
low = what.endswith("_bf16")
network = nature if what.startswith("nature") else impala
steps = [image_step(network(), batch, what == "nature", layout, low)
         for layout in (torch.contiguous_format, torch.channels_last)]
print(f"{min(median_us(step) for step in steps):.1f}", flush=True)
