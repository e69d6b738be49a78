"""Probability distributions: samples, logarithms of densities, entropies; users reach them as needle.distributions."""

from needle_nn import absent
from needle_nn.distributions.base import Distribution
from needle_nn.distributions.continuous import Exponential, Laplace, Normal, Uniform
from needle_nn.distributions.discrete import Bernoulli, Categorical, Independent
from needle_nn.distributions.divergences import kl_divergence
from needle_nn.distributions.multivariate import MultivariateNormal

__all__ = [
    "Distribution", "Normal", "Laplace", "Uniform", "Exponential", "Bernoulli", "Categorical", "Independent",
    "MultivariateNormal", "kl_divergence",
]  # fmt: skip

__getattr__ = absent.says("needle.distributions", absent.DISTRIBUTIONS)
