"""SparseMAP loss, whose gradient is a sparse mixture of outputs."""

from torch import Tensor

from smoothsp.losses.functional import Cost, augment_by_cost, check_cost, gold_score
from smoothsp.losses.module import Loss
from smoothsp.losses.reduction import Reduction, check_reduction, reduce, row_weights
from smoothsp.oracles import SparseMAP, Structure
from smoothsp.oracles._inference import checks, in_graphs
from smoothsp.oracles._inference.parts import float64_if_large, part_counts
from smoothsp.oracles.sparse_map import check_settings


class SparseMAPLoss(Loss):
    r"""Regularised maximum minus the regularised score of the gold output.

    .. math:: \max_{p \in \Delta} \Big[ \sum_{y'} p_{y'} (s(y') + c(y'))
        - \tfrac{\gamma}{2} \Big\| \sum_{y'} p_{y'} a(y') \Big\|^2 \Big]
        - s(y) + \tfrac{\gamma}{2} \| a(y) \|^2

    As gamma goes to 0 it becomes the perceptron loss, or the hinge with a cost. Its
    gradient is the mixture of :class:`~smoothsp.oracles.SparseMAP` minus the gold
    output. The gradient is exactly 0 if the gold output leads by a margin.

    Parameters
    ----------
    strength
        gamma, > 0.
    cost
        ``None``, ``"hamming"`` or a tensor, as for ``StructuralHinge``.
    cost_scale
        Multiplies the cost, >= 0.
    max_outputs
        As for ``SparseMAP``.
    reduction
        As for ``StructuralHinge``.

    Notes
    -----
    Convex, never negative, and 1/gamma-smooth in the first potentials. It only calls
    ``decode``, some tens of times. Source: Niculae et al., "SparseMAP: Differentiable
    Sparse Structured Inference" (2018), (8); Blondel, Martins and Niculae, "Learning
    with Fenchel-Young Losses" (2020), section 7.3.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import SparseMAPLoss
    >>> from smoothsp.oracles import Multiclass
    >>> scores = Multiclass(torch.tensor([[2.0, 0.0], [0.5, 0.0]]))
    >>> SparseMAPLoss(reduction="none")(scores, torch.tensor([0, 0]))
    tensor([0.0000, 0.0625])
    """

    def __init__(
        self,
        strength: float = 1.0,
        cost: Cost = None,
        cost_scale: float = 1.0,
        max_outputs: int = 1000,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        check_settings(strength, max_outputs)
        checks.as_nonnegative("cost_scale", cost_scale)
        self.strength, self.max_outputs = strength, max_outputs
        self.cost, self.cost_scale = check_cost(cost), cost_scale
        self.reduction = check_reduction(reduction)

    def forward(
        self, structure: Structure, y: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Return the loss of gold outputs y, with optional weights ``(batch,)``."""
        row_weight = row_weights(structure, y, weight, None, self.reduction)
        args = y, self.strength, self.max_outputs, self.cost, self.cost_scale
        losses = in_graphs.call_as_graph_op(
            structure, _losses, args, in_graphs.float_per_row
        )
        return reduce(losses, row_weight, self.reduction)

    def extra_repr(self) -> str:
        """Return the arguments that ``print`` shows."""
        return f"strength={self.strength}, reduction={self.reduction!r}"


def _losses(
    structure: Structure,
    y: Tensor,
    strength: float,
    max_outputs: int,
    cost: Cost,
    cost_scale: float,
) -> Tensor:
    structure, was_float32 = float64_if_large(structure)
    gold = gold_score(structure, y)
    if hasattr(structure, "_squared_norms_of_variables"):
        squares = structure._squared_norms_of_variables(y).to(gold.value)
    else:
        squares = part_counts(structure, y).flatten(1).square().sum(1)
    raised = augment_by_cost(structure, y, cost, cost_scale)
    sparse = SparseMAP(raised, strength=strength, max_outputs=max_outputs)
    losses: Tensor = sparse._minus_score(gold) + sparse.strength / 2 * squares
    # the loss is >= 0: rounding errors below 0 are clipped, but gradients are not
    if not isinstance(cost, Tensor):
        losses = losses + (-losses.detach()).clamp(min=0)
    return losses.float() if was_float32 else losses
