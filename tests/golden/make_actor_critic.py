"""Writes golden_actor_critic.h: losses of actors and critics as PyTorch code has them, with gradients
by autograd, in double.

    python make_actor_critic.py > ../nn/loss/golden_actor_critic.h        (made with PyTorch 2.15.0)

Numbers come from number(), which tests/nn/loss/loss_tools.h has, too, as golden_number(); which
seed is what stands in tests/nn/loss/test_golden_actor_critic.c.
"""
import torch
import torch.nn.functional as F

ROWS, SIZE, SAMPLES, ATOMS = 5, 3, 4, 6


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


def write(name, values):
    flat = values.detach().flatten().tolist()
    print(f'{{"{name}", {len(flat)}, (const double[]){{')
    for i in range(0, len(flat), 5):
        print("".join(f"{x:.12g}, " for x in flat[i:i + 5]).strip())
    print("}},")


def write_grads(name, loss, **inputs):
    write(f"{name}.loss", loss)
    grads = torch.autograd.grad(loss, list(inputs.values()), retain_graph=True)
    for (key, _), grad in zip(inputs.items(), grads):
        write(f"{name}.{key}", grad)


q, q2 = numbers(1, ROWS, scale=2).requires_grad_(), numbers(2, ROWS, scale=2).requires_grad_()
log_probs = numbers(3, ROWS).requires_grad_()
rewards, discounts = numbers(4, ROWS), numbers(5, ROWS)
actions, taken = numbers(6, ROWS, SIZE).requires_grad_(), numbers(7, ROWS, SIZE)
sampled = numbers(8, ROWS, SAMPLES, scale=2).requires_grad_()
densities = numbers(9, ROWS, SAMPLES)
logits = numbers(10, ROWS, ATOMS, scale=2).requires_grad_()
index = torch.tensor([i % SAMPLES for i in range(ROWS)])

print("/* Made by tests/golden/make_actor_critic.py. */")
print("/* clang-format off */")
print("static const struct golden golden_actor_critic[] = {")
# CleanRL's sac_continuous_action.py and td3_continuous_action.py
write("sac.targets", rewards + discounts * (torch.min(q, q2) - 0.2 * log_probs))
write_grads("sac", (0.2 * log_probs - torch.min(q, q2)).mean(), q=q, q2=q2, log_probs=log_probs)
log_alpha = torch.tensor(-0.7, dtype=torch.float64, requires_grad=True)
write_grads("alpha", (-log_alpha.exp() * (log_probs.detach() - SIZE)).mean(), dlog=log_alpha)
write_grads("td3", -q.mean(), q=q)
# TD3_BC/TD3_BC.py
lmbda = 2.5 / q.abs().mean().detach()
write_grads("td3_bc", -lmbda * q.mean() + F.mse_loss(actions, taken), q=q, actions=actions)
z = torch.linspace(-2, 3, ATOMS, dtype=torch.float64)
write_grads("d4pg", -(logits.softmax(1) * z).sum(1).mean(), logits=logits)
# implicit_q_learning's loss(diff, expectile)
diff = q2.detach() - q
write_grads("iql", (torch.where(diff > 0, 0.8, 1 - 0.8) * diff**2).mean(), values=q)
# CQL/rlkit's min_qf_loss, discrete and with importance samples
chosen = sampled.gather(1, index[:, None])[:, 0]
write_grads("cql", 3 * (torch.logsumexp(sampled, 1) - chosen).mean(), sampled=sampled)
mean_log = torch.logsumexp(sampled - densities, 1) - torch.log(torch.tensor(float(SAMPLES)))
write_grads("cql_sampled", 5 * (mean_log - q).mean(), sampled=sampled, q=q)
# MPO/MPO.call of acme/tf/losses/mpo.py, its divergences by torch.distributions
temperature = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
eta = F.softplus(temperature) + 1e-8
weights = (sampled.detach() / eta.detach()).softmax(1)
write("mpo.weights", SAMPLES * weights)
average = (torch.logsumexp(sampled.detach() / eta, 1) - torch.log(torch.tensor(4.0))).mean()
write_grads("mpo.dual", eta * (0.2 + average), temperature=temperature)
mean, log_std = numbers(11, ROWS, SIZE).requires_grad_(), numbers(12, ROWS, SIZE).requires_grad_()
target = torch.distributions.Normal(numbers(13, ROWS, SIZE), numbers(14, ROWS, SIZE).exp())
fixed_std = torch.distributions.Normal(mean, target.stddev)
fixed_mean = torch.distributions.Normal(target.mean, log_std.exp())
done = target.mean[:, None] + target.stddev[:, None] * numbers(15, ROWS, SAMPLES, SIZE)
for name, policy, learned in (("mean", fixed_std, mean), ("std", fixed_mean, log_std)):
    logs = torch.distributions.Normal(policy.mean[:, None], policy.stddev[:, None]).log_prob(done)
    write_grads(f"mpo.{name}.step", -(weights * logs.sum(2)).sum(1).mean(), learned=learned)
    divergence = torch.distributions.kl_divergence(target, policy).mean(0)
    number_ = numbers(16, SIZE).requires_grad_()
    alpha = F.softplus(number_) + 1e-8
    write_grads(f"mpo.{name}.bound", (alpha.detach() * divergence).sum(), learned=learned)
    multiplier = (alpha * (0.05 - divergence.detach())).sum()
    write_grads(f"mpo.{name}.multiplier", multiplier, number=number_)
print("};")
