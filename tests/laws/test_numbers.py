"""One rule for numbers, in every structure and every loss.

What is at or below -2^40 forbids, to the last bit as -inf does; what is at or above
2^40 is refused.
"""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from smoothsp import losses
from smoothsp.losses import L2, Entropy
from smoothsp.oracles import BoxSearch, Chain, Multiclass
from tests import sweeps
from tests.sweeps import thinned
from tests.truth.circuits.cases import KINDS, SEARCHES, Case, draw

MASKS = ("the lowest number", -1e30, -1e18, -1e13)
DTYPES = (torch.float64, torch.float32)
every_dtype = pytest.mark.parametrize("dtype", thinned(DTYPES, 2), ids=str)
ALL_KINDS = ["multiclass", *KINDS, *SEARCHES]
every_kind = pytest.mark.parametrize("kind", ALL_KINDS)
LIMIT = 2.0**40


def case_of(kind, dtype=torch.float64):
    """A batch of which a third of all that may be forbidden is, in each potential."""
    generator = torch.Generator().manual_seed(1)
    case = choices(generator) if kind == "multiclass" else draw(kind, 1, forbid=False)
    kept = [outputs[len(outputs) // 2] for outputs in case.outputs]
    barred = {}
    for name, x in case.potentials.items():
        some = torch.rand(x.shape, generator=generator) < 0.35
        if kind in SEARCHES and name != first(case):
            # elsewhere -inf is refused, but where neighbours differ
            some[...] &= name == "edges" and x.dim() == 4
            if x.dim() == 4:
                some &= ~torch.eye(2, dtype=torch.bool)
        barred[name] = some
    for b, y in enumerate(kept):
        for name, place in case.parts(b, y):
            barred[name][place] = False
    potentials = {
        name: x.masked_fill(barred[name], -math.inf).to(dtype)
        for name, x in case.potentials.items()
    }
    return replace(case, potentials=potentials), torch.stack(kept)


def choices(generator):
    scores = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    rows = [[torch.tensor(i) for i in range(4)] for _ in range(3)]
    parts = lambda b, y: [("scores", (b, int(y)))]  # noqa: E731
    return Case(lambda scores: Multiclass(scores), {"scores": scores}, rows, parts)


def first(case):
    return next(iter(case.potentials))


def number(mask, x):
    return torch.finfo(x.dtype).min if mask == MASKS[0] else mask


def answers(built, y):
    """All that a structure answers, and all losses, by name."""
    value, best = built.decode()
    found = {"decode": value, "best": best, "score": built.score(y)}
    found["values"], found["ys"], found["valid"] = built.decode_topk(4)
    found["values"] = found["values"].masked_fill(~found["valid"], 0)
    asked = [
        losses.StructuralHinge(),
        losses.StructuralHinge(L2(0.7, 3)),
        losses.StructuralHinge(L2(0.7, "exact")),
        losses.StructuredPerceptron(),
    ]
    if hasattr(built, "max_marginals"):
        found["max_marginals"] = built.max_marginals().clamp(min=-1e9)
    if not isinstance(built, BoxSearch):
        noise = {"samples": 3, "seed": 0}
        asked += [losses.MinimumRisk(3), losses.RankingHinge(3)]
        asked += [losses.PerturbedLoss(**noise), losses.SparseMAPLoss(cost="hamming")]
        truth = torch.linspace(-1, 1, built.hamming(y).numel()).to(value.dtype)
        truth = truth.reshape(built.hamming(y).shape)
        found["SPOPlus"] = losses.SPOPlus("none")(built, y, truth)
        allowed = built.hamming(y) < 1
        found["latent"] = losses.LatentHinge(reduction="none")(built, allowed)
        for loss in (
            losses.NoiseContrastive("best"),
            losses.PairwiseRanking(),
            losses.ListwiseRanking(),
        ):
            loss.reduction = "none"
            found[str(loss)] = loss(built, y, truth, torch.stack([best, y], 1))
        generator = torch.Generator().manual_seed(0)
        perturbed = losses.Perturbed(built, 3, generator=generator)
        found["shares"], found["perturbed"] = perturbed.marginals(), perturbed.maximum()
        for layer in (
            losses.Interpolation(3.0),
            losses.NegativeIdentity(),
            losses.ImplicitMLE(**noise),
        ):
            found[str(layer)] = layer(built)
    if hasattr(built, "log_partition"):
        generator = torch.Generator().manual_seed(0)
        found["sample"] = built.sample(5, generator)
        for name in ("log_partition", "marginals", "entropy", "log_count"):
            found[name] = getattr(built, name)()
        found["log_prob"] = built.log_prob(y)
        risk = losses.MinimumRisk(3, "samples", generator=generator, reduction="none")
        found["risk of samples"] = risk(built, y)
        found["kl"] = built.kl(built.augment(built.hamming(y)))
        found["marginal"] = losses.MarginalLikelihood("none")(built, allowed)
        asked += [losses.CRFLoss(), losses.StructuralHinge(Entropy(0.7))]
    for loss in asked:
        loss.reduction = "none"
        found[str(loss)] = loss(built, y)
    return found


def all_of(case, y):
    """Answers, and the gradients of each."""
    case = case.leaves()
    given = tuple(case.potentials.values())
    found = answers(case.structure(), y)
    slopes = {}
    for name, x in found.items():
        if x.requires_grad:
            weights = torch.linspace(1, 2, x.numel(), dtype=x.dtype).reshape(x.shape)
            slopes[name] = torch.autograd.grad(
                (x * weights).sum(), given, retain_graph=True, materialize_grads=True
            )
    return found, slopes


@pytest.mark.parametrize(
    ("kind", "dtype"),
    thinned(itertools.product(ALL_KINDS, DTYPES), 3),
    ids=str,
)
def test_masks_are_minus_infinity_to_the_last_bit(kind, dtype):
    case, y = case_of(kind, dtype)
    some = {name: x == -math.inf for name, x in case.potentials.items()}
    assert any(x.any() for x in some.values())
    expected, slopes = all_of(case, y)
    for name, x in expected.items():
        assert not x.is_floating_point() or x.isfinite().all(), name
    for mask in (MASKS[0], MASKS[3]) if sweeps.long else MASKS[1:2]:
        low = case.map(lambda x, m=mask: x.masked_fill(x == -math.inf, number(m, x)))
        found, others = all_of(low, y)
        for name, x in expected.items():
            assert_close(found[name], x, rtol=0, atol=0, msg=f"{mask}, {name}")
        assert slopes.keys() == others.keys()
        for name, given in slopes.items():
            for x, o, barred in zip(given, others[name], some.values(), strict=True):
                assert_close(o, x, rtol=0, atol=0, msg=f"{mask}, {name}")
                assert (o[barred] == 0).all(), (mask, name)


@pytest.mark.parametrize("mask", [-math.inf, *MASKS[:2]])
@every_dtype
@every_kind
def test_a_row_whose_outputs_are_all_masked_is_refused(kind, dtype, mask):
    case, _ = case_of(kind, dtype)
    name, low = first(case), {}
    for part, x in case.potentials.items():
        if part not in case.shared and (kind not in SEARCHES or part == name):
            low[part] = x.clone()
            low[part][1] = number(mask, x)
    used = [{part for part, _ in case.parts(1, y)} for y in case.outputs[1]]
    if not all(low.keys() & parts for parts in used):
        pytest.skip("an output of the second row uses nothing")
    with pytest.raises(ValueError, match=f"{name}: row 1 has no feasible output"):
        case.structure(**low)
    if all(name in parts for parts in used) and kind != "box_search":
        cost = torch.where(low[name] > -LIMIT, 0, low[name])
        with pytest.raises(ValueError, match="cost: row 1 has no feasible output"):
            case.structure().augment(cost)


@every_kind
def test_costs_and_factors_forbid_as_minus_infinity_does(kind):
    case, y = case_of(kind)
    built = case.structure()
    if kind != "box_search":
        low = torch.where(built.hamming(y) > 0, -1e13, 0.0)
        low[:, ::2] = 0
        masked = built.augment(low)
        barred = built.augment(torch.where(low < 0, -math.inf, low))
        for one, two in zip(answer(masked), answer(barred), strict=True):
            assert_close(one, two, rtol=0, atol=0)
    small = {}
    for name, x in case.potentials.items():
        if name == first(case):
            small[name] = torch.where(x == -math.inf, -3e9, x)
        else:
            small[name] = x
    found = case.structure(**small).scale(1000.0)
    for one, two in zip(answer(found), answer(built.scale(1000.0)), strict=True):
        assert_close(one, two, rtol=0, atol=0)


def answer(built):
    values, ys, valid = built.decode_topk(5)
    return [*built.decode(), values.masked_fill(~valid, 0), ys, valid]


@every_dtype
@every_kind
def test_numbers_from_the_limit_on_are_refused_where_they_are_read(kind, dtype):
    case, y = case_of(kind, dtype)
    for name, x in case.potentials.items():
        places = (case.read()[name] & (x > -math.inf)).nonzero()
        place = tuple(places[len(places) // 2].tolist())
        # the edges of a grid are two arguments
        grid = kind == "binary_grid" and name == "edges"
        given = "down, right" if grid else name
        for wrong in (LIMIT, math.nan):
            bad = x.clone()
            bad[place] = wrong
            words = rf"{given}: expected numbers below 2\^40 .*got .* at .*; scale"
            with pytest.raises(ValueError, match=words):
                case.structure(**{name: bad})
    built = case.structure()
    if kind != "box_search":
        cost = built.hamming(y) * LIMIT
        with pytest.raises(ValueError, match="cost: "):
            built.augment(2 * cost)
    main = case.potentials[first(case)]
    if kind in ("shortest_path", "shortest_path_of_each_row"):
        return  # scores of cycles are at most 0, and large ones forbid
    large = {first(case): torch.where(main > -math.inf, main.abs() + 1, main)}
    with pytest.raises(ValueError, match="factor: "):
        case.structure(**large).scale(1e13)


@every_dtype
@pytest.mark.parametrize("kind", ["multiclass", *SEARCHES])
def test_what_no_row_reads_may_be_any_number(kind, dtype):
    case, _ = case_of(kind, dtype)
    read = case.read()
    for poison in (math.nan, LIMIT, -LIMIT):
        dirty = {n: x.masked_fill(~read[n], poison) for n, x in case.potentials.items()}
        for one, two in zip(
            answer(case.structure(**dirty)), answer(case.structure()), strict=True
        ):
            assert_close(one, two, rtol=0, atol=0)


@pytest.mark.parametrize("mask", [math.nan, *MASKS[1:]])
def test_padding_of_a_chain_changes_no_bit_of_a_smoothed_hinge(mask):
    generator = torch.Generator().manual_seed(0)
    emissions = torch.randn(8, 5, 3, generator=generator)
    transitions = torch.randn(3, 3, generator=generator)
    lengths = torch.arange(8).clamp(max=5)
    padding = (torch.arange(5) >= lengths[:, None]).unsqueeze(2)
    y = torch.randint(3, (8, 5), generator=generator)
    for mu in (0.7, 2.0):
        soft = losses.StructuralHinge(Entropy(mu), reduction="none")
        found = []
        for number in (-math.inf, mask):
            given = emissions.masked_fill(padding, number).requires_grad_()
            loss = soft(Chain(given, transitions, lengths=lengths), y)
            found += [loss, *torch.autograd.grad(loss.sum(), given)]
        assert_close(found[2:], found[:2], rtol=0, atol=0)
