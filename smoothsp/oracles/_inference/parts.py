"""Part counts of outputs, scores and requirements, for any structure."""

from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles._inference import double_double, in_graphs
from smoothsp.oracles._inference.double_double import DoubleDouble
from smoothsp.oracles._inference.score_values import COARSE, value_flags
from smoothsp.oracles._inference.tracing import is_eager


def part_counts(structure: Any, y: Tensor) -> Tensor:
    """Number of times the outputs y use each part, in the shape of a cost.

    A score is linear in the potentials, so the counts are its gradient with respect to
    an added cost.
    """
    require_additive_cost(structure)
    counts: Tensor = in_graphs.call_as_graph_op(
        structure,
        _compute_part_counts,
        (y,),
        in_graphs.cost_result,
        has_no_gradient=True,
    )
    return counts


def _compute_part_counts(structure: Any, y: Tensor) -> Tensor:
    if getattr(structure, "_gold_parts_index_potentials", False) and is_eager():
        first_potentials = structure._first_potentials
        entries, size = (
            structure._gold_parts(y)[:, 0],
            first_potentials.shape[1:].numel(),
        )
        # parts beyond the first potentials, and padding, go to a column that is cut off
        entries = torch.where((entries >= 0) & (entries < size), entries, size)
        counts = first_potentials.new_zeros(len(first_potentials), size + 1)
        counts.scatter_add_(1, entries, counts.new_ones(entries.shape))
        reshaped: Tensor = counts[:, :size].reshape(first_potentials.shape)
        return reshaped

    def score(cost: Tensor) -> Tensor:
        total: Tensor = structure.augment(cost).score(y).sum()
        return total

    zero = torch.zeros_like(structure.hamming(y))
    if torch._C._are_functorch_transforms_active():
        slope: Tensor = torch.func.grad(score)(zero)
        return slope
    with torch.enable_grad():
        cost = zero.requires_grad_()
        total = score(cost)
        if not total.requires_grad:
            return cost.detach()
        (parts,) = torch.autograd.grad(total, cost)
    return parts


def require_additive_cost(structure: Any) -> None:
    """Raise TypeError unless costs are added to single parts of the structure."""
    if not hasattr(structure, "decode") or not getattr(
        structure, "_has_additive_cost", True
    ):
        raise TypeError(
            "structure: expected one that adds a cost to each part, got "
            f"{type(structure).__name__}; StructuralHinge takes any structure"
        )


def float64_if_large(structure: Any) -> tuple[Any, bool]:
    """Return the structure, in float64 if float32 scores are large, and a flag."""
    if not hasattr(structure, "_to_float64") or not is_eager():
        return structure, False
    values = structure._potentials().values()
    if next(iter(values)).dtype == torch.float32 and has_large_scores(structure):
        return structure._to_float64(), True
    return structure, False


def training_hint(structure: Any, default: str = "") -> str:
    """Return the end of an error message: losses that can train the structure."""
    if hasattr(structure, "relaxed_maximum"):
        return (
            "; train a FactorGraph with SparseMAPLoss, or with relaxed=True and "
            "StructuralHinge, StructuredPerceptron or PerturbedLoss"
        )
    return default


def has_large_scores(structure: Any) -> bool:
    """Whether a score has a magnitude above 64."""
    for x in structure._potentials().values():  # noqa: SIM110 - a generator takes long
        if value_flags(x) & COARSE:
            return True
    return False


def require_first_potentials(structure: Any) -> Tensor:
    """Return the potentials that a cost is added to; raise TypeError without them."""
    potentials = getattr(structure, "_first_potentials", None)
    if isinstance(potentials, Tensor):
        return potentials
    raise TypeError(
        "structure: expected one of smoothsp.oracles, or one that inherits from "
        f"CircuitStructure, got {type(structure).__name__}{training_hint(structure)}"
    )


def score_outputs(structure: Any, ys: Tensor) -> DoubleDouble:
    """Scores ``(batch, k)`` of the outputs ``ys``, ``(batch, k, ...)``."""
    if hasattr(structure, "decode_topk"):
        return double_double.score(structure, ys)
    return DoubleDouble(torch.stack([structure.score(y) for y in ys.unbind(1)], 1))


def repeat_rows(structure: Any, n: int) -> Any:
    """Return the structure with each row repeated n times in succession."""
    require_additive_cost(structure)
    lengths = structure.lengths
    rows = torch.arange(len(lengths), device=lengths.device)
    return structure.select(rows.repeat_interleave(n))
