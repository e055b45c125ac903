"""Eager PyTorch's recurrent layer: torch_cells.py LSTM|GRU THREADS prints the median microseconds of
forward over 32 sequences of 80 steps and backward to parameters and inputs, as bench_cells does."""
import sys
import time

import torch

kind, threads = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(threads)
cell = getattr(torch.nn, kind)(256, 256)
x, dy = torch.randn(80, 32, 256, requires_grad=True), torch.randn(80, 32, 256)


def step():
    cell.zero_grad(set_to_none=True)
    x.grad = None
    cell(x)[0].backward(dy)


times = []
for _ in range(8):
    start = time.perf_counter()
    step()
    times.append(time.perf_counter() - start)
print(f"{sorted(times[1:])[3] * 1e6:.1f}", flush=True)
