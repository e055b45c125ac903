"""Writes golden_networks.h: what PyTorch makes of whole networks in double, and their gradients.

    python make_networks.py > ../nn/golden_networks.h        (made with PyTorch 2.15.0)

The modules are those that trp_mlp(), trp_nature_cnn() and trp_impala_resnet() say they are, with their
names. Parameter i of a module is number(i, .) times a scale, which the file has by its name. Of each
gradient g the file has two numbers: its sum with number(300, .), and its length. Pixels come from
number(9, .), observations from number(10, .), resets from number(11, .), the state from number(6, .), and
the gradient of output i from number(100 + i, .).
"""
import torch
from torch import nn

STEPS, SEQUENCES = 3, 2
ROWS = STEPS * SEQUENCES


def number(seed, index):
    mask = 0xFFFFFFFF
    h = (index * 2654435761 + seed * 2246822519 + 374761393) & mask
    h = ((h ^ (h >> 15)) * 2246822519) & mask
    h = ((h ^ (h >> 13)) * 3266489917) & mask
    h ^= h >> 16
    return (h >> 8) / (1 << 23) - 1


def numbers(seed, *shape):
    values = [number(seed, i) for i in range(torch.Size(shape).numel())]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


class Net(nn.Module):
    """A body, a core, and what is said: a head, a head and a value, or two streams."""

    def finish(self, width, outputs, core=None, size=5, value=False, dueling=False, atoms=1):
        self.dueling, self.half, self.atoms = dueling, width if dueling and not core else 0, atoms
        if core:
            self.core = core(width, size)
            width = size
        if dueling:
            self.value, self.advantage = nn.Linear(width, atoms), nn.Linear(width, outputs * atoms)
        else:
            self.head = nn.Linear(width, outputs)
            if value:
                self.value = nn.Linear(width, 1)

    def remember(self, x, state, keep):
        """Step by step, so that a sequence can begin anew in the middle."""
        lstm, out = isinstance(self.core, nn.LSTM), []
        for step in range(STEPS):
            state = state * keep[step][:, None]
            parts = state.chunk(2, 1) if lstm else (state,)
            parts = tuple(part[None].contiguous() for part in parts)
            y, after = self.core(x[step * SEQUENCES:(step + 1) * SEQUENCES][None], parts if lstm else parts[0])
            state = torch.cat([part[0] for part in after], 1) if lstm else after[0]
            out.append(y[0])
        return torch.cat(out), state

    def forward(self, x, state, keep):
        x, end = self.look(x), None
        if hasattr(self, "core"):
            x, end = self.remember(x, state, keep)
        if self.dueling:
            v, a = (x[:, :self.half], x[:, self.half:]) if self.half else (x, x)
            v = self.value(v).unflatten(1, (1, self.atoms))
            a = self.advantage(a).unflatten(1, (-1, self.atoms))
            return [(v + a - a.mean(1, keepdim=True)).flatten(1)], end
        return [self.head(x)] + ([self.value(x)] if hasattr(self, "value") else []), end


class Mlp(Net):
    def __init__(self, inputs, hidden, outputs, activation=torch.relu, **heads):
        super().__init__()
        self.activation = activation
        widths = list(hidden)
        if heads.get("dueling") and not heads.get("core"):
            widths[-1] *= 2
        self.body = nn.ModuleList(nn.Linear(a, b) for a, b in zip([inputs] + widths, widths))
        self.finish(hidden[-1], outputs, **heads)

    def look(self, x):
        for layer in self.body:
            x = self.activation(layer(x))
        return x


class Cnn(Net):
    def split(self, width, heads):
        return 2 * width if heads.get("dueling") and not heads.get("core") else width


class Nature(Cnn):
    def __init__(self, height, width, channels, outputs, **heads):
        super().__init__()
        convolutions = [nn.Conv2d(channels, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1)]
        pixels = torch.zeros(1, channels, height, width)
        for layer in convolutions:
            pixels = layer(pixels)
        self.body = nn.ModuleList(convolutions + [nn.Linear(pixels.numel(), self.split(512, heads))])
        self.finish(512, outputs, **heads)

    def look(self, x):
        for layer in self.body[:3]:
            x = torch.relu(layer(x))
        return torch.relu(self.body[3](x.flatten(1)))


class Section(nn.Conv2d):
    """A convolution, in which its two residual blocks are named 0 and 1."""

    def __init__(self, channels, filters):
        super().__init__(channels, filters, 3, 1, 1)
        for block in "01":
            self.add_module(block, nn.ModuleList(nn.Conv2d(filters, filters, 3, 1, 1) for _ in range(2)))

    def forward(self, x):
        x = nn.functional.max_pool2d(super().forward(x), 3, 2, 1)
        for block in "01":
            first, second = self.get_submodule(block)
            x = x + second(torch.relu(first(torch.relu(x))))
        return x


class Impala(Cnn):
    def __init__(self, height, width, channels, outputs, **heads):
        super().__init__()
        self.section = nn.ModuleList(Section(a, b) for a, b in ((channels, 16), (16, 32), (32, 32)))
        pixels = torch.zeros(1, channels, height, width)
        for section in self.section:
            pixels = section(pixels)
        self.body = nn.Linear(pixels.numel(), self.split(256, heads))
        self.finish(256, outputs, **heads)

    def look(self, x):
        for section in self.section:
            x = section(x)
        return torch.relu(self.body(torch.relu(x).flatten(1)))


def show(values):
    return ", ".join(f"{value:.14g}" for value in values)


def show_lines(values):
    return ",\n".join(show(values[i:i + 5]) for i in range(0, len(values), 5))


def summary(gradient):
    flat = gradient.flatten()
    return [(flat * numbers(300, flat.numel())).sum().item(), flat.norm().item()]


nets = []


def write(name, net, *shape):
    torch.set_default_dtype(torch.float64)
    net = net.double()
    rows = []
    for seed, (tensor, parameter) in enumerate(net.named_parameters()):
        fan = parameter[0].numel() if parameter.dim() > 1 else 12
        scale = float(torch.tensor((3 / fan) ** 0.5, dtype=torch.float32))
        parameter.data = scale * numbers(seed, *parameter.shape)
        rows.append([tensor, seed, scale, parameter])
    if len(shape) == 3:
        count = ROWS * shape[0] * shape[1] * shape[2]
        pixels = [int(128 * (1 + number(9, i))) for i in range(count)]
        x = torch.tensor(pixels, dtype=torch.float64).reshape(ROWS, *shape).permute(0, 3, 1, 2) / 255
    else:
        x = numbers(10, ROWS, *shape)
    width = 0
    if hasattr(net, "core"):
        width = net.core.hidden_size * (2 if isinstance(net.core, nn.LSTM) else 1)
    state = numbers(6, SEQUENCES, width).requires_grad_()
    keep = [[0.0 if number(11, i * SEQUENCES + k) > 0.5 else 1.0 for k in range(SEQUENCES)] for i in range(STEPS)]
    outputs, end = net(x, state, torch.tensor(keep))
    total = sum((out * numbers(100 + i, *out.shape)).sum() for i, out in enumerate(outputs))
    if width:
        total = total + (end * numbers(104, *end.shape)).sum()
    total.backward()
    print(f"static const struct golden_tensor {name}_tensors[] = {{")
    for tensor, seed, scale, parameter in rows:
        print(f'{{"{tensor}", {seed}, {show([scale] + summary(parameter.grad))}}},')
    print("};")
    said = [value for out in outputs for value in out.detach().flatten().tolist()]
    ended = end.detach().flatten().tolist() + state.grad.flatten().tolist() if width else []
    print(f"static const double {name}_outputs[] = {{\n{show_lines(said)}}};")
    if width:
        print(f"static const double {name}_state[] = {{\n{show_lines(ended)}}};")
    of_state = f"{name}_state, {width}" if width else "NULL, 0"
    nets.append(f'{{"{name}", {name}_tensors, {len(rows)},\n{name}_outputs, {len(said)}, {of_state}}},')


print("/* Made by tests/golden/make_networks.py: outputs and states, and what gradients come to. */")
print("/* clang-format off */")
write("mlp", Mlp(5, (7, 6), 3), 5)
write("mlp_dueling", Mlp(5, (7, 6), 3, torch.tanh, dueling=True), 5)
write("mlp_dueling_atoms", Mlp(5, (7, 6), 3, dueling=True, atoms=4), 5)
write("mlp_lstm", Mlp(5, (7, 6), 3, core=nn.LSTM), 5)
write("mlp_gru_dueling", Mlp(5, (7, 6), 3, core=nn.GRU, dueling=True), 5)
write("nature", Nature(36, 40, 2, 3, value=True), 36, 40, 2)
write("nature_dueling", Nature(36, 40, 2, 3, dueling=True), 36, 40, 2)
write("nature_dueling_atoms", Nature(36, 40, 2, 3, dueling=True, atoms=4), 36, 40, 2)
write("nature_lstm", Nature(36, 40, 2, 3, value=True, core=nn.LSTM), 36, 40, 2)
write("impala", Impala(12, 11, 2, 3, value=True), 12, 11, 2)
write("impala_dueling", Impala(12, 11, 2, 3, dueling=True), 12, 11, 2)
write("impala_gru", Impala(12, 11, 2, 3, value=True, core=nn.GRU), 12, 11, 2)
print("static const struct golden_net golden_nets[] = {")
print("\n".join(nets))
print("};")
print("/* clang-format on */")
