"""A pole on a cart that is pushed left or right (Barto, Sutton & Anderson 1983): the world that reinforce.py learns in."""

import math

import numpy as np


class CartPole:
    """`reset()` gives a state (4,); `step(0 or 1)` the next one, a reward of 1, and whether it is over: fallen, or 500 steps."""

    gravity, mass_of_cart, mass_of_pole, half_length, force, seconds = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def reset(self) -> np.ndarray:
        self.state, self.steps = self.rng.uniform(-0.05, 0.05, 4), 0
        return self.state.astype("float32")

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        _, speed, angle, turning = self.state
        push = self.force if action else -self.force
        mass, moment = self.mass_of_cart + self.mass_of_pole, self.mass_of_pole * self.half_length
        sin, cos = math.sin(angle), math.cos(angle)
        along = (push + moment * turning**2 * sin) / mass
        turn = (self.gravity * sin - cos * along) / (self.half_length * (4 / 3 - self.mass_of_pole * cos**2 / mass))
        rates = np.array([speed, along - moment * turn * cos / mass, turning, turn])
        self.state, self.steps = self.state + self.seconds * rates, self.steps + 1
        fallen = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 12 * math.pi / 180
        return self.state.astype("float32"), 1.0, bool(fallen or self.steps >= 500)
