"""Writes golden_layers.h: what PyTorch makes of layers in double, and the gradients of that.

    python make_layers.py > ../nn/golden_layers.h        (made with PyTorch 2.15.0)

Numbers come from number(), which tests/nn/layer_case.h has, too: tensor i of a layer is made with
seed i, its gradient with seed 100 + i, pixels with 9, tokens with 7, noise with 8, resets with 11.
"""
import torch
from torch.nn import functional as F

GELU_TANH = lambda x: F.gelu(x, approximate="tanh")


def number(seed, index):
    mask = 0xFFFFFFFF
    h = (index * 2654435761 + seed * 2246822519 + 374761393) & mask
    h = ((h ^ (h >> 15)) * 2246822519) & mask
    h = ((h ^ (h >> 13)) * 3266489917) & mask
    h ^= h >> 16
    return (h >> 8) / (1 << 23) - 1


def numbers(seed, *shape, scale=1):
    count = torch.Size(shape).numel()
    values = [scale * number(seed, i) for i in range(count)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def given(seed, *shape, scale=1):
    return numbers(seed, *shape, scale=scale).requires_grad_()


rows = []  # layer, tensor, values


def write(layer, inputs, outputs):
    """`inputs`: names and leaves; `outputs`: names, tensors and seeds of their gradients."""
    total = sum((out * numbers(100 + seed, *out.shape)).sum() for _, out, seed in outputs)
    total.backward()
    for name, tensor in inputs:
        rows.append((layer, name, tensor.grad))
    for name, tensor, _ in outputs:
        rows.append((layer, name, tensor.detach()))


def conv(layer, batch, image, kernel, stride, pad, filters, activation=lambda x: x, bytes=False):
    height, width, channels = image
    w = given(0, *kernel, channels, filters)
    bias = given(1, filters)
    if bytes:
        count = batch * height * width * channels
        pixels = [int(128 * (1 + number(9, i))) for i in range(count)]
        x = torch.tensor(pixels, dtype=torch.float64).reshape(batch, *image) / 255
    else:
        x = given(3, batch, *image)
    y = F.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), bias, stride, pad)
    y = activation(y).permute(0, 2, 3, 1)
    inputs = [("w", w), ("bias", bias)] + ([] if bytes else [("x", x)])
    write(layer, inputs, [("y", y, 2)])


def bf16(values):
    return values.float().bfloat16().double()


class Rounded(torch.autograd.Function):
    """A product of rounded factors, in both directions."""

    @staticmethod
    def forward(ctx, product, x, w):
        ctx.product = product
        ctx.save_for_backward(x, w)
        return product(bf16(x), bf16(w))

    @staticmethod
    def backward(ctx, dy):
        with torch.enable_grad():
            x, w = (bf16(t.detach()).requires_grad_() for t in ctx.saved_tensors)
            ctx.product(x, w).backward(bf16(dy))
        return None, x.grad, w.grad


def linear_bf16():
    w, bias, x = given(0, 7, 5), given(1, 5), given(3, 3, 7)
    y = Rounded.apply(torch.matmul, x, w) + bias
    write("linear_bf16", [("w", w), ("bias", bias), ("x", x)], [("y", y, 2)])


def conv_bf16():
    w, bias, x = given(0, 3, 3, 4, 3), given(1, 3), given(3, 2, 5, 6, 4)
    product = lambda x, w: F.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), None, 2, 1)
    y = (Rounded.apply(product, x, w) + bias.reshape(1, -1, 1, 1)).permute(0, 2, 3, 1)
    write("conv_bf16", [("w", w), ("bias", bias), ("x", x)], [("y", y, 2)])


def pool(layer, function, batch, image, kernel, stride, pad):
    x = given(0, batch, *image)
    y = function(x.permute(0, 3, 1, 2), kernel, stride, pad).permute(0, 2, 3, 1)
    write(layer, [("x", x)], [("y", y, 1)])


def cell(layer, kind, steps, batch, inputs, hidden):
    gates = 4 if kind is torch.nn.LSTMCell else 3
    wx, wh = given(0, inputs, gates * hidden), given(1, hidden, gates * hidden)
    bx, bh = given(2, gates * hidden), given(3, gates * hidden)
    x = given(4, steps, batch, inputs)
    width = 2 * hidden if gates == 4 else hidden
    start = given(6, batch, width)
    module = kind(inputs, hidden, dtype=torch.float64)
    parameters = {"weight_ih": wx.T, "weight_hh": wh.T, "bias_ih": bx, "bias_hh": bh}
    state, out = start, []
    for step in range(steps):
        keep = [0.0 if number(11, step * batch + row) > 0.5 else 1.0 for row in range(batch)]
        state = state * torch.tensor(keep, dtype=torch.float64)[:, None]
        before = (state[:, :hidden], state[:, hidden:]) if gates == 4 else state
        after = torch.func.functional_call(module, parameters, (x[step], before))
        state = torch.cat(after, 1) if gates == 4 else after
        out.append(state[:, :hidden])
    inputs = [("wx", wx), ("wh", wh), ("bx", bx), ("bh", bh), ("x", x), ("state", start)]
    write(layer, inputs, [("y", torch.stack(out), 5), ("end", state, 7)])


def activations():
    for name, function in {
        "relu": F.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "elu": F.elu,
        "softplus": F.softplus, "silu": F.silu, "gelu": F.gelu, "gelu_tanh": GELU_TANH,
    }.items():
        x = (3 * numbers(0, 2, 4)).requires_grad_()
        write(name, [("x", x)], [("y", function(x), 1)])


def norm():
    gain, bias, x = given(0, 5), given(1, 5), given(2, 3, 5)
    y = F.layer_norm(x, (5,), gain, bias)
    write("norm", [("gain", gain), ("bias", bias), ("x", x)], [("y", y, 3)])


def embedding():
    tokens = torch.tensor([int(4 * (1 + number(7, i)) / 2) for i in range(6)]).reshape(3, 2)
    table = given(0, 4, 3)
    write("embedding", [("table", table)], [("y", F.embedding(tokens, table), 1)])


def noisy():
    w_mean, w_sigma = given(0, 3, 4), given(1, 3, 4)
    bias_mean, bias_sigma = given(2, 4), given(3, 4)
    noise = numbers(8, 7)
    w = w_mean + w_sigma * torch.outer(noise[:3], noise[3:])
    bias = bias_mean + bias_sigma * noise[3:]
    inputs = [("w_mean", w_mean), ("w_sigma", w_sigma)]
    inputs += [("bias_mean", bias_mean), ("bias_sigma", bias_sigma)]
    write("noisy", inputs, [("w", w, 4), ("bias", bias, 5)])


conv("conv", 2, (5, 6, 3), (3, 2), (2, 1), (1, 1), 4)
conv("conv_tanh", 2, (4, 4, 2), (2, 2), (2, 2), (0, 0), 3, torch.tanh)
conv("conv_bytes", 2, (6, 5, 2), (4, 3), (2, 2), (0, 0), 3, bytes=True)
pool("max_pool", F.max_pool2d, 2, (5, 6, 2), (3, 3), (2, 2), (1, 1))
pool("max_pool_flat", F.max_pool2d, 1, (4, 5, 3), (2, 3), (2, 1), (0, 0))
pool("mean_pool", F.avg_pool2d, 2, (5, 6, 2), (3, 3), (2, 2), (1, 1))
cell("lstm", torch.nn.LSTMCell, 5, 2, 3, 2)
cell("gru", torch.nn.GRUCell, 5, 2, 3, 2)
activations()
norm()
embedding()
noisy()
linear_bf16()
conv_bf16()

print("/* Made by tests/golden/make_layers.py: outputs, and gradients of what is not one. */")
print("/* clang-format off */")
print("static const struct golden golden_layers[] = {")
for layer, tensor, values in rows:
    values = values.flatten().tolist()
    print(f'{{"{layer}", "{tensor}", {len(values)}, (const double[]){{')
    for i in range(0, len(values), 5):
        print(" ".join(f"{v:.14g}," for v in values[i:i + 5]))
    print("}},")
print("};")
print("/* clang-format on */")
