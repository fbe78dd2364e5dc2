"""Answers about scores so large that sums of them may leave the dtype."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from smoothsp.oracles._questions.registration import is_plain

if TYPE_CHECKING:
    from smoothsp.oracles._circuits.structure import CircuitStructure


def has_large(structure: "CircuitStructure") -> bool:
    """Whether positive scores of one output may add up beyond an eighth of the range.

    Then sums are taken in float64. Large negative ones alone are no such case: where
    they leave the range, any other output is ahead.
    """
    if not is_plain(structure._main):
        return False
    potentials = [*structure._own.values(), *structure._common.values()]
    parts = max(structure._asked.topology.most, 1)
    limit = torch.finfo(structure._main.dtype).max / 8 / parts
    return any(x.numel() > 0 and bool(x.detach().amax() > limit) for x in potentials)


def held(value: Tensor, structure: "CircuitStructure", what: str) -> Tensor:
    """The float64 value in the dtype of the structure, which has to have room for it.

    Its infinities are refused too: no row without an output gets here.
    """
    found = value.to(structure._main.dtype)
    if is_plain(found) and not bool(found.isfinite().all()):
        refuse(found, structure, what)
    return found


def refuse(found: Tensor, structure: "CircuitStructure", what: str) -> None:
    """An error that names the largest of the potentials."""
    dtype = structure._main.dtype
    sizes = {}
    for name, x in (*structure._own.items(), *structure._common.items()):
        finite = x.detach().abs().nan_to_num(0, posinf=0)
        sizes[name] = float(finite.amax()) if x.numel() else 0.0
    name = max(sizes, key=lambda name: sizes[name])
    row = int((~found.isfinite()).nonzero()[0, 0])
    instead = ", or use float64" if dtype == torch.float32 else ""
    raise ValueError(
        f"{name}: expected scores so small that {dtype} has room for {what}, got "
        f"entries of up to {sizes[name]:.3g}, and a sum beyond "
        f"{torch.finfo(dtype).max:.3g} in row {row}; scale the scores down, forbid "
        f"with -inf{instead}"
    )
