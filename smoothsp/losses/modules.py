"""The losses as modules: formula, weights, reduction."""

from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from smoothsp.losses import functional
from smoothsp.losses.functional import Cost
from smoothsp.losses.smoothing import L2, Smoothing
from smoothsp.oracles import Structure, Summed, SumStructure
from smoothsp.oracles._questions import checks

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
        row_weight = _weights(structure, y, weight, self.class_weight, self.reduction)
        hamming = isinstance(batch_cost, str) and batch_cost == "hamming"
        if self.smoothing is None and (hamming or batch_cost is None):
            summed = _summed(structure, self.reduction)
            if summed is not None:
                return summed.violation(y, row_weight, scale if hamming else 0.0)
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
        return _reduce(losses, row_weight, self.reduction)

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
        row_weight = _weights(structure, y, weight, self.class_weight, self.reduction)
        summed = _summed(structure, self.reduction)
        if summed is not None:
            return summed.log_likelihood(y, -row_weight)
        return _reduce(functional.crf_nll(structure, y), row_weight, self.reduction)


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
        row_weight = _weights(structure, y, weight, self.class_weight, self.reduction)
        summed = _summed(structure, self.reduction)
        if summed is not None:
            return summed.violation(y, row_weight, 0.0)
        return _reduce(functional.perceptron(structure, y), row_weight, self.reduction)


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
    reduction: Reduction,
) -> Tensor | float:
    """What each example's loss is multiplied by, before all are added up.

    Its own weight times the mean of its gold labels', over what the reduction says.
    """
    batch = len(y)
    if weight is not None:
        lengths = structure.lengths
        batch = len(lengths)
        weight = checks.row_weights("weight", weight, batch, lengths.device)
    if class_weight is not None:
        own = _mean_class_weight(structure, y, class_weight)
        weight = own if weight is None else own * weight
    if reduction in ("none", "sum"):
        return 1.0 if weight is None else weight
    # an empty batch costs nothing
    if reduction == "mean" and weight is None:
        return 1 / max(batch, 1)
    lengths = structure.lengths
    if weight is None:
        # a tensor, so that nothing waits for its value
        return (1 / lengths.sum().clamp(min=1).double()).expand(batch)
    count = (weight * lengths).sum() if reduction == "token_mean" else weight.sum()
    return weight / torch.where(count == 0, 1, count)


def _summed(structure: Structure, reduction: Reduction) -> Summed | None:
    """The structure, if it sums losses over its rows and this is wanted."""
    wanted = reduction != "none" and isinstance(structure, Summed)
    return cast(Summed, structure) if wanted else None


def _mean_class_weight(structure: Structure, y: Tensor, class_weight: Tensor) -> Tensor:
    """Mean weight of the gold labels of each row; 1 for a row without labels."""
    counts = structure.label_counts(y)
    if class_weight.device != counts.device:
        raise TypeError(
            f"class_weight: expected a tensor on {counts.device} like the potentials, "
            f"got one on {class_weight.device}; move the loss there with .to(device)"
        )
    counts = counts.to(class_weight.dtype)
    if tuple(class_weight.shape) != (counts.shape[1],):
        raise ValueError(
            f"class_weight: expected (state,) = ({counts.shape[1]},), "
            f"got {tuple(class_weight.shape)}"
        )
    lengths = structure.lengths
    return torch.where(lengths == 0, 1, counts @ class_weight / lengths.clamp(min=1))


def _reduce(losses: Tensor, weight: Tensor | float, reduction: Reduction) -> Tensor:
    if isinstance(weight, Tensor):
        weight = weight.to(losses.dtype)
    losses = losses * weight
    return losses if reduction == "none" else losses.sum()
