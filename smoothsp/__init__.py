"""Train structured prediction models in PyTorch."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# Modules are imported at first use: torch takes seconds, and some need extras.
_LATER = ("data", "figures", "lightning", "linear", "models")
_INSIDE = {
    "LinearChain": "smoothsp.layers",
    "compile_kernels": "smoothsp.compilation",
}


def __dir__() -> list[str]:
    return sorted([*__all__, *_LATER, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _INSIDE:
        return getattr(importlib.import_module(_INSIDE[name]), name)
    if name in __all__ or name in _LATER:
        return importlib.import_module(f"smoothsp.{name}")
    raise AttributeError(f"module 'smoothsp' has no attribute {name!r}")
