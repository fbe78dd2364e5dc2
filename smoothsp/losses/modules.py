"""Losses as modules, with weights and reductions."""

from typing import cast

from torch import Tensor

from smoothsp.losses import functional
from smoothsp.losses.functional import Cost
from smoothsp.losses.module import Loss
from smoothsp.losses.reduction import (
    Reduction,
    check_reduction,
    class_weights,
    reduce,
    row_weights,
)
from smoothsp.losses.smoothing import Smoothing
from smoothsp.oracles import Structure, Summed, SumStructure
from smoothsp.oracles._inference import checks


class StructuralHinge(Loss):
    """Structural hinge loss, ``max [s(y') + c(y')] - s(y)``, smoothed or not.

    Parameters
    ----------
    smoothing
        ``None``, ``Entropy(mu)`` or ``L2(mu, k)``.
    cost
        ``"hamming"``: 1 for each wrong label. ``None``: no cost, so no margin. Or a
        tensor of the shape of the first potentials: the cost of each part.
    cost_scale
        Multiplies the cost, >= 0.
    class_weight
        ``(state,)``: the loss of an example is multiplied by the mean weight of its
        gold labels.
    reduction
        ``"none"``: ``(batch,)``. ``"sum"``. ``"mean"``: weighted mean over the rows.
        ``"token_mean"``: sum over the (weighted) number of real positions.

    Attributes
    ----------
    exact
        After a call with ``L2``: ``(batch,)`` bool, True where the smoothing over the k
        best equals that over all outputs. Otherwise None.

    Notes
    -----
    Convex in the potentials; at least 0 with cost ``"hamming"`` or ``None``. Call it
    with a structure, gold outputs ``(batch, ...)`` and optional weights ``(batch,)``.
    Source: Tsochantaridis et al., "Large Margin Methods for Structured and
    Interdependent Output Variables" (2005), margin rescaling; smoothed, Pillutla et
    al., "A Smoother Way to Train Structured Prediction Models".

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
        checks.as_nonnegative("cost_scale", cost_scale)
        self.smoothing = functional.check_smoothing(smoothing)
        self.cost = functional.check_cost(cost)
        self.cost_scale = cost_scale
        self.reduction = check_reduction(reduction)
        self.register_buffer(
            "class_weight", class_weights(class_weight), persistent=False
        )
        self.exact = None

    def forward(
        self,
        structure: Structure,
        y: Tensor,
        weight: Tensor | None = None,
        cost: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of the gold outputs y.

        Parameters
        ----------
        structure
            Structure of a batch.
        y
            Gold outputs.
        weight
            ``(batch,)`` weight of each example.
        cost
            Costs of this batch; overrides the constructor's.
        """
        batch_cost = self.cost if cost is None else cost
        scale = self.cost_scale
        # bypasses nn.Module.__setattr__, which takes microseconds
        vars(self)["exact"] = None
        row_weight = row_weights(
            structure, y, weight, self.class_weight, self.reduction
        )
        hamming = isinstance(batch_cost, str) and batch_cost == "hamming"
        if self.smoothing is None and (hamming or batch_cost is None):
            summed = _as_summed(structure, self.reduction, "violation")
            if summed is not None:
                return summed.violation(y, row_weight, scale if hamming else 0.0)
        args = structure, y, self.smoothing, batch_cost, scale
        # a weighted sum inside the loss saves autograd nodes and kernel launches
        if self.reduction != "none":
            total, vars(self)["exact"] = functional.hinge(*args, row_weight)
            return total
        losses, vars(self)["exact"] = functional.hinge(*args)
        return reduce(losses, row_weight, self.reduction)

    def extra_repr(self) -> str:
        """Return the arguments that ``print`` shows."""
        return f"smoothing={self.smoothing}, reduction={self.reduction!r}"


class CRFLoss(Loss):
    """Negative log-likelihood, ``log sum exp s(y') - s(y)``.

    Parameters as for ``StructuralHinge``. Equal to
    ``StructuralHinge(Entropy(1), cost=None)``.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import CRFLoss
    >>> from smoothsp.oracles import Multiclass
    >>> CRFLoss()(Multiclass(torch.tensor([[1.0, 0.0]])), torch.tensor([0]))
    tensor(0.3133)
    """

    class_weight: Tensor | None

    def __init__(
        self, class_weight: Tensor | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__()
        self.reduction = check_reduction(reduction)
        self.register_buffer(
            "class_weight", class_weights(class_weight), persistent=False
        )

    def forward(
        self, structure: SumStructure, y: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Return the loss of gold outputs y, with optional weights ``(batch,)``."""
        row_weight = row_weights(
            structure, y, weight, self.class_weight, self.reduction
        )
        summed = _as_summed(structure, self.reduction, "log_likelihood")
        if summed is not None:
            return summed.log_likelihood(y, -row_weight)
        if self.reduction != "none":
            return functional.crf_loss(structure, y, row_weight)
        return reduce(functional.crf_nll(structure, y), row_weight, self.reduction)


class StructuredPerceptron(Loss):
    """Structured perceptron loss, ``max s(y') - s(y)``.

    Parameters as for ``StructuralHinge``. Equal to ``StructuralHinge(cost=None)``.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import StructuredPerceptron
    >>> from smoothsp.oracles import Multiclass
    >>> scores = Multiclass(torch.tensor([[1.0, 3.0]]))
    >>> StructuredPerceptron()(scores, torch.tensor([0]))
    tensor(2.)
    """

    class_weight: Tensor | None

    def __init__(
        self, class_weight: Tensor | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__()
        self.reduction = check_reduction(reduction)
        self.register_buffer(
            "class_weight", class_weights(class_weight), persistent=False
        )

    def forward(
        self, structure: Structure, y: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Return the loss of gold outputs y, with optional weights ``(batch,)``."""
        row_weight = row_weights(
            structure, y, weight, self.class_weight, self.reduction
        )
        summed = _as_summed(structure, self.reduction, "violation")
        if summed is not None:
            return summed.violation(y, row_weight, 0.0)
        if self.reduction != "none":
            return functional.hinge(structure, y, None, None, 1.0, row_weight)[0]
        return reduce(functional.perceptron(structure, y), row_weight, self.reduction)


# Methods whose results enter the sums over rows.
_SUMMANDS = {
    "violation": {"decode", "score", "hamming", "augment"},
    "log_likelihood": {"log_prob", "log_partition", "score"},
}


def _as_summed(structure: Structure, reduction: Reduction, name: str) -> Summed | None:
    """Return the structure if its method ``name`` sums losses over rows, else None.

    A subclass may override a method whose results are summed, but not the sum. Then the
    sum is computed from the rows.
    """
    if reduction == "none" or not isinstance(structure, Summed):
        return None
    # the first class that defines the sum or one of its summands decides
    for kind in type(structure).__mro__:
        if name in vars(kind):
            return cast(Summed, structure)
        if not _SUMMANDS[name].isdisjoint(vars(kind)):
            return None
    return None
