"""Losses of partial labels, by enumeration: over every circuit, chains and classes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.testing import assert_close

from smoothsp.losses import (
    L2,
    CRFLoss,
    Entropy,
    LatentHinge,
    MarginalLikelihood,
    StructuralHinge,
)
from smoothsp.losses import functional as F
from smoothsp.oracles import Matching, PartialStructure
from tests import sweeps
from tests.instances.strategies import every_structure, generators, structure
from tests.sweeps import thinned
from tests.truth.circuits.cases import KINDS as CIRCUITS
from tests.truth.circuits.cases import SUMMED, draw
from tests.truth.losses import (
    GOLD,
    SMALL,
    draw_problem,
    every_smoothed_structure,
    place,
    smooth_max,
)

CLOSE = {"rtol": 1e-8, "atol": 1e-8}
KINDS = (*CIRCUITS, *SUMMED)
every_kind = pytest.mark.parametrize("kind", thinned(KINDS, 3))
# Among the parts of one of their outputs are those of others; alignments may do without
# any match.
CONTAINING = ("alignment", "knapsack", "subset", "warping")
every_kind_of_own_parts = pytest.mark.parametrize(
    "kind",
    thinned([kind for kind in KINDS if kind.split("_")[0] not in CONTAINING], 3, 1),
)


def allow_some(used, kept, share, generator):
    """Parts allowed: a share of all, and those of the outputs kept ``[b]``."""
    allowed = torch.rand(used[0].shape[1:], generator=generator) < share
    allowed = allowed.repeat(len(used), *[1] * allowed.dim())
    for b, place_of_kept in enumerate(kept):
        allowed[b] |= used[b][place_of_kept] > 0
    return allowed


def truth_of(scores, used, allowed):
    """Scores of the allowed outputs of a row, and costs of all."""
    costs = (used * ~allowed).flatten(1).sum(1)
    return scores[costs == 0], costs.double()


def parts_of(case):
    """How often each output uses each of the first potentials, row by row."""
    name = next(iter(case.potentials))
    found = []
    for b, outputs in enumerate(case.outputs):
        used = torch.zeros(len(outputs), *case.potentials[name].shape[1:])
        for i, y in enumerate(outputs):
            for part, at in case.parts(b, y):
                if part == name:
                    used[(i, *at[1:])] += 1
        found.append(used)
    return found


def draw_partial(kind, seed, share=0.5, forbid=None):
    """A circuit, how outputs use its parts, and what is allowed."""
    generator = torch.Generator().manual_seed(seed)
    case = draw(kind, seed, forbid=forbid)
    used = parts_of(case)
    kept = [int(case.scores(b).argmax()) for b in range(len(case))]
    return case, used, kept, allow_some(used, kept, share, generator)


@every_kind
def test_both_losses_of_a_circuit_are_the_enumerated_formulas(kind):
    for seed in range(4 if sweeps.long else 1):
        case, used, _, allowed = draw_partial(kind, seed)
        ours, truth = case.leaves(), case.leaves()
        built = ours.structure()
        assert isinstance(built, PartialStructure)
        marginal = F.marginal_nll(built, allowed)
        smoothings = None, Entropy(0.7), L2(2.0, 3), L2(2.0, "exact")
        hinges = {
            (i, cost): F.latent_hinge(built, allowed, smoothing=s, cost=cost)
            for i, s in enumerate(smoothings)
            for cost in ("hamming", None)
        }
        for b in range(len(case)):
            scores = truth.scores(b)
            inside, costs = truth_of(scores, used[b], allowed[b])
            expected = scores.logsumexp(0) - inside.logsumexp(0)
            assert_close(marginal[b], expected, **CLOSE)
            for (i, cost), found in hinges.items():
                z = scores + costs if cost else scores
                outer, inner = (smooth_max(x, smoothings[i]) for x in (z, inside))
                assert_close(found[b], outer - inner, **CLOSE)
                assert found[b] >= 0
        total = sum(
            truth.scores(b).logsumexp(0)
            - truth_of(truth.scores(b), used[b], allowed[b])[0].logsumexp(0)
            for b in range(len(case))
        )
        every = list(truth.potentials.values())
        slopes = torch.autograd.grad(total, every)
        found = torch.autograd.grad(marginal.sum(), list(ours.potentials.values()))
        for x, expected in zip(found, slopes, strict=True):
            assert_close(x, expected, **CLOSE)


@every_kind_of_own_parts
def test_one_output_allowed_is_the_loss_of_that_output(kind):
    case, _, kept, allowed = draw_partial(kind, 0, share=0.0)
    y = torch.stack([case.outputs[b][i] for b, i in enumerate(kept)])
    built = case.structure()
    assert_close(MarginalLikelihood()(built, allowed), CRFLoss()(built, y), **CLOSE)
    for smoothing in (None, Entropy(0.7), L2(2.0, 3)):
        found = LatentHinge(smoothing, cost=None)(built, allowed)
        expected = StructuralHinge(smoothing, cost=None)(built, y)
        assert_close(found, expected, **CLOSE)
        if not kind.startswith(
            "semi_markov"
        ):  # whose Hamming cost counts positions, not segments
            found = LatentHinge(smoothing)(built, allowed)
            assert_close(found, StructuralHinge(smoothing)(built, y), **CLOSE)


@every_kind
def test_all_allowed_costs_nothing_to_the_bit(kind):
    for dtype in (torch.float32, torch.float64):
        case = draw(kind, 1).map(lambda x, d=dtype: x.to(d)).leaves()
        built, first = case.structure(), next(iter(case.potentials.values()))
        allowed = torch.ones_like(first).bool()
        loss = MarginalLikelihood(reduction="none")(built, allowed)
        assert (loss == 0).all()
        loss.sum().backward()
        assert (first.grad == 0).all()
        for smoothing in (None, Entropy(0.5), L2(1.0, 2)):
            assert (LatentHinge(smoothing)(built, allowed) == 0).all()


def draw_allowed(data, case, y):
    """What is allowed of a chain or of classes: some parts, and those of y."""
    generator = data.draw(generators())
    share = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    used = [row.nodes for row in case]
    kept = [place(row, y[b]) for b, row in enumerate(case)]
    return used, allow_some(used, kept, share, generator)


@every_smoothed_structure
@given(st.data())
def test_chains_and_classes_have_the_enumerated_formulas(kind, smoothing, data):
    case, y = draw_problem(data, kind, min_batch=1)
    used, allowed = draw_allowed(data, case, y)
    built = structure(case)
    marginal = F.marginal_nll(built, allowed)
    hinge = F.latent_hinge(built, allowed, smoothing=smoothing, cost_scale=2.0)
    for b, row in enumerate(case):
        inside, costs = truth_of(row.scores, used[b], allowed[b])
        expected = row.log_partition() - inside.logsumexp(0)
        assert_close(marginal[b], expected, **CLOSE)
        outer = smooth_max(row.scores + 2 * costs, smoothing)
        assert_close(hinge[b], outer - smooth_max(inside, smoothing), **CLOSE)


@every_structure
def test_gradients_are_the_derivatives_of_the_values(kind):
    case = SMALL[kind]
    leaves = case.leaves().potentials()
    allowed = structure(case).hamming(GOLD[kind]) == 0
    allowed |= (
        torch.rand(allowed.shape, generator=torch.Generator().manual_seed(1)) < 0.5
    )
    losses = [MarginalLikelihood("sum"), LatentHinge(Entropy(0.5), reduction="none")]
    losses += [LatentHinge(), LatentHinge(L2(2.0, 3)), LatentHinge(L2(2.0, "exact"))]
    for loss in losses:

        def value(*potentials, loss=loss):
            given = dict(zip(leaves, potentials, strict=True))
            return loss(structure(case.replace(**given)), allowed)

        assert gradcheck(value, tuple(leaves.values()))


@every_structure
def test_reductions_weigh_the_rows(kind):
    built = structure(SMALL[kind])
    allowed = built.hamming(GOLD[kind]) == 0
    weight = torch.tensor([0.5, 2.0]).double()
    for make in (MarginalLikelihood, lambda **x: LatentHinge(L2(1.0, 2), **x)):
        rows = make(reduction="none")(built, allowed)
        count = built.lengths.double()
        expected = {
            "sum": rows @ weight,
            "mean": rows @ weight / weight.sum(),
            "token_mean": rows @ weight / (weight @ count),
        }
        for reduction, value in expected.items():
            assert_close(make(reduction=reduction)(built, allowed, weight), value)
        assert_close(make()(built, allowed), rows.mean())
    hinge = LatentHinge(L2(1.0, 2), reduction="none")
    hinge(built, allowed)
    assert hinge.exact.shape == (2,)
    LatentHinge()(built, allowed)
    assert "L2" in repr(hinge)


def test_rows_without_labels_cost_nothing():
    case = SMALL["chain"].replace(mask=torch.zeros(2, 3).bool())
    nothing = torch.zeros_like(case.emissions).bool()
    for loss in (MarginalLikelihood(), LatentHinge(), LatentHinge(Entropy(1.0))):
        assert loss(structure(case), nothing) == 0


@every_structure
def test_wrong_arguments_are_named(kind):
    built = structure(SMALL[kind])
    allowed = built.hamming(GOLD[kind]) == 0
    wrong = [
        (TypeError, "allowed: ", allowed.long(), {}),
        (ValueError, "allowed: ", allowed[:, :1], {}),
        (ValueError, "cost: ", allowed, {"cost": "edit"}),
        (ValueError, "cost_scale: ", allowed, {"cost_scale": -1.0}),
        (TypeError, "smoothing: ", allowed, {"smoothing": 3}),
    ]
    for kind_of_error, message, given_allowed, options in wrong:
        with pytest.raises(kind_of_error, match=message):
            LatentHinge(**options)(built, given_allowed)
    barred = allowed.clone()
    barred[1] = False
    for loss in (MarginalLikelihood(), LatentHinge(Entropy(1.0))):
        with pytest.raises(ValueError, match="allowed: row 1 has no feasible output"):
            loss(built, barred)
    with pytest.raises(ValueError, match="reduction: "):
        MarginalLikelihood(reduction="all")


def test_what_answers_maxima_alone_is_told_which_loss_fits():
    scores = torch.randn(2, 3, 3, dtype=torch.float64)
    built, allowed = Matching(scores), torch.ones(2, 3, 3, dtype=torch.bool)
    with pytest.raises(TypeError, match=r"log_prob_within, got Matching; Latent"):
        MarginalLikelihood()(built, allowed)
    assert LatentHinge()(built, allowed) >= 0
