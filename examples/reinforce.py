"""REINFORCE (Williams 1992) learns to balance a pole."""

import argparse
from typing import Any

import numpy as np
from cartpole import CartPole

import needle as ndl
import needle.nn as nn
from needle.distributions import Categorical


def episode(world: CartPole, policy: nn.Module) -> Any:
    """The logarithms of the probabilities of what was done, and the rewards."""
    state, over, log_probs, rewards = world.reset(), False, [], []
    while not over:
        choice = Categorical(logits=policy(ndl.Tensor(state, requires_grad=False)))
        action = choice.sample()
        log_probs.append(choice.log_prob(action))
        state, reward, over = world.step(int(action.item()))
        rewards.append(reward)
    return log_probs, rewards


def returns_of(rewards: list[float], discount: float = 0.99) -> Any:
    """What came after each step, discounted, with mean 0 and variance 1."""
    total, found = 0.0, []
    for reward in reversed(rewards):
        total = reward + discount * total
        found.append(total)
    values = np.array(found[::-1])
    return (values - values.mean()) / (values.std() + 1e-8)


def main(episodes: int = 200, seed: int = 0) -> Any:
    np.random.seed(seed)  # noqa: NPY002  what weights and actions are drawn from
    world = CartPole(seed)
    policy = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Dropout(p=0.2), nn.Linear(64, 2))
    optimizer = ndl.optim.Adam(policy.parameters(), lr=1e-2)
    lengths = []
    for number in range(episodes):
        log_probs, rewards = episode(world, policy)
        loss = -(ndl.stack(log_probs) * ndl.Tensor(returns_of(rewards))).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lengths.append(len(rewards))
        if number % 20 == 0:
            print(f"episode {number}: balanced for {np.mean(lengths[-20:]):.0f} steps")
    return lengths


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=200)
    main(parser.parse_args().episodes)
