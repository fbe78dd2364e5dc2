"""What arithmetic of finite numbers gives is finite, or refused."""

from torch import Tensor

from smoothsp.oracles._questions.registration import is_plain
from smoothsp.oracles._questions.rounding import weighed


def difference(best: Tensor, gold: Tensor) -> Tensor:
    """``best - gold``, infinite only where the gold output is forbidden."""
    loss = best - gold
    if is_plain(loss):
        lost = ~loss.isfinite() & gold.isfinite()
        if bool(lost.any()):
            place = tuple(lost.nonzero()[0].tolist())
            high, low = best[place].item(), gold.expand_as(loss)[place].item()
            raise ValueError(
                f"structure: expected scores whose differences {loss.dtype} holds, got "
                f"{high:.3g} for the highest and {low:.3g} for the gold output of row "
                f"{place[0]}; scale the scores down, or forbid with -inf"
            )
    return loss


def weighted(losses: Tensor, weight: Tensor | float) -> Tensor:
    """``losses * weight`` in their dtype, infinite only where the losses are.

    What weighs 0 adds 0, also where the gold output is forbidden.
    """
    if not isinstance(weight, Tensor):
        found = losses * weight
    else:
        weight = weight.to(losses.dtype)
        found = losses * weight
        if not is_plain(found) or not bool(found.isfinite().all()):
            found = weighed(losses, weight)
    if is_plain(found):
        lost = ~found.isfinite() & losses.isfinite()
        if bool(lost.any()):
            row = int(lost.nonzero()[0, 0])
            by = float(weight[row]) if isinstance(weight, Tensor) else weight
            raise ValueError(
                f"weight: expected products with the losses that {found.dtype} holds, "
                f"got {by:.3g} for a loss of {losses[row].item():.3g} in row "
                f"{row}; use smaller weights"
            )
    return found


def total(losses: Tensor) -> Tensor:
    """The sum, infinite only if a loss is."""
    found = losses.sum()
    if is_plain(found) and not bool(found.isfinite()) and bool(losses.isfinite().all()):
        found = losses.double().sum().to(losses.dtype)
        if not bool(found.isfinite()):
            raise ValueError(
                f"reduction: expected losses whose sum {losses.dtype} holds, got some "
                f"of up to {losses.abs().max().item():.3g}; use smaller scores or "
                'weights, or "none"'
            )
    return found
