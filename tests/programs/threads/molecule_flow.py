"""A generative flow network: trajectories from a policy, a replay buffer, trajectory balance."""
import random
from collections import deque

import torch
from torch import nn

NODES, FEATURES, ACTIONS, WIDTH = 64, 96, 128, 512
ONLINE, REPLAYED, LENGTH, STEPS = 32, 32, 8, 60


class ReplayBuffer:
    def __init__(self, capacity):
        self.buffer = deque(maxlen=capacity)

    def push(self, *items):
        self.buffer.append(items)

    def sample(self, count):
        return random.choices(self.buffer, k=count)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU())
        self.head = nn.Linear(WIDTH, ACTIONS)
        self.log_z = nn.Parameter(torch.zeros(()))

    def forward(self, graphs):
        return self.head(self.embed(graphs).mean(-2)).log_softmax(-1)


def sample_trajectories(policy, count):
    graphs = torch.zeros(count, LENGTH, NODES, FEATURES, device="cuda")
    for step in range(LENGTH - 1):
        with torch.no_grad():
            action = torch.multinomial(policy(graphs[:, step]).exp(), 1)
        graphs[:, step + 1] = graphs[:, step]
        graphs[:, step + 1, step, :1] += action
    rewards = graphs[:, -1].sum((-1, -2)).exp().clamp(1e-3, 10)
    return [(graphs[i].clone(), rewards[i].clone()) for i in range(count)]


def trajectory_balance(policy, trajectories):
    graphs = torch.stack([one[0] for one in trajectories]).cuda()
    rewards = torch.stack([one[1] for one in trajectories]).cuda()
    log_probabilities = policy(graphs).amax(-1).sum(-1)
    return (policy.log_z + log_probabilities - rewards.log()).square().mean()


def main():
    policy = Policy().cuda()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)
    replay = ReplayBuffer(10000)
    for step in range(STEPS):
        trajectories = sample_trajectories(policy, ONLINE)
        for graph, reward in trajectories:
            replay.push(graph, reward)
        loss = trajectory_balance(policy, trajectories + replay.sample(REPLAYED))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
