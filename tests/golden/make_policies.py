"""Writes golden_policies.h: what torch.distributions says of policies, with gradients by autograd, and
losses of policies, in double.

    python make_policies.py > ../nn/loss/golden_policies.h        (made with PyTorch 2.15.0)

Numbers come from number(), which tests/nn/loss/loss_tools.h has, too, as golden_number(); which
seed is what stands in tests/nn/loss/test_golden_policies.c.
"""
import torch
from torch.distributions import (AffineTransform, Categorical, Independent, Normal, TanhTransform,
                                 TransformedDistribution, kl_divergence)

ROWS, CHOICES, SIZE, LOSS_ROWS = 4, 5, 3, 12
PARTS = [3, 2]


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


by = [numbers(seed, ROWS) for seed in (1, 2, 3)]


def categorical(name, sizes, masked):
    logits = numbers(4, ROWS, CHOICES, scale=2).requires_grad_()
    others = numbers(5, ROWS, CHOICES, scale=2).requires_grad_()
    allowed = torch.tensor([[not masked or (i + j) % 3 != 1 for j in range(CHOICES)]
                            for i in range(ROWS)])
    least = torch.finfo(torch.float64).min / 4
    split = [torch.where(allowed, x, least).split(sizes, 1) for x in (logits, others)]
    p, q = [[Categorical(logits=part) for part in parts] for parts in split]
    actions = [torch.tensor([next((i + j) % n for j in range(n) if ok[i][(i + j) % n])
                             for i in range(ROWS)])
               for n, ok in zip(sizes, allowed.split(sizes, 1))]
    log_prob = sum(d.log_prob(a) for d, a in zip(p, actions))
    entropy = sum(d.entropy() for d in p)
    divergence = sum(kl_divergence(a, b) for a, b in zip(p, q))
    write(f"{name}.log_prob", log_prob)
    write(f"{name}.entropy", entropy)
    write(f"{name}.kl", divergence)
    loss = (by[0] * log_prob + by[1] * entropy).sum()
    write(f"{name}.gradient", torch.autograd.grad(loss, logits, retain_graph=True)[0])
    dp, dq = torch.autograd.grad((by[2] * divergence).sum(), (logits, others))
    write(f"{name}.kl_p", dp)
    write(f"{name}.kl_q", dq)


def gaussian(name, squashed, bounds, low=None, high=None):
    mean, log_std = numbers(6, ROWS, SIZE).requires_grad_(), numbers(7, ROWS, SIZE).requires_grad_()
    noise, by_action = numbers(8, ROWS, SIZE, scale=2), numbers(9, ROWS, SIZE)
    given = numbers(10, ROWS, SIZE)
    transforms = [TanhTransform()] if squashed else []
    if low:
        low, high = torch.tensor(low).double(), torch.tensor(high).double()
        half, middle = (high - low) / 2, (high + low) / 2
        transforms.append(AffineTransform(middle, half))
        given = middle + half * given
    std = (log_std.clamp(*bounds) if bounds else log_std).exp()
    base = Normal(mean, std)
    policy = TransformedDistribution(base, transforms) if squashed else base
    policy = Independent(policy, 1)
    u = mean + std * noise
    action = u
    for transform in transforms:
        action = transform(action)
    log_prob = policy.log_prob(given)
    sampled = Independent(base, 1).log_prob(u)
    entropy = base.entropy().sum(1)
    if squashed:
        slope = TanhTransform().log_abs_det_jacobian(u, u.tanh()).sum(1)
        slope = slope + (half.log().sum() if low is not None else 0)
        sampled, entropy = sampled - slope, entropy + slope
    write(f"{name}.action", action)
    write(f"{name}.log_prob", log_prob)
    write(f"{name}.sampled", sampled)
    write(f"{name}.entropy", entropy)
    loss = (by[0] * log_prob + by[1] * sampled + by[2] * entropy).sum() + (by_action * action).sum()
    dmean, dlog_std = torch.autograd.grad(loss, (mean, log_std))
    write(f"{name}.mean", dmean)
    write(f"{name}.log_std", dlog_std)


def divergences():
    p = [numbers(seed, ROWS, SIZE).requires_grad_() for seed in (6, 7)]
    q = [numbers(seed, ROWS, SIZE).requires_grad_() for seed in (11, 12)]
    divergence = kl_divergence(Normal(p[0], p[1].exp()), Normal(q[0], q[1].exp())).sum(1)
    write("kl.divergence", divergence)
    for what, d in zip(("p_mean", "p_log_std", "q_mean", "q_log_std"),
                       torch.autograd.grad((by[0] * divergence).sum(), (*p, *q))):
        write(f"kl.{what}", d)
    old = Normal(p[0].detach(), p[1].exp().detach())
    means = kl_divergence(old, Normal(q[0], old.scale))
    stds = kl_divergence(old, Normal(old.loc, q[1].exp()))
    write("decoupled.means", means)
    write("decoupled.stds", stds)
    loss = (numbers(8, ROWS, SIZE) * means + numbers(9, ROWS, SIZE) * stds).sum()
    for what, d in zip(("mean", "log_std"), torch.autograd.grad(loss, q)):
        write(f"decoupled.{what}", d)


def losses(clip=0.25, bonus=0.125, beta=0.5):
    log_prob, entropy = numbers(13, LOSS_ROWS).requires_grad_(), numbers(14, LOSS_ROWS).requires_grad_()
    old, advantages = numbers(15, LOSS_ROWS), numbers(16, LOSS_ROWS, scale=2)
    weights = (numbers(17, LOSS_ROWS) + 1) / 2
    ratio = (log_prob - old).exp()
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    for name, gained in (("ppo", surrogate), ("gradient", advantages * log_prob)):
        loss = -(weights * (gained + bonus * entropy)).mean()
        write(f"{name}.loss", loss)
        for what, d in zip(("log_probs", "entropies"), torch.autograd.grad(loss, (log_prob, entropy))):
            write(f"{name}.{what}", d)
    write("ppo.divergence", ((ratio - 1) - ratio.log()).mean())
    write("ppo.clipped", ((ratio - 1).abs() > clip).double().mean())
    write("advantages.normalized",
          (advantages - advantages.mean()) / (advantages.std(unbiased=False) + 1e-8))
    q, policy_q = numbers(18, LOSS_ROWS, scale=2), numbers(19, LOSS_ROWS, SIZE, scale=2)
    over_mean, over_max = q - policy_q.mean(1), q - policy_q.max(1).values
    crr = {"exp": (over_mean / beta).exp().clamp(max=4), "max": (over_max / beta).exp().clamp(max=4),
           "binary": (over_mean > 0).double()}
    for name, weight in crr.items():
        loss = -(weight * log_prob).mean()
        write(f"crr_{name}.loss", loss)
        write(f"crr_{name}.log_probs", torch.autograd.grad(loss, log_prob)[0])


categorical("categorical", [CHOICES], False)
categorical("masked", [CHOICES], True)
categorical("parts", PARTS, True)
gaussian("gaussian", False, None)
gaussian("bounded", False, (-0.5, 0.25))
gaussian("squashed", True, None)
gaussian("scaled", True, None, [-2, 0, 1], [2, 0.5, 4])
divergences()
losses()

print("/* Made by tests/golden/make_policies.py. */")
print("/* clang-format off */")
print("static const struct golden golden_policies[] = {")
for name, values in rows:
    values = values.flatten().tolist()
    print(f'{{"{name}", {len(values)}, (const double[]){{')
    for i in range(0, len(values), 5):
        print(" ".join(f"{v:.12g}," for v in values[i:i + 5]))
    print("}},")
print("};")
print("/* clang-format on */")
