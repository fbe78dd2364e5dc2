"""Train structured prediction models in PyTorch."""

import importlib
from typing import Any

from smoothsp import (
    constraints,
    losses,
    metrics,
    optim,
    oracles,
    projections,
    schemes,
)
from smoothsp.compilation import compile_kernels
from smoothsp.layers import LinearChain

__version__ = "0.1.0"

__all__ = [
    "LinearChain",
    "compile_kernels",
    "constraints",
    "losses",
    "metrics",
    "optim",
    "oracles",
    "projections",
    "schemes",
]

# They need extras, and are imported when they are asked for.
_LATER = ("data", "figures", "lightning", "linear", "models")


def __dir__() -> list[str]:
    return sorted([*__all__, *_LATER, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return importlib.import_module(f"smoothsp.{name}")
    raise AttributeError(f"module 'smoothsp' has no attribute {name!r}")
