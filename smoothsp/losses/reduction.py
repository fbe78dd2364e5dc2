"""Weights and reductions of losses."""

from typing import Literal, get_args

import torch
from torch import Tensor

from smoothsp.oracles import Structure
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.rounding import multiply_by_weight
from smoothsp.oracles._inference.tracing import is_eager_tensor

Reduction = Literal["none", "sum", "mean", "token_mean"]


def check_reduction(reduction: Reduction) -> Reduction:
    """Return the reduction if its name is valid, else raise."""
    if reduction not in get_args(Reduction):
        raise ValueError(
            f"reduction: expected one of {get_args(Reduction)}, got {reduction!r}"
        )
    return reduction


def row_weights(
    structure: Structure,
    y: Tensor,
    weight: Tensor | None,
    class_weight: Tensor | None,
    reduction: Reduction,
    truth: str = "y",
) -> Tensor | float:
    """Return the factor of each example's loss in the sum, ``(batch,)`` or a number.

    The weight of the example, times the mean weight of its gold labels, divided by the
    denominator of the reduction. ``truth`` is the name of y in error messages.
    """
    _require_structure(structure)
    # torch.compile does not find __len__ of a tensor before PyTorch 2.9
    if not (y.dim() if isinstance(y, Tensor) else hasattr(y, "__len__")):
        raise TypeError(
            f"{truth}: expected an entry for each row of the batch, got "
            f"{'a number' if isinstance(y, Tensor) else type(y).__name__}"
        )
    # the output of a graph of structures is a dict of their outputs
    batch = len(next(iter(y.values()))) if isinstance(y, dict) else len(y)
    if weight is not None:
        lengths = structure.lengths
        batch = len(lengths)
        weight = checks.as_row_weights("weight", weight, batch, lengths.device)
        _require_finite("weight", weight)
        # losses negate weights, which unsigned and bool tensors do not support
        if not weight.is_floating_point():
            weight = weight.double()
    if class_weight is not None:
        row_weight = _mean_class_weight(structure, y, class_weight)
        # in float64, as the product may overflow float32
        weight = row_weight if weight is None else row_weight * weight.double()
    if reduction in ("none", "sum"):
        return 1.0 if weight is None else weight
    # an empty batch has loss 0
    if reduction == "mean" and weight is None:
        return 1 / max(batch, 1)
    lengths = structure.lengths
    if weight is None:
        # a tensor, so that no value is copied from the device
        return (1 / lengths.sum().clamp(min=1).double()).expand(batch)
    # in float64, as the sum may overflow float32
    float64_weight = weight.double()
    count = (
        (float64_weight * lengths).sum()
        if reduction == "token_mean"
        else float64_weight.sum()
    )
    if (
        is_eager_tensor(count)
        and not bool(count.isfinite())
        and bool(weight.isfinite().all())
    ):
        raise ValueError(
            "weight: expected weights whose sum fits float64, got weights up to "
            f"{weight.abs().max().item():.3g}; divide them by a number"
        )
    # if all weights are 0 the loss is 0, not NaN
    return float64_weight / torch.where(count == 0, 1, count)


def class_weights(value: object) -> Tensor | None:
    """Return ``value`` as real numbers ``(state,)``, or None."""
    if value is None:
        return None
    weights = checks.as_dense("class_weight", value)
    if weights.is_complex():
        raise TypeError(f"class_weight: expected real numbers, got {weights.dtype}")
    if weights.dim() != 1:
        raise ValueError(f"class_weight: expected (state,), got {tuple(weights.shape)}")
    _require_finite("class_weight", weights)
    return weights


def _require_finite(name: str, value: Tensor) -> None:
    if is_eager_tensor(value) and not bool(value.isfinite().all()):
        index = int((~value.isfinite()).nonzero()[0, 0])
        raise ValueError(
            f"{name}: expected finite numbers, got {value[index].item()} at {index}"
        )


def _require_structure(structure: object) -> None:
    """Raise if the argument has no method of a structure."""
    # hasattr, not isinstance: torch.compile does not support protocols
    if not hasattr(structure, "score") and not hasattr(structure, "log_prob_within"):
        hint = "; put scores into one" if isinstance(structure, Tensor) else ""
        raise TypeError(
            "structure: expected a structure, such as Chain(emissions, transitions), "
            f"got {type(structure).__name__}{hint}"
        )


def _mean_class_weight(structure: Structure, y: Tensor, class_weight: Tensor) -> Tensor:
    """Return the mean weight of gold labels of each row; 1 for a row without labels."""
    counts = structure.label_counts(y)
    if class_weight.device != counts.device:
        raise TypeError(
            f"class_weight: expected a tensor on {counts.device} like the potentials, "
            f"got one on {class_weight.device}; move the loss there with .to(device)"
        )
    if tuple(class_weight.shape) != (counts.shape[1],):
        raise ValueError(
            f"class_weight: expected (state,) = ({counts.shape[1]},), "
            f"got {tuple(class_weight.shape)}"
        )
    # in float64: integer counts times float32 weights would be rounded
    labels = counts.sum(1, dtype=torch.float64)
    total = counts.double() @ class_weight.double()
    return torch.where(labels == 0, 1, total / labels.clamp(min=1))


def reduce(losses: Tensor, weight: Tensor | float, reduction: Reduction) -> Tensor:
    """Return losses times ``row_weights``, summed unless the reduction is "none"."""
    if isinstance(weight, Tensor):
        weight = weight.to(losses.dtype)
    row_values = losses * weight
    # rows of weight 0 add 0 even if their loss is infinite
    if not is_eager_tensor(row_values) or not bool(row_values.isfinite().all()):
        row_values = multiply_by_weight(losses, weight)
    return row_values if reduction == "none" else row_values.sum()
