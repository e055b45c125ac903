"""Writes golden_optimizers.h: parameters after each of some steps of PyTorch's optimizers, in double.

    python make_optimizers.py > ../nn/golden_optimizers.h        (made with PyTorch 2.15.0)

Two tensors of 3 and 4 numbers, number(0, i), number(1, i), with gradients number(10 + step, i) of
both together, which PyTorch clips where a norm is given. number() is that of make_layers.py.
RMSProp with its epsilon inside the root and LAMB are not in PyTorch: they are written here from
TensorFlow's formula (its momentum of steps without the rate) and from You et al. 2020, algorithm 2.
"""
import torch

STEPS, SIZES = 5, (3, 4)


def number(seed, index):
    mask = 0xFFFFFFFF
    h = (index * 2654435761 + seed * 2246822519 + 374761393) & mask
    h = ((h ^ (h >> 15)) * 2246822519) & mask
    h = ((h ^ (h >> 13)) * 3266489917) & mask
    h ^= h >> 16
    return (h >> 8) / (1 << 23) - 1


class InsideRMSProp(torch.optim.Optimizer):
    def __init__(self, params, lr, alpha=0.99, eps=1e-8, momentum=0.0, centered=False):
        super().__init__(params, dict(lr=lr, alpha=alpha, eps=eps, momentum=momentum, centered=centered))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state[p]
                for name in ("square", "mean", "v"):
                    s.setdefault(name, torch.zeros_like(p))
                s["square"] = group["alpha"] * s["square"] + (1 - group["alpha"]) * p.grad**2
                variance = s["square"]
                if group["centered"]:
                    s["mean"] = group["alpha"] * s["mean"] + (1 - group["alpha"]) * p.grad
                    variance = variance - s["mean"] ** 2
                s["v"] = group["momentum"] * s["v"] + p.grad / (variance + group["eps"]).sqrt()
                p -= group["lr"] * s["v"]


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                s["t"] += 1
                s["m"] = b1 * s["m"] + (1 - b1) * p.grad
                s["v"] = b2 * s["v"] + (1 - b2) * p.grad**2
                m, v = s["m"] / (1 - b1 ** s["t"]), s["v"] / (1 - b2 ** s["t"])
                r = m / (v.sqrt() + group["eps"])
                u = r + group["weight_decay"] * p
                ratio = p.norm() / u.norm() if p.norm() > 0 and u.norm() > 0 else 1.0
                p -= group["lr"] * ratio * u


def run(name, kind, max_norm=None, schedule=None, zeros=False, **options):
    params = []
    for seed, size in enumerate(SIZES):
        values = [0.0 if zeros else number(seed, i) for i in range(size)]
        params.append(torch.tensor(values, dtype=torch.float64, requires_grad=True))
    optimizer = kind(params, **options)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule) if schedule else None
    print(f'{{"{name}", {{')
    for step in range(1, STEPS + 1):
        at = 0
        for p in params:
            values = [number(10 + step, at + i) for i in range(len(p))]
            p.grad = torch.tensor(values, dtype=torch.float64)
            at += len(p)
        if max_norm:
            torch.nn.utils.clip_grad_norm_(params, max_norm)
        optimizer.step()
        if scheduler:
            scheduler.step()
        values = [f"{v:.15g}," for p in params for v in p.tolist()]
        print("{" + " ".join(values[:4]) + "\n" + " ".join(values[4:]) + "},")
    print("}},")


OPT = torch.optim
print("/* Made by tests/golden/make_optimizers.py: parameters after each step. */")
print("/* clang-format off */")
print("static const struct golden_steps golden_steps[] = {")
run("sgd", OPT.SGD, lr=0.1)
run("sgd decay", OPT.SGD, lr=0.1, weight_decay=0.2)
run("momentum", OPT.SGD, lr=0.1, momentum=0.9)
run("nesterov", OPT.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.2)
run("adam", OPT.Adam, lr=0.1)
run("adam options", OPT.Adam, lr=0.1, betas=(0.5, 0.75), eps=0.1, weight_decay=0.2)
run("adam no beta1", OPT.Adam, lr=0.1, betas=(0.0, 0.75))
run("adamw", OPT.AdamW, lr=0.1, weight_decay=0.2)
run("rmsprop", OPT.RMSprop, lr=0.1)
run("rmsprop decay", OPT.RMSprop, lr=0.1, alpha=0.5, eps=0.1, weight_decay=0.2)
run("rmsprop momentum", OPT.RMSprop, lr=0.1, alpha=0.5, momentum=0.9)
run("rmsprop centered", OPT.RMSprop, lr=0.1, alpha=0.5, eps=0.01, centered=True)
run("rmsprop centered momentum", OPT.RMSprop, lr=0.1, alpha=0.75, eps=0.01, centered=True,
    momentum=0.5)
run("rmsprop inside", InsideRMSProp, lr=0.1, alpha=0.5, eps=0.1)
run("rmsprop inside all", InsideRMSProp, lr=0.1, alpha=0.75, eps=0.01, centered=True, momentum=0.5)
run("lamb", Lamb, lr=0.1)
run("lamb decay", Lamb, lr=0.1, weight_decay=0.2)
run("lamb from zero", Lamb, lr=0.1, zeros=True)
run("clipped", OPT.SGD, lr=0.1, max_norm=0.5)
run("linear", OPT.SGD, lr=0.1, schedule=lambda done: 1 - 0.75 * min(done / 4, 1))
print("};")
print("/* clang-format on */")
