"""Eager PyTorch on the update of bench_sac, as CleanRL's sac_continuous_action.py has it: prints
microseconds. The argument is the number of threads."""
import sys
import time

import torch
from torch import nn

torch.set_num_threads(int(sys.argv[1]))
STATE, ACTION, HIDDEN, BATCH = 17, 6, 256, 256


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
                         nn.Linear(HIDDEN, outputs))


policy = mlp(STATE, 2 * ACTION)
critics, targets = ([mlp(STATE + ACTION, 1) for _ in range(2)] for _ in range(2))
log_alpha = torch.zeros(1, requires_grad=True)
adam = {"lr": 3e-4, "fused": True}
policy_adam = torch.optim.Adam(policy.parameters(), **adam)
critic_adam = torch.optim.Adam([p for q in critics for p in q.parameters()], **adam)
alpha_adam = torch.optim.Adam([log_alpha], **adam)
states, next_states = torch.randn(BATCH, STATE), torch.randn(BATCH, STATE)
taken, rewards = 0.3 * torch.randn(BATCH, ACTION), torch.randn(BATCH, 1)


def draw(x):
    mean, log_std = policy(x).chunk(2, 1)
    normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp(), validate_args=False)
    u = normal.rsample()
    action = u.tanh()
    log_prob = normal.log_prob(u) - 2 * (0.6931471805599453 - u - nn.functional.softplus(-2 * u))
    return action, log_prob.sum(1, keepdim=True)


def update():
    alpha = log_alpha.exp().detach()
    with torch.no_grad():
        action, log_prob = draw(next_states)
        both = torch.cat([next_states, action], 1)
        q = torch.min(targets[0](both), targets[1](both))
        target = rewards + 0.99 * (q - alpha * log_prob)
    both = torch.cat([states, taken], 1)
    loss = sum(nn.functional.mse_loss(critic(both), target) for critic in critics)
    critic_adam.zero_grad(set_to_none=True)
    loss.backward()
    critic_adam.step()
    action, log_prob = draw(states)
    both = torch.cat([states, action], 1)
    for critic in critics:
        critic.requires_grad_(False)
    loss = (alpha * log_prob - torch.min(critics[0](both), critics[1](both))).mean()
    policy_adam.zero_grad(set_to_none=True)
    loss.backward()
    policy_adam.step()
    for critic in critics:
        critic.requires_grad_(True)
    alpha_loss = (-log_alpha.exp() * (log_prob.detach() - ACTION)).mean()
    alpha_adam.zero_grad(set_to_none=True)
    alpha_loss.backward()
    alpha_adam.step()
    with torch.no_grad():
        torch._foreach_lerp_([p for q in targets for p in q.parameters()],
                             [p for q in critics for p in q.parameters()], 0.005)


for _ in range(20):
    update()
times = []
for _ in range(200):
    start = time.perf_counter()
    update()
    times.append(time.perf_counter() - start)
print(f"{sorted(times)[100] * 1e6:.1f}")
