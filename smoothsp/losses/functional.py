r"""Losses as functions, with one value per example.

With s(y') the score of an output and c(y') its cost,

    hinge         max_{y'} [s(y') + c(y')] - s(y)
    smoothed      the hinge with a smooth upper bound of the maximum
    perceptron    max_{y'} s(y') - s(y)
    CRF           log sum_{y'} exp(s(y')) - s(y)

and, with the set of outputs of allowed parts in place of y,

    latent hinge  max_{y'} [s(y') + c(y')] - max_{allowed y'} s(y')
    marginal      log sum_{y'} exp(s(y')) - log sum_{allowed y'} exp(s(y'))

Every gradient is the derivative of the value.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from smoothsp.losses import one_node
from smoothsp.losses.reduction import reduce
from smoothsp.losses.smoothing import L2, Entropy, Smoothing
from smoothsp.oracles import (
    Multiclass,
    PartialStructure,
    Structure,
    SumStructure,
    TopKStructure,
)
from smoothsp.oracles._inference import checks, double_double, in_graphs
from smoothsp.oracles._inference.double_double import DoubleDouble, clip_at_zero
from smoothsp.oracles._inference.op import Recomputation
from smoothsp.oracles._inference.parts import float64_if_large, training_hint
from smoothsp.oracles._inference.score_values import LIMIT
from smoothsp.oracles._inference.tracing import (
    is_compiling,
    is_eager,
    is_eager_tensor,
)

Cost = Literal["hamming"] | Tensor | None
Augmented = TypeVar("Augmented")


def structural_hinge(
    structure: Structure,
    y: Tensor,
    *,
    smoothing: Smoothing = None,
    cost: Cost = "hamming",
    cost_scale: float = 1.0,
) -> Float[Tensor, " batch"]:
    r"""Structural hinge loss, smoothed or not.

    .. math:: \max_{y'} [s(y') + c(y')] - s(y)

    Parameters
    ----------
    structure
        Structure of a batch; all its potentials receive gradients.
    y
        Gold outputs; any value where masked.
    smoothing
        Smoothing of the maximum: ``None``, ``Entropy(mu)`` or ``L2(mu, k)``.
    cost
        ``"hamming"``: 1 for each wrong label. ``None``: no cost. Or a tensor of the
        shape of the emissions (chain) or scores (multiclass): the cost of each label.
    cost_scale
        Multiplies the cost, >= 0.

    Returns
    -------
    Tensor
        ``(batch,)``. Never negative with cost ``"hamming"`` or ``None``, and never
        below the cost of the decoded output. 0 for rows without positions.

    Notes
    -----
    One call of the max, exp or top-(k + 1) oracle.
    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    eq. (4), (11) and section 2.3.
    """
    return hinge(structure, y, smoothing, cost, cost_scale)[0]


def hinge(
    structure: Structure,
    y: Tensor,
    smoothing: Smoothing,
    cost: Cost,
    cost_scale: float,
    weight: Tensor | float | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return losses ``[B]`` of ``structural_hinge``, or their sum; exact rows of L2.

    With ``weight`` the sum is weighted. Computed as a single autograd node if
    ``one_node`` supports the structure, else by differentiable operations.
    """
    float64_structure, was_float32 = float64_if_large(structure)

    def value_by_ops() -> Tensor:
        loss = _hinge_by_ops(float64_structure, y, smoothing, cost, cost_scale)[0]
        loss = loss.float() if was_float32 else loss
        return loss if weight is None else reduce(loss, weight, "sum")

    recomputation = Recomputation(value_by_ops, (y, weight, cost))
    if one_node.is_supported(structure, weight, cost):
        # one kernel computes and sums the smoothed hinges of a chain
        if weight is not None and not isinstance(cost, Tensor) and not was_float32:
            scale = 0.0 if check_cost(cost) is None else cost_scale
            scale = checks.as_nonnegative("cost_scale", scale)
            at_once = one_node.of_chain(
                structure, y, smoothing, scale, weight, recomputation
            )
            if at_once is not None:
                return at_once
        result = _fused_hinge(
            structure,
            float64_structure,
            y,
            smoothing,
            cost,
            cost_scale,
            weight,
            recomputation,
        )
        if result is not None:
            return result
    loss, exact_rows = _hinge_by_ops(float64_structure, y, smoothing, cost, cost_scale)
    loss = loss.float() if was_float32 else loss
    loss = loss if weight is None else reduce(loss, weight, "sum")
    return loss, exact_rows


def _fused_hinge(
    structure: Structure,
    float64_structure: Structure,
    y: Tensor,
    smoothing: Smoothing,
    cost: Cost,
    cost_scale: float,
    weight: Tensor | float | None,
    recomputation: Recomputation,
) -> tuple[Tensor, Tensor | None] | None:
    # sign 1: the loss is >= 0 by its formula. A tensor may give the gold output a cost.
    sign = 0 if isinstance(cost, Tensor) else 1
    if isinstance(smoothing, Entropy):
        mu = smoothing.mu
        with torch.no_grad():
            sums = one_node.summing(float64_structure)
            if sums is None:
                return None
            scaled = _divide_by_mu(
                sums, mu, lambda x: _augment(x, y, cost, cost_scale / mu)
            )
        if scaled is None:
            return None
        low, (high, used) = scaled
        arguments = structure, low, high, used, mu, weight, recomputation, sign > 0
        loss, highest = one_node.negative_log_likelihood(*arguments)
        _require_max_not_below(high, highest, sign)
        return loss, None
    check_smoothing(smoothing)
    if smoothing is not None:
        # k differs between rows
        if smoothing.k == "exact":
            return None
        require_topk(structure)
    with torch.no_grad():
        augmented, used = _augment(float64_structure, y, cost, cost_scale)
    args = (
        structure,
        float64_structure,
        augmented,
        used,
        smoothing,
        sign > 0,
        weight,
        recomputation,
    )
    loss, rows, highest = one_node.hinge(*args)
    _require_max_not_below(augmented, highest, sign)
    return loss, None if smoothing is None else rows


def _augment(
    structure: Any, y: Tensor, cost: Cost, cost_scale: float
) -> tuple[Any, Tensor]:
    """Return the structure with costs, and the entries that gold outputs use."""
    if isinstance(check_cost(cost), str):
        scale = checks.as_nonnegative("cost_scale", cost_scale)
        result: tuple[Any, Tensor] | None = structure._augment_and_gold_parts(y, scale)
        if result is not None:
            return result
    return augment_by_cost(structure, y, cost, cost_scale), structure._gold_parts(y)


def _hinge_by_ops(
    structure: Structure, y: Tensor, smoothing: Smoothing, cost: Cost, cost_scale: float
) -> tuple[Tensor, Tensor | None]:
    sign = 0 if isinstance(cost, Tensor) else 1
    scaled_cost = part_costs(structure, y, cost, cost_scale)
    if isinstance(smoothing, Entropy):
        scaled = _divide_by_mu(
            structure, smoothing.mu, _make_augment(scaled_cost, smoothing.mu)
        )
        if scaled is not None:
            low, high = scaled
            total, gold = double_double.log_partition(high), gold_score(low, y)
            _require_max_above_gold(high, total, gold, sign)
            return smoothing.mu * total.minus(gold, sign=sign), None
    augmented = structure if scaled_cost is None else structure.augment(scaled_cost)
    gold = gold_score(structure, y)
    return _max_minus_gold(augmented, smoothing, gold, sign)


def perceptron(structure: Structure, y: Tensor) -> Float[Tensor, " batch"]:
    """Structured perceptron loss, ``max s(y') - s(y)``: the hinge without a cost."""
    return structural_hinge(structure, y, cost=None)


def crf_nll(structure: SumStructure, y: Tensor) -> Float[Tensor, " batch"]:
    """Negative log-likelihood, ``log sum exp s(y') - s(y)``."""
    return crf_loss(structure, y)


def crf_loss(
    structure: SumStructure, y: Tensor, weight: Tensor | float | None = None
) -> Tensor:
    """Return losses ``[B]`` of ``crf_nll``, or their weighted sum."""
    if not hasattr(structure, "log_prob"):
        raise TypeError(
            "structure: the likelihood needs a structure with log_prob, "
            f"got {type(structure).__name__}"
            + training_hint(structure, "; StructuralHinge needs only decode")
        )

    def value_by_ops() -> Tensor:
        result = structure.log_prob(y)
        _require_row_values(result, y)
        return -result if weight is None else reduce(-result, weight, "sum")

    # for Multiclass, log_softmax of PyTorch is already a single node
    if not isinstance(structure, Multiclass) and one_node.is_supported(
        structure, weight
    ):
        with torch.no_grad():
            sums = one_node.summing(structure)
        if sums is not None:
            args = (
                structure,
                sums,
                sums,
                sums._gold_parts(y),
                1.0,
                weight,
                Recomputation(value_by_ops, (y, weight)),
            )
            return one_node.negative_log_likelihood(*args)[0]
    return value_by_ops()


def marginal_nll(
    structure: PartialStructure, allowed: Bool[Tensor, "batch ..."]
) -> Float[Tensor, " batch"]:
    r"""Negative log-probability of the set of outputs with allowed parts only.

    .. math::

        \log \sum_{y'} \exp s(y') - \log \sum_{y' \text{ allowed}} \exp s(y')

    Parameters
    ----------
    structure
        Structure of a batch.
    allowed
        Bool, of the shape of the emissions (chain), scores (multiclass), or in general
        of the first potentials: True for parts that an output may use.

    Returns
    -------
    Tensor
        ``(batch,)``, never negative. 0 if everything is allowed; equal to ``crf_nll``
        if one output is allowed.

    Raises
    ------
    ValueError
        If a row has no output of allowed parts.
    TypeError
        If the structure has no ``log_partition``.

    Notes
    -----
    Two calls of the exp oracle. Not convex: the second term is concave.
    Source: Quattoni et al., "Hidden Conditional Random Fields" (2007); for partial
    labels Tsuboi et al., "Training Conditional Random Fields Using Incomplete
    Annotations" (2008).
    """
    if not hasattr(structure, "log_prob_within"):
        raise TypeError(
            "structure: the likelihood of a set needs a structure with "
            f"log_prob_within, got {type(structure).__name__}"
            + training_hint(structure, "; LatentHinge needs only decode")
        )
    return -structure.log_prob_within(allowed)


def latent_hinge(
    structure: PartialStructure,
    allowed: Bool[Tensor, "batch ..."],
    *,
    smoothing: Smoothing = None,
    cost: Cost = "hamming",
    cost_scale: float = 1.0,
) -> Float[Tensor, " batch"]:
    r"""Structural hinge with the best allowed output in place of the gold output.

    .. math:: \max_{y'} [s(y') + c(y')] - \max_{y' \text{ allowed}} s(y')

    Parameters
    ----------
    structure, smoothing, cost_scale
        As for ``structural_hinge``; ``smoothing`` smooths both maxima.
    allowed
        As for ``marginal_nll``.
    cost
        ``"hamming"``: 1 for each part that is not allowed. ``None``: no cost. Or a
        tensor of the shape of ``allowed``: the cost of each part.

    Returns
    -------
    Tensor
        ``(batch,)``, never negative with cost ``"hamming"`` or ``None``. Equal to
        ``structural_hinge`` if one output is allowed.

    Raises
    ------
    ValueError
        If a row has no output of allowed parts.

    Notes
    -----
    Two calls of the max, exp or top-(k + 1) oracle. Not convex: the second term is
    concave. ``Entropy(1)`` without a cost is ``marginal_nll``.
    Source: Yu and Joachims, "Learning Structural SVMs with Latent Variables" (2009);
    smoothed, Schwing et al., "Efficient Structured Prediction with Latent Variables for
    General Graphical Models" (2012).
    """
    float64_structure, was_float32 = float64_if_large(structure)
    loss = _latent_hinge(float64_structure, allowed, smoothing, cost, cost_scale)[0]
    return loss.float() if was_float32 else loss


def latent_hinge_l2(
    structure: PartialStructure,
    allowed: Bool[Tensor, "batch ..."],
    smoothing: L2,
    *,
    cost: Cost = "hamming",
    cost_scale: float = 1.0,
) -> tuple[Float[Tensor, " batch"], Bool[Tensor, " batch"]]:
    """Latent hinge smoothed over the k best outputs, and which rows are exact.

    A row is exact if both maxima equal those of smoothing over all outputs. Arguments
    as for ``latent_hinge``.
    """
    float64_structure, was_float32 = float64_if_large(structure)
    loss, result = _latent_hinge(
        float64_structure, allowed, smoothing, cost, cost_scale
    )
    return loss.float() if was_float32 else loss, cast(Tensor, result)


def _latent_hinge(
    structure: PartialStructure,
    allowed: Tensor,
    smoothing: Smoothing,
    cost: Cost,
    cost_scale: float,
) -> tuple[Tensor, Tensor | None]:
    if not hasattr(structure, "restrict"):
        raise TypeError(
            "structure: the latent hinge needs a structure with restrict, "
            f"got {type(structure).__name__}{training_hint(structure)}"
        )
    sign = 0 if isinstance(cost, Tensor) else 1
    if isinstance(cost, str) and cost == "hamming":
        cost = (~allowed).double()
    scaled_cost = part_costs(structure, allowed, cost, cost_scale)
    if isinstance(smoothing, Entropy):
        scaled = _divide_by_mu(
            structure, smoothing.mu, _make_augment(scaled_cost, smoothing.mu)
        )
        if scaled is not None:
            low, high = scaled
            inner = double_double.log_partition(low.restrict(allowed))
            loss = double_double.log_partition(high).minus(inner, sign=sign)
            return smoothing.mu * loss, None
    inside = structure.restrict(allowed)
    augmented = structure if scaled_cost is None else structure.augment(scaled_cost)
    if not isinstance(smoothing, L2):
        return _max_minus_gold(
            augmented, smoothing, double_double.decode(inside)[0], sign
        )
    # maxima and remainders are subtracted separately: both maxima may be large
    soft, low, inner_exact = _l2_max(inside, smoothing)
    outer, high, outer_exact = _l2_max(augmented, smoothing)
    loss = clip_at_zero(high.minus(low) + (outer - soft), sign)
    return loss, inner_exact & outer_exact


def max_entropy(
    scores: Float[Tensor, "*batch m"], mu: float
) -> Float[Tensor, "*batch"]:
    """Maximum over the last axis, smoothed by entropy: ``mu log sum exp(s / mu)``."""
    return mu * (scores / mu).logsumexp(-1)


def max_l2(
    scores: Float[Tensor, "*batch m"],
    mu: float,
    valid: Bool[Tensor, "*batch m"] | None = None,
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch m"]]:
    r"""Maximum over the last axis, smoothed by the squared l2 norm, and its gradient.

    .. math:: \max_{u \in \Delta} \langle u, s \rangle - \tfrac{\mu}{2} (\|u\|^2 - 1)

    Parameters
    ----------
    scores
        At least one of each row must be valid and finite.
    mu
        Strength, > 0.
    valid
        True for scores to use; scores above -inf if absent.

    Returns
    -------
    value
        Differentiable once; its derivative is ``u``.
    u
        The maximiser, the projection of ``scores / mu`` onto the simplex. No gradient.

    Notes
    -----
    The computation does not divide by mu. Source: Pillutla et al., "A Smoother Way to
    Train Structured Prediction Models", proposition 3.
    """
    if valid is None:
        valid = scores > -torch.inf
    lowest = torch.finfo(scores.dtype).min
    # relative to the maximum, so that differences of large scores keep their digits
    top = scores.detach().masked_fill(~valid, lowest).amax(-1, keepdim=True)
    below = (scores - top).masked_fill(~valid, 0)
    # float64, so that no mu is too small against the scores
    z = below.detach().double().masked_fill(~valid, -torch.inf)
    ranked = z.sort(-1, descending=True).values
    # eq. (8) of the source: j is in the support while sum_{i <= j} (z_i - z_j) < mu
    size = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    sums = ranked.masked_fill(ranked == -torch.inf, 0).cumsum(-1)
    inside = (ranked > -torch.inf) & (sums - size * ranked < mu)
    count = inside.sum(-1, keepdim=True)
    tau = (sums.gather(-1, count - 1) - mu) / count
    u = ((z - tau) / mu).clamp(min=0).to(scores.dtype)
    value = top.squeeze(-1) + (u * below).sum(-1) + mu / 2 * (1 - u.square().sum(-1))
    return value, u


def topk_is_exact(
    scores: Float[Tensor, "*batch k_plus_1"],
    mu: float,
    valid: Bool[Tensor, "*batch k_plus_1"] | None = None,
) -> Bool[Tensor, "*batch"]:
    """Return True for rows where smoothing over the k best equals that over all.

    The test is ``mu <= sum_{i <= k} (s_i - s_{k+1})`` on the k + 1 highest scores, or
    at most k outputs.

    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    eq. (12).
    """
    if valid is None:
        valid = scores > -torch.inf
    last = scores[..., -1:]
    gap_sum = (scores[..., :-1] - last).masked_fill(~valid[..., -1:], 0).sum(-1)
    # without a (k + 1)-th output, the k best are all outputs
    return ~valid[..., -1] | (mu <= gap_sum)


def _divide_by_mu(
    structure: Any, mu: float, augment: Callable[[Any], Augmented]
) -> tuple[Any, Augmented] | None:
    """Return the structure with potentials divided by mu, and ``augment`` of it.

    None if these leave the range of scores: smoothing then changes the maximum by less
    than its rounding error.
    """
    _require_sum(structure)
    if mu * LIMIT < 1 or _becomes_forbidden(structure, mu):
        return None
    try:
        scaled = structure if mu == 1 else structure.scale(1 / mu)
        return scaled, augment(scaled)
    except ValueError as error:
        # scale and augment raise these for numbers out of the range of scores
        if not str(error).startswith(("factor:", "cost:")):
            raise
        return None


def _make_augment(cost: Tensor | None, mu: float) -> Callable[[Any], Any]:
    """Return a function that adds ``cost / mu`` to the potentials of a structure."""
    return lambda x: x if cost is None else x.augment(cost / mu)


def _becomes_forbidden(structure: Any, mu: float) -> bool:
    """Return whether a finite potential divided by mu would count as forbidden."""
    if mu >= 1 or not hasattr(structure, "_potentials") or not is_eager():
        return False
    potentials = structure._potentials().values()
    min_score = -mu * LIMIT
    # potentials below -LIMIT are forbidden already, or are not read
    return any(bool(((x <= min_score) & (x > -LIMIT)).any()) for x in potentials)


def _max_minus_gold(
    structure: Structure, smoothing: Smoothing, gold: DoubleDouble, sign: int = 0
) -> tuple[Tensor, Tensor | None]:
    """Return the (smoothed) maximum minus ``gold``; for L2 also the exact rows."""
    if isinstance(smoothing, L2):
        remainder, top, is_exact = _l2_max(structure, smoothing)
        _require_max_above_gold(structure, top, gold, sign)
        return clip_at_zero(remainder + top.minus(gold), sign), is_exact
    check_smoothing(smoothing)
    best = double_double.decode(structure)[0]
    _require_max_above_gold(structure, best, gold, sign)
    return best.minus(gold, sign=sign), None


def _require_max_above_gold(
    structure: Structure, best: DoubleDouble, gold: DoubleDouble, sign: int
) -> None:
    """Raise if the maximum of a user's structure is below the score of its gold output.

    Structures of this package are tested and not checked.
    """
    if is_eager_tensor(best.value):
        top_and_gold = best.value.detach(), gold.value.detach()
        _require_max_not_below(structure, top_and_gold, sign)


def _require_max_not_below(
    structure: Structure, top_and_gold: tuple[Tensor, Tensor], sign: int
) -> None:
    """Raise if a highest score is below that of the gold output, both ``[B]``."""
    kind = type(structure)
    if not sign or kind.__module__.startswith("smoothsp."):
        return
    top, gold = top_and_gold
    # sums of a user's structure may be rounded in the dtype of the scores
    slack = 1e3 * torch.finfo(top.dtype).eps * (1 + top.abs() + gold.abs())
    deficit = top < gold - slack
    if bool(deficit.any()):
        row = int(deficit.int().argmax())
        raise ValueError(
            "structure: expected a highest score of at least that of the true output, "
            f"{gold[row].item():.9g} at row {row}, got {top[row].item():.9g} from "
            f"{kind.__name__}; check it with smoothsp.testing.check_structure"
        )


def _l2_max(structure: Structure, smoothing: L2) -> tuple[Tensor, DoubleDouble, Tensor]:
    """Return smoothed maximum minus maximum, the maximum (no gradient), exact rows."""
    listed = require_topk(structure)
    if smoothing.k == "exact":
        return _l2_until_exact(listed, smoothing.mu, smoothing.max_k)
    return _l2_top_k(listed, smoothing.mu, smoothing.k)


def _l2_top_k(
    structure: TopKStructure, mu: float, k: int
) -> tuple[Tensor, DoubleDouble, Tensor]:
    scores, _, valid = double_double.decode_topk(structure, k + 1)
    top = scores.map_leading_axes(lambda x: x[:, 0]).detach()
    below = scores.minus(top.unsqueeze(1))
    value, _ = max_l2(below[:, :k], mu, valid[:, :k])
    return value, top, topk_is_exact(below.detach(), mu, valid)


def _l2_until_exact(
    structure: TopKStructure, mu: float, max_k: int
) -> tuple[Tensor, DoubleDouble, Tensor]:
    """Double k for rows that are not exact yet; return values as ``_l2_max``."""
    if torch._C._are_functorch_transforms_active():
        raise TypeError(
            'smoothing: L2(mu, k="exact") needs values, which torch.func does not '
            "provide; pass a number for k"
        )
    if is_compiling():
        row = in_graphs.float_per_row
        result_specs = row, row, in_graphs.bool_per_row
        results = in_graphs.call_as_graph_op(
            structure, _l2_per_row, (mu, max_k), *result_specs
        )
        return results[0], DoubleDouble(results[1]), results[2]
    k = min(2, max_k)
    value, top, done = _l2_top_k(structure, mu, k)
    while k < max_k and not bool(done.all()):
        k = min(2 * k, max_k)
        # only pending rows are decoded again
        rows = (~done).nonzero().squeeze(1)
        new_values, _, newly_done = _l2_top_k(structure.select(rows), mu, k)
        value = value.index_copy(0, rows, new_values)
        done = done.index_copy(0, rows, newly_done)
    return value, top, done


def _l2_per_row(structure: Any, mu: float, max_k: int) -> tuple[Tensor, Tensor, Tensor]:
    value, top, done = _l2_until_exact(structure, mu, max_k)
    return value, top.value, done


def check_smoothing(smoothing: Smoothing) -> Smoothing:
    """Return ``smoothing`` if it is a valid one, else raise."""
    # a tuple: torch.compile of PyTorch 2.6 does not support unions of types
    if smoothing is not None and not isinstance(smoothing, (Entropy, L2)):
        raise TypeError(
            f"smoothing: expected None, Entropy or L2, got {type(smoothing).__name__}"
        )
    return smoothing


def check_cost(cost: Cost) -> Cost:
    """Return ``cost`` if it is a valid one, else raise."""
    if isinstance(cost, str) and cost != "hamming":
        raise ValueError(f'cost: expected "hamming", None or a tensor, got {cost!r}')
    if cost is not None and not isinstance(cost, (str, Tensor)):
        raise TypeError(
            f'cost: expected "hamming", None or a tensor, got {type(cost).__name__}'
        )
    return cost


def part_costs(
    structure: Structure, y: Tensor, cost: Cost, cost_scale: float
) -> Tensor | None:
    """Return the cost of each part, or None without a cost."""
    cost_scale = checks.as_nonnegative("cost_scale", cost_scale)
    check_cost(cost)
    if cost is None:
        return None
    if isinstance(cost, str):
        return hamming(structure, y) * cost_scale
    return cost.double() * cost_scale


def hamming(structure: Structure, y: Tensor) -> Tensor:
    """Return the Hamming cost of each part."""
    if not hasattr(structure, "hamming"):
        raise TypeError(
            "cost: expected a structure with the method hamming, got"
            f" {type(structure).__name__}. Pass cost=None, or a function as cost of"
            " MinimumRisk"
        )
    return structure.hamming(y)


def augment_by_cost(
    structure: Structure, y: Tensor, cost: Cost, cost_scale: float
) -> Structure:
    """Return the structure with the cost of each part added to its potentials."""
    scaled_cost = part_costs(structure, y, cost, cost_scale)
    return structure if scaled_cost is None else structure.augment(scaled_cost)


def gold_score(structure: Structure, y: Tensor) -> DoubleDouble:
    """Return the scores of the gold outputs, ``(batch,)``."""
    score = double_double.score(structure, y)
    _require_row_values(score.value, y)
    return score


def _require_row_values(values: Tensor, y: Tensor) -> None:
    if values.dim() != 1:
        raise ValueError(
            f"y: expected (batch, ...), one gold output per row, got {tuple(y.shape)}"
        )


def require_topk(structure: Structure) -> TopKStructure:
    """Return the structure if it has ``decode_topk``, else raise."""
    # hasattr, not isinstance: torch.compile does not support protocols
    if not hasattr(structure, "decode_topk"):
        raise TypeError(
            "structure: the k best outputs need a structure with decode_topk, "
            f"got {type(structure).__name__}{training_hint(structure)}"
        )
    return cast(TopKStructure, structure)


def _require_sum(structure: Structure) -> None:
    if not hasattr(structure, "log_partition"):
        raise TypeError(
            "structure: entropy smoothing needs a structure with "
            f"log_partition, {type(structure).__name__} has none"
            f"{training_hint(structure)}"
        )
