"""Eager PyTorch on the train steps of bench_nn: prints `name<TAB>microseconds` for each."""
import time

import torch
from torch import nn

torch.set_num_threads(2)


def train_step(inputs, hidden, outputs, batch):
    network = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden),
                            nn.ReLU(), nn.Linear(hidden, outputs))
    optimizer = torch.optim.Adam(network.parameters(), 1e-3, fused=True)
    states, target = torch.randn(batch, inputs), torch.randn(batch)
    action = torch.randint(0, outputs, (batch, 1))

    def step():
        optimizer.zero_grad(set_to_none=True)
        chosen = network(states).gather(1, action)[:, 0]
        nn.functional.smooth_l1_loss(chosen, target).backward()
        optimizer.step()
    return step


def median_us(step, count):
    for _ in range(20):
        step()
    times = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return sorted(times)[count // 2] * 1e6


print(f"64\t{median_us(train_step(4, 64, 2, 128), 500):.1f}", flush=True)
print(f"256\t{median_us(train_step(17, 256, 6, 256), 200):.1f}", flush=True)
