"""The losses as modules: formula, weights, reduction."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from smoothsp.losses import functional
from smoothsp.losses.functional import Cost
from smoothsp.losses.smoothing import L2, Smoothing
from smoothsp.oracles import Structure, SumStructure

Reduction = Literal["none", "sum", "mean", "token_mean"]


class StructuralHinge(nn.Module):
    """Structural hinge loss, ``max [s(y') + c(y')] - s(y)``, smoothed or not.

    Parameters
    ----------
    smoothing
        ``None``, ``Entropy(mu)`` or ``L2(mu, k)``.
    cost
        ``"hamming"``, ``None``, or a tensor: see ``functional.structural_hinge``.
    cost_scale
        Multiplies the cost, >= 0.
    class_weight
        ``(state,)``: an example's loss is multiplied by the mean over its gold labels.
    reduction
        ``"none"``: ``(batch,)``. ``"sum"``. ``"mean"``: weighted mean over the rows.
        ``"token_mean"``: sum over the (weighted) number of real positions.

    Attributes
    ----------
    exact
        After a call with ``L2``: ``(batch,)`` bool, was the top-k smoothing exact?
        Otherwise None.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import L2, StructuralHinge
    >>> from smoothsp.oracles import Multiclass
    >>> loss = StructuralHinge(L2(mu=1.0, k=2))
    >>> loss(Multiclass(torch.tensor([[2.0, 2.0, 0.0]])), torch.tensor([0]))
    tensor(1.)
    >>> loss.exact
    tensor([True])
    """

    exact: Tensor | None
    class_weight: Tensor | None

    def __init__(
        self,
        smoothing: Smoothing = None,
        cost: Cost = "hamming",
        cost_scale: float = 1.0,
        class_weight: Tensor | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.cost = cost
        self.cost_scale = cost_scale
        self.reduction = _check_reduction(reduction)
        self.register_buffer("class_weight", class_weight, persistent=False)
        self.exact = None

    def forward(
        self,
        structure: Structure,
        y: Tensor,
        weight: Tensor | None = None,
        cost: Tensor | None = None,
    ) -> Tensor:
        """Loss of the gold outputs y.

        Parameters
        ----------
        structure
            Potentials of a batch.
        y
            Gold outputs.
        weight
            ``(batch,)`` weight of each example.
        cost
            The costs of this batch, in place of the constructor's.
        """
        batch_cost = self.cost if cost is None else cost
        scale = self.cost_scale
        self.exact = None
        if isinstance(self.smoothing, L2):
            losses, self.exact = functional.structural_hinge_l2(
                functional.require_topk(structure),
                y,
                self.smoothing,
                cost=batch_cost,
                cost_scale=scale,
            )
        else:
            losses = functional.structural_hinge(
                structure,
                y,
                smoothing=self.smoothing,
                cost=batch_cost,
                cost_scale=scale,
            )
        weight = _weights(structure, y, weight, self.class_weight)
        return _reduce(losses, structure, weight, self.reduction)

    def extra_repr(self) -> str:
        """Arguments, for ``print``."""
        return f"smoothing={self.smoothing}, reduction={self.reduction!r}"


class CRFLoss(nn.Module):
    """Negative log-likelihood, ``log sum exp s(y') - s(y)``.

    Parameters as ``StructuralHinge``. It is ``StructuralHinge(Entropy(1), cost=None)``.
    """

    class_weight: Tensor | None

    def __init__(
        self, class_weight: Tensor | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__()
        self.reduction = _check_reduction(reduction)
        self.register_buffer("class_weight", class_weight, persistent=False)

    def forward(
        self, structure: SumStructure, y: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Loss of the gold outputs y, with a weight ``(batch,)`` of each example."""
        losses = functional.crf_nll(structure, y)
        weight = _weights(structure, y, weight, self.class_weight)
        return _reduce(losses, structure, weight, self.reduction)


class StructuredPerceptron(nn.Module):
    """Structured perceptron loss, ``max s(y') - s(y)``.

    Parameters as ``StructuralHinge``. It is ``StructuralHinge(cost=None)``.
    """

    class_weight: Tensor | None

    def __init__(
        self, class_weight: Tensor | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__()
        self.reduction = _check_reduction(reduction)
        self.register_buffer("class_weight", class_weight, persistent=False)

    def forward(
        self, structure: Structure, y: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Loss of the gold outputs y, with a weight ``(batch,)`` of each example."""
        losses = functional.perceptron(structure, y)
        weight = _weights(structure, y, weight, self.class_weight)
        return _reduce(losses, structure, weight, self.reduction)


def _check_reduction(reduction: Reduction) -> Reduction:
    if reduction not in get_args(Reduction):
        raise ValueError(
            f"reduction: expected one of {get_args(Reduction)}, got {reduction!r}"
        )
    return reduction


def _weights(
    structure: Structure,
    y: Tensor,
    weight: Tensor | None,
    class_weight: Tensor | None,
) -> Tensor | None:
    """Weight of each example: its own times the mean of its gold labels'."""
    batch = len(structure.lengths)
    if weight is not None and tuple(weight.shape) != (batch,):
        raise ValueError(
            f"weight: expected (batch,) = ({batch},), got {tuple(weight.shape)}"
        )
    if class_weight is None:
        return weight
    counts = structure.label_counts(y).to(class_weight.dtype)
    if tuple(class_weight.shape) != (counts.shape[1],):
        raise ValueError(
            f"class_weight: expected (state,) = ({counts.shape[1]},), "
            f"got {tuple(class_weight.shape)}"
        )
    lengths = structure.lengths
    # a row without labels weighs as much as without class weights
    mean = torch.where(lengths == 0, 1, counts @ class_weight / lengths.clamp(min=1))
    return mean if weight is None else mean * weight


def _reduce(
    losses: Tensor, structure: Structure, weight: Tensor | None, reduction: Reduction
) -> Tensor:
    if weight is not None:
        weight = weight.to(losses.dtype)
        losses = losses * weight
    if reduction == "none":
        return losses
    total = losses.sum()
    if reduction == "sum":
        return total
    # an empty batch costs nothing
    if reduction == "mean" and weight is None:
        return total / max(len(losses), 1)
    weight = torch.ones_like(losses) if weight is None else weight
    if reduction == "token_mean":
        weight = weight * structure.lengths
    count = weight.sum()
    return total / torch.where(count == 0, 1, count)
