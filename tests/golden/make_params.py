"""Writes golden_params.h: a module's parameters as safetensors writes them, and what it makes of a batch.

    python make_params.py > ../actor/golden_params.h     (made with PyTorch 2.15.0 and safetensors)
    python make_params.py FILE      loads FILE, written by Troupe, into the module, by name, and checks it

Parameter i of the module is number(i, .) / 2, pixels are number(100, .), tokens come from number(101, .).
"""
import sys

import torch
from safetensors.torch import load_file, save
from torch import nn

STEPS, SEQUENCES, HEIGHT, WIDTH, CHANNELS, TOKENS, WORDS = 2, 2, 4, 5, 2, 2, 4


def number(seed, index):
    mask = 0xFFFFFFFF
    h = (index * 2654435761 + seed * 2246822519 + 374761393) & mask
    h = ((h ^ (h >> 15)) * 2246822519) & mask
    h = ((h ^ (h >> 13)) * 3266489917) & mask
    h ^= h >> 16
    return (h >> 8) / (1 << 23) - 1


class NoisyLinear(nn.Module):
    """With the names that implementations of Fortunato et al. 2018 have; as it evaluates."""

    def __init__(self, inputs, outputs):
        super().__init__()
        for name, shape in ("weight", (outputs, inputs)), ("bias", (outputs,)):
            for what in "mu", "sigma":
                setattr(self, f"{name}_{what}", nn.Parameter(torch.zeros(shape)))

    def forward(self, x):
        return nn.functional.linear(x, self.weight_mu, self.bias_mu)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye = nn.Conv2d(CHANNELS, 3, 2)
        self.body = nn.Sequential(nn.Linear(3 * (HEIGHT - 1) * (WIDTH - 1), 5), nn.Tanh())
        self.table = nn.Embedding(WORDS, 2)
        self.norm = nn.LayerNorm(5 + 2 * TOKENS)
        self.core = nn.LSTM(5 + 2 * TOKENS, 3)
        self.memory = nn.GRU(3, 4)
        self.head = NoisyLinear(4, 2)
        self.shift = nn.Parameter(torch.zeros(2))

    def forward(self, image, tokens):
        x = self.eye(image.permute(0, 3, 1, 2)).relu().flatten(1)
        x = torch.cat([self.body(x), self.table(tokens).flatten(1)], 1)
        x = self.norm(x).reshape(STEPS, SEQUENCES, -1)
        return self.head(self.memory(self.core(x)[0])[0]) + self.shift


def outputs(net):
    rows = STEPS * SEQUENCES
    image = [number(100, i) for i in range(rows * HEIGHT * WIDTH * CHANNELS)]
    tokens = [int(WORDS * (1 + number(101, i)) / 2) for i in range(rows * TOKENS)]
    image = torch.tensor(image).reshape(rows, HEIGHT, WIDTH, CHANNELS)
    return net(image, torch.tensor(tokens).reshape(rows, TOKENS)).detach().flatten()


net, made = Net(), Net()
with torch.no_grad():
    for seed, parameter in enumerate(made.parameters()):
        values = [number(seed, i) / 2 for i in range(parameter.numel())]
        parameter.copy_(torch.tensor(values).reshape(parameter.shape))

if len(sys.argv) > 1:
    net.load_state_dict(load_file(sys.argv[1]), strict=True)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), made.parameters()))
    assert torch.equal(outputs(net), outputs(made))
    print(f"{sys.argv[1]}: all {len(list(net.parameters()))} tensors are PyTorch's")
    sys.exit()

data = save(made.state_dict())
print("/* Made by tests/golden/make_params.py: a file of safetensors, and what the module makes. */")
print("/* clang-format off */")
print("static const uint8_t golden_file[] = {")
for i in range(0, len(data), 24):
    print(",".join(str(byte) for byte in data[i:i + 24]) + ",")
print("};")
print("static const float golden_outputs[] = {")
for row in outputs(made).reshape(-1, 2).tolist():
    print(" ".join(f"{value:.9g}," for value in row))
print("};")
print("/* clang-format on */")
