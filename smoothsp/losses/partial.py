"""Losses for partial labels, which allow a set of outputs."""

from torch import Tensor

from smoothsp.losses import functional
from smoothsp.losses.functional import Cost
from smoothsp.losses.module import Loss
from smoothsp.losses.reduction import Reduction, check_reduction, reduce, row_weights
from smoothsp.losses.smoothing import L2, Smoothing
from smoothsp.oracles import PartialStructure
from smoothsp.oracles._inference import checks


class MarginalLikelihood(Loss):
    r"""Negative log-likelihood of the set of outputs with allowed parts only.

    .. math::

        \log \sum_{y'} \exp s(y') - \log \sum_{y' \text{ allowed}} \exp s(y')

    Missing labels and hidden structure are summed out.

    Parameters
    ----------
    reduction
        As for ``StructuralHinge``.

    Notes
    -----
    0 if everything is allowed; equal to ``CRFLoss`` if one output is allowed. Not
    convex. Source: Tsuboi et al., "Training Conditional Random Fields Using Incomplete
    Annotations" (2008); Quattoni et al., "Hidden Conditional Random Fields" (2007).

    Examples
    --------
    Tags of which some are unknown, written -1:

    >>> import torch
    >>> from smoothsp.losses import MarginalLikelihood
    >>> from smoothsp.oracles import Chain
    >>> chain = Chain(torch.zeros(1, 3, 2), torch.zeros(2, 2))
    >>> tags = torch.tensor([[1, -1, 0]])
    >>> allowed = (tags[..., None] == torch.arange(2)) | (tags[..., None] < 0)
    >>> MarginalLikelihood()(chain, allowed).exp()  # two of eight sequences
    tensor(4.)
    """

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.reduction = check_reduction(reduction)

    def forward(
        self,
        structure: PartialStructure,
        allowed: Tensor,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of the allowed outputs.

        Parameters
        ----------
        structure
            Structure of a batch.
        allowed
            Bool, of the shape of the first potentials (emissions, scores, ...): True
            where an output may use the part; any value where masked.
        weight
            ``(batch,)`` weight of each example.
        """
        row_weight = row_weights(
            structure, allowed, weight, None, self.reduction, "allowed"
        )
        losses = functional.marginal_nll(structure, allowed)
        return reduce(losses, row_weight, self.reduction)


class LatentHinge(Loss):
    r"""Structural hinge with the best allowed output in place of the gold output.

    .. math:: \max_{y'} [s(y') + c(y')] - \max_{y' \text{ allowed}} s(y')

    The latent structural SVM: missing labels are filled in by maximisation.

    Parameters
    ----------
    smoothing
        ``None``, ``Entropy(mu)`` or ``L2(mu, k)``, for both maxima.
    cost
        ``"hamming"``: 1 for each part that is not allowed. ``None``, or a tensor of the
        shape of ``allowed``.
    cost_scale
        Multiplies the cost, >= 0.
    reduction
        As for ``StructuralHinge``.

    Attributes
    ----------
    exact
        After a call with ``L2``: ``(batch,)`` bool, True where both maxima equal those
        of smoothing over all outputs. Otherwise None.

    Notes
    -----
    Equal to ``StructuralHinge`` if one output is allowed, and to ``MarginalLikelihood``
    with ``Entropy(1)`` and no cost. Not convex: a difference of convex functions.
    Source: Yu and Joachims, "Learning Structural SVMs with Latent Variables" (2009);
    smoothed, Schwing et al., "Efficient Structured Prediction with Latent Variables for
    General Graphical Models" (2012).

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import LatentHinge
    >>> from smoothsp.oracles import Multiclass
    >>> scores = Multiclass(torch.tensor([[2.0, 1.0, 2.5]]))
    >>> LatentHinge()(scores, torch.tensor([[True, True, False]]))
    tensor(1.5000)
    """

    exact: Tensor | None

    def __init__(
        self,
        smoothing: Smoothing = None,
        cost: Cost = "hamming",
        cost_scale: float = 1.0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        checks.as_nonnegative("cost_scale", cost_scale)
        self.smoothing = functional.check_smoothing(smoothing)
        self.cost = functional.check_cost(cost)
        self.cost_scale = cost_scale
        self.reduction = check_reduction(reduction)
        self.exact = None

    def forward(
        self,
        structure: PartialStructure,
        allowed: Tensor,
        weight: Tensor | None = None,
        cost: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of the allowed outputs.

        Parameters
        ----------
        structure, allowed, weight
            As for ``MarginalLikelihood``.
        cost
            Costs of this batch; overrides the constructor's.
        """
        batch_cost = self.cost if cost is None else cost
        row_weight = row_weights(
            structure, allowed, weight, None, self.reduction, "allowed"
        )
        # None unless this call smooths over the k best
        self.exact = None
        if isinstance(self.smoothing, L2):
            losses, self.exact = functional.latent_hinge_l2(
                structure,
                allowed,
                self.smoothing,
                cost=batch_cost,
                cost_scale=self.cost_scale,
            )
        else:
            losses = functional.latent_hinge(
                structure,
                allowed,
                smoothing=self.smoothing,
                cost=batch_cost,
                cost_scale=self.cost_scale,
            )
        return reduce(losses, row_weight, self.reduction)

    def extra_repr(self) -> str:
        """Return the arguments that ``print`` shows."""
        return f"smoothing={self.smoothing}, reduction={self.reduction!r}"
