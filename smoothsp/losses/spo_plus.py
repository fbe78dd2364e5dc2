"""SPO+ loss for potentials that predict the scores of a decision."""

import torch
from torch import Tensor

from smoothsp.losses.functional import gold_score
from smoothsp.losses.module import Loss
from smoothsp.losses.reduction import Reduction, check_reduction, reduce, row_weights
from smoothsp.oracles import Structure
from smoothsp.oracles._inference import checks, double_double
from smoothsp.oracles._inference.parts import float64_if_large, part_counts
from smoothsp.oracles._inference.tracing import is_eager_tensor


class SPOPlus(Loss):
    r"""Smart predict-then-optimise loss: a convex upper bound of the regret.

    .. math:: \max_{y'} [2 s(y') - t(y')] - 2 s(y) + t(y)

    The potentials s predict true scores t of parts: travel times, profits, negated
    costs. The decision y' is the best output under s, and y is the best under t. The
    *regret* is ``t(y) - t(y')``. SPO+ is at least the regret, convex in the potentials,
    and 0 if the predictions are exact.

    Parameters
    ----------
    reduction
        As for ``StructuralHinge``.

    Notes
    -----
    One ``decode``. The source minimises costs: its predicted and true costs are ``-s``
    and ``-t``. Source: Elmachtoub and Grigas, "Smart 'Predict, then Optimize'" (2022),
    (9) and definition 3.

    Examples
    --------
    The class of the largest profit, predicted wrongly:

    >>> import torch
    >>> from smoothsp.losses import SPOPlus
    >>> from smoothsp.oracles import Multiclass
    >>> true, predicted = torch.tensor([[3.0, 1.0]]), torch.tensor([[1.0, 2.0]])
    >>> y = Multiclass(true).decode()[1]
    >>> SPOPlus()(Multiclass(predicted), y, true)
    tensor(4.)
    >>> regret(Multiclass(predicted), y, true)
    tensor([2.])
    """

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.reduction = check_reduction(reduction)

    def forward(
        self,
        structure: Structure,
        y: Tensor,
        true_scores: Tensor,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of the predictions in ``structure``.

        Parameters
        ----------
        structure
            Predicted potentials of a batch.
        y
            ``(batch, ...)``: a best output under the true scores.
        true_scores
            True scores of parts, of the shape of the first potentials; finite where an
            output may use the part.
        weight
            ``(batch,)`` weight of each example.
        """
        row_weight = row_weights(structure, y, weight, None, self.reduction)
        true_scores = checks.as_potentials("true_scores", true_scores)
        structure, was_float32 = float64_if_large(structure)
        gold = gold_score(structure, y)
        true = _true_score(structure, y, true_scores)
        try:
            # max [2 s - t] = 2 max [s - t / 2]: potentials need not be doubled
            augmented = structure.augment(true_scores / -2)
        except ValueError as error:
            if not str(error).startswith("cost:"):
                raise
            raise ValueError(
                "true_scores: expected finite numbers where an output may use the part,"
                f" of the size of the predictions; their halves as a {error}"
            ) from error
        # double-double scores: the difference of large scores keeps its digits
        best, _ = double_double.decode(augmented)
        losses = 2 * best.minus(gold) + true
        # the loss is >= 0: rounding errors below 0 are clipped, but gradients are not
        losses = losses + (-losses.detach()).clamp(min=0)
        losses = losses.float() if was_float32 else losses
        return reduce(losses, row_weight, self.reduction)


def regret(structure: Structure, y: Tensor, true_scores: Tensor) -> Tensor:
    """Regret of the best output under the predictions, ``t(y) - t(decoded)``.

    ``(batch,)``, at least 0, without a gradient. Arguments as for :class:`SPOPlus`,
    which has an example.
    """
    with torch.no_grad():
        _, chosen = structure.decode()
        true = _true_score(structure, y, true_scores)
        return true - _true_score(structure, chosen, true_scores)


def check_true_scores(true_scores: Tensor, parts: Tensor) -> Tensor:
    """Return true scores of the shape and dtype of ``parts``, without a gradient."""
    true_scores = checks.as_potentials("true_scores", true_scores)
    checks.require_device("true_scores", true_scores, parts.device)
    if true_scores.shape != parts.shape:
        raise ValueError(
            f"true_scores: expected {tuple(parts.shape)}, the shape of the first "
            f"potentials, got {tuple(true_scores.shape)}"
        )
    return true_scores.detach().to(parts.dtype)


def _true_score(structure: Structure, y: Tensor, true_scores: Tensor) -> Tensor:
    parts = part_counts(structure, y)
    table = check_true_scores(true_scores, parts)
    scores = torch.where(parts != 0, parts * table, 0).flatten(1).sum(1)
    if is_eager_tensor(scores) and not bool(scores.isfinite().all()):
        row = int((~scores.isfinite()).nonzero()[0, 0])
        raise ValueError(
            "true_scores: expected finite numbers where an output has parts, with sums "
            f"that {scores.dtype} holds, got {scores[row].item()} at row {row}"
        )
    return scores
