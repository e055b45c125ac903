"""Writes golden_losses.h: losses, their gradients by autograd, and targets, of PyTorch in double.

    python make_losses.py > ../nn/loss/golden_losses.h        (made with PyTorch 2.15.0)

Numbers come from number(), which tests/nn/loss/loss_tools.h has, too, as golden_number(); which
seed is what stands in tests/nn/loss/test_golden_losses.c.
"""
import torch
from torch.nn import functional as F

ROWS, ACTIONS, ATOMS, STEPS, SEQUENCES = 4, 3, 5, 6, 2
LEAST, MOST = -1.0, 2.0


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


rows = []


def write(name, values):
    rows.append((name, values.detach()))


def write_loss(name, loss, leaf, per_row):
    loss.backward()
    write(f"{name}.loss", loss)
    write(f"{name}.gradient", leaf.grad)
    write(f"{name}.rows", per_row)


rewards, discounts = numbers(1, ROWS, scale=2), (numbers(2, ROWS) + 1) / 2
weights, at = (numbers(3, ROWS) + 1) / 2, torch.arange(ROWS)
taken = torch.tensor([i % ACTIONS for i in range(ROWS)])


def double_q():
    q = numbers(4, ROWS, ACTIONS, scale=4).requires_grad_()
    online, target = numbers(5, ROWS, ACTIONS), numbers(6, ROWS, ACTIONS)
    targets = rewards + discounts * target.gather(1, online.argmax(1, True)).squeeze(1)
    write("double_q.targets", targets)
    chosen = q.gather(1, taken[:, None]).squeeze(1)
    loss = (weights * F.huber_loss(chosen, targets, reduction="none", delta=0.5)).mean()
    write_loss("double_q", loss, q, targets - chosen)


def munchausen(temperature=0.25, alpha=0.5, least=-0.75):
    target, after = numbers(6, ROWS, ACTIONS), numbers(7, ROWS, ACTIONS)
    log_now = temperature * F.log_softmax(target / temperature, 1)[at, taken]
    policy, log_next = F.softmax(after / temperature, 1), F.log_softmax(after / temperature, 1)
    value = (policy * (after - temperature * log_next)).sum(1)
    write("munchausen.targets", rewards + alpha * log_now.clamp(least, 0) + discounts * value)


def c51():
    logits = numbers(8, ROWS, ACTIONS, ATOMS, scale=2).requires_grad_()
    online = numbers(9, ROWS, ACTIONS, ATOMS, scale=2)
    target = numbers(10, ROWS, ACTIONS, ATOMS, scale=2)
    z, gap = torch.linspace(LEAST, MOST, ATOMS, dtype=torch.float64), (MOST - LEAST) / (ATOMS - 1)
    write("c51.values", F.softmax(logits, 2) @ z)
    best = (F.softmax(online, 2) @ z).argmax(1)
    p = F.softmax(target[at, best], 1)
    place = ((rewards[:, None] + discounts[:, None] * z).clamp(LEAST, MOST) - LEAST) / gap
    below = place.floor().clamp(0, ATOMS - 1).long()
    above = place.ceil().clamp(0, ATOMS - 1).long()
    projected = torch.zeros(ROWS, ATOMS, dtype=torch.float64)
    for i in range(ROWS):
        share = p[i] * (above[i].double() + (below[i] == above[i]).double() - place[i])
        projected[i].index_add_(0, below[i], share)
        projected[i].index_add_(0, above[i], p[i] * (place[i] - below[i].double()))
    write("c51.targets", projected)
    log_p = F.log_softmax(logits[at, taken], 1)
    loss = (weights * -(projected * log_p).sum(1)).mean()
    write_loss("c51", loss, logits, F.kl_div(log_p, projected, reduction="none").sum(1))


def quantile(kappa=0.5):
    theta = numbers(8, ROWS, ACTIONS, ATOMS, scale=2).requires_grad_()
    online = numbers(9, ROWS, ACTIONS, ATOMS, scale=2)
    target = numbers(10, ROWS, ACTIONS, ATOMS, scale=2)
    best = online.mean(2).argmax(1)
    targets = rewards[:, None] + discounts[:, None] * target[at, best]
    write("quantile.targets", targets)
    now = theta[at, taken]
    tau = (torch.arange(ATOMS, dtype=torch.float64) + 0.5) / ATOMS
    miss = targets[:, None, :] - now[:, :, None]
    huber = torch.where(miss.abs() <= kappa, 0.5 * miss**2, kappa * (miss.abs() - 0.5 * kappa))
    factor = (tau[None, :, None] - (miss.detach() < 0).double()).abs()
    loss = (weights * (factor * huber).mean(2).sum(1)).mean()
    write_loss("quantile", loss, theta, targets.mean(1) - now.mean(1))


def values(clip=0.25):
    v = numbers(11, ROWS).requires_grad_()
    targets, old = numbers(12, ROWS), numbers(13, ROWS)
    loss = (weights * F.mse_loss(v, targets, reduction="none") / 2).mean()
    write_loss("value", loss, v, targets - v)
    v = numbers(11, ROWS).requires_grad_()
    kept = old + torch.clamp(v - old, -clip, clip)
    loss = (weights * 0.5 * torch.max((v - targets) ** 2, (kept - targets) ** 2)).mean()
    write_loss("clipped", loss, v, targets - v)


step_rewards = numbers(14, STEPS, SEQUENCES)
step_discounts = (numbers(15, STEPS, SEQUENCES) + 1) / 2


def returns(lam=0.75):
    v = numbers(16, STEPS, SEQUENCES)
    next_v = torch.cat([v[1:], numbers(17, 1, SEQUENCES)])
    ratios = torch.exp(numbers(18, STEPS, SEQUENCES))
    chosen = numbers(19, STEPS, SEQUENCES)
    advantages, after = [], 0
    for t in reversed(range(STEPS)):
        delta = step_rewards[t] + step_discounts[t] * next_v[t] - v[t]
        after = delta + step_discounts[t] * lam * after
        advantages.insert(0, after)
    write("gae.advantages", torch.stack(advantages))
    rho, c = ratios.clamp(max=1.25), lam * ratios.clamp(max=0.875)
    deltas = rho * (step_rewards + step_discounts * next_v - v)
    out, after = [], 0
    for t in reversed(range(STEPS)):
        after = deltas[t] + step_discounts[t] * c[t] * after
        out.insert(0, after)
    vs = torch.stack(out) + v
    vs_next = torch.cat([vs[1:], next_v[-1:]])
    write("vtrace.returns", vs)
    advantages = step_rewards + step_discounts * vs_next - v
    write("vtrace.advantages", ratios.clamp(max=1.5) * advantages)
    out, traces = [], lam * ratios.clamp(max=1)
    ret = step_rewards[-1] + step_discounts[-1] * next_v[-1]
    out.insert(0, ret)
    for t in reversed(range(STEPS - 1)):
        beyond = traces[t + 1] * (ret - chosen[t + 1])
        ret = step_rewards[t] + step_discounts[t] * (next_v[t] + beyond)
        out.insert(0, ret)
    write("retrace.returns", torch.stack(out))


def r2d2(n=2, burn_in=1, epsilon=2.0**-7, eta=0.75):
    def h(x):
        return x.sign() * ((x.abs() + 1).sqrt() - 1) + epsilon * x

    def inverse(y):
        root = (1 + 4 * epsilon * (y.abs() + 1 + epsilon)).sqrt()
        return y.sign() * (((root - 1) / (2 * epsilon)) ** 2 - 1)

    q = numbers(20, STEPS, SEQUENCES, ACTIONS).requires_grad_()
    online = numbers(21, STEPS, SEQUENCES, ACTIONS)
    target = numbers(22, STEPS, SEQUENCES, ACTIONS, scale=4)
    value = inverse(target.gather(2, online.argmax(2, True)).squeeze(2))
    targets = torch.zeros(STEPS, SEQUENCES, dtype=torch.float64)
    for t in range(STEPS - 1):
        last = min(t + n, STEPS - 1)
        ret = value[last]
        for k in reversed(range(t, last)):
            ret = step_rewards[k] + step_discounts[k] * ret
        targets[t] = h(ret)
    chosen = torch.tensor([[(t + i) % ACTIONS for i in range(SEQUENCES)] for t in range(STEPS)])
    errors = (targets - q.gather(2, chosen[:, :, None]).squeeze(2))[burn_in:-1]
    write("r2d2.targets", targets[:-1])
    loss = (weights[:SEQUENCES] * 0.5 * (errors**2).sum(0)).mean()
    sizes = errors.abs()
    write_loss("r2d2", loss, q, eta * sizes.max(0).values + (1 - eta) * sizes.mean(0))


double_q()
munchausen()
c51()
quantile()
values()
returns()
r2d2()

print("/* Made by tests/golden/make_losses.py. */")
print("/* clang-format off */")
print("static const struct golden golden_losses[] = {")
for name, values in rows:
    values = values.flatten().tolist()
    print(f'{{"{name}", {len(values)}, (const double[]){{')
    for i in range(0, len(values), 5):
        print(" ".join(f"{v:.14g}," for v in values[i:i + 5]))
    print("}},")
print("};")
print("/* clang-format on */")
