"""Train structured prediction models in PyTorch."""

from smoothsp import constraints, losses, metrics, optim, oracles, projections
from smoothsp.layers import LinearChain

__version__ = "0.1.0"

__all__ = [
    "LinearChain",
    "constraints",
    "losses",
    "metrics",
    "optim",
    "oracles",
    "projections",
]
