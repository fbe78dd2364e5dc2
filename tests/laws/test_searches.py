"""What structures obey whose maxima are searched for: a file of truth is a row."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import L2, Entropy, StructuralHinge, StructuredPerceptron
from smoothsp.losses import functional as F
from smoothsp.oracles import Structure, SumStructure, TopKStructure
from tests import sweeps
from tests.sweeps import thinned
from tests.truth.circuits.cases import (
    SEARCHES,
    SUMMED,
    check_lengths,
    check_shapes,
    check_strides,
    draw,
)
from tests.truth.losses import smooth_max

# Potentials reach 1000, and sums of ten of them are compared.
CLOSE = {"rtol": 1e-9, "atol": 1e-9}
# those of SUMMED stand among the circuits
KINDS = [kind for kind in SEARCHES if kind not in SUMMED]
every_kind = pytest.mark.parametrize("kind", KINDS)
every_seed = pytest.mark.parametrize("seed", thinned(range(8), 4, 1))


@every_seed
@every_kind
def test_the_best_are_the_sorted_enumeration(kind, seed):
    case = draw(kind, seed)
    built = case.structure()
    value, y = built.decode()
    assert y.dtype == torch.int64
    for k in (1, 3, 50):
        values, ys, valid = built.decode_topk(k)
        fewer = built.decode_topk(max(k - 1, 1))
        for short, long in zip(fewer, (values, ys, valid), strict=True):
            assert_close(short, long[:, : short.shape[1]], rtol=0, atol=0)
        assert (values[:, 1:] <= values[:, :-1]).all()
        for b in range(len(case)):
            scores = case.scores(b)
            assert_close(value[b], scores.max(), **CLOSE)
            assert_close(scores[case.index(b, y[b])], scores.max(), **CLOSE)
            n = min(k, int((scores > -math.inf).sum()))
            assert valid[b].tolist() == [i < n for i in range(k)]
            ranked = scores.sort(descending=True).values
            assert_close(values[b, :n], ranked[:n], **CLOSE)
            places = [case.index(b, y) for y in ys[b, :n]]
            assert len(set(places)) == n
            assert_close(scores[places], values[b, :n], **CLOSE)
            assert (ys[b, n:] == -1).all()
            assert (values[b, n:] == -math.inf).all()


@every_kind
def test_outputs_end_where_their_shapes_say(kind):
    check_shapes(draw(kind, 0))


@every_kind
def test_the_order_of_axes_in_memory_changes_no_gradient(kind):
    check_strides(draw(kind, 0, forbid=False))


@every_kind
def test_lengths_are_a_copy(kind):
    check_lengths(draw(kind, 0))


@every_kind
def test_gradients_of_the_best_mark_their_parts(kind):
    ours, truth = draw(kind, 3).leaves(), draw(kind, 3).leaves()
    built = ours.structure()
    value, y = built.decode()
    values, ys, valid = built.decode_topk(3)
    (2 * value.sum() + values.masked_fill(~valid, 0).sum()).backward()
    for b in range(len(truth)):
        total = 2 * truth.score(b, y[b])
        total = total + sum(truth.score(b, y) for y in ys[b][valid[b]])
        total.backward()
    for name, x in truth.potentials.items():
        assert_close(ours.potentials[name].grad, x.grad, **CLOSE)


@every_kind
def test_scores_of_all_outputs_and_of_nothing_else(kind):
    case = draw(kind, 1)
    ys, scores = torch.stack(list(case.outputs[0]))[None], case.scores(0)
    built = case.row(0).structure()
    assert_close(built.score(ys)[0], scores, **CLOSE)
    assert_close(built.score(ys[:, 0])[0], scores[0], **CLOSE)
    known = {tuple(y.flatten().tolist()) for y in case.outputs[0]}
    generator = torch.Generator().manual_seed(0)
    refused = 0
    for _ in range(40):
        drawn = torch.randint(
            -2, int(ys.max()) + 3, ys[0, 0].shape, generator=generator
        )
        if tuple(drawn.flatten().tolist()) not in known:
            refused += 1
            for ask in (built.score, built.hamming, built.label_counts):
                with pytest.raises(ValueError, match="y: "):
                    ask(drawn[None])
    assert refused
    for ask in (built.hamming, built.label_counts):
        with pytest.raises(ValueError, match="y: "):
            ask(ys)


@pytest.mark.parametrize("dtype", thinned([torch.float64, torch.float32], 2), ids=str)
@every_kind
def test_the_bits_of_a_row_do_not_depend_on_its_neighbours(kind, dtype):
    case = draw(kind, 3).map(lambda x: x.to(dtype))

    def answers(built):
        found = [*built.decode(), *built.decode_topk(4)]
        assert found[0].dtype == found[2].dtype == dtype
        return found

    together = answers(case.structure())
    for b in range(len(case)):
        alone = answers(case.row(b).structure())
        picked = answers(case.structure().select(torch.tensor([b])))
        for x, y, z in zip(together, alone, picked, strict=True):
            assert_close(x[b : b + 1], y, rtol=0, atol=0)
            assert_close(y, z, rtol=0, atol=0)


SMOOTHINGS = (None, L2(0.7, 3), L2(200.0, 60), L2(2.0, "exact"))


@pytest.mark.parametrize(
    ("kind", "smoothing"), thinned(itertools.product(KINDS, SMOOTHINGS), 3), ids=str
)
def test_hinges_are_those_of_the_enumeration(kind, smoothing):
    for seed in range(2 if sweeps.long else 1):
        ours, truth = draw(kind, seed).leaves(), draw(kind, seed)
        places = [int(truth.scores(b).argsort()[-2]) for b in range(len(truth))]
        y = torch.stack([truth.outputs[b][i] for b, i in enumerate(places)])
        if not all(truth.scores(b)[i].isfinite() for b, i in enumerate(places)):
            y = truth.structure().decode()[1]
        found = F.structural_hinge(ours.structure(), y, smoothing=smoothing)
        found.sum().backward()
        for b, row in enumerate(truth.outputs):
            scores = truth.scores(b)
            costs = torch.stack([truth.wrong(x, y[b]) for x in row])
            hinge = smooth_max(scores + costs, smoothing) - truth.score(b, y[b])
            assert_close(found[b], hinge, rtol=1e-8, atol=1e-8)
        for x in ours.potentials.values():
            assert x.grad.isfinite().all()


@every_kind
def test_losses_are_modules_and_never_negative(kind):
    case = draw(kind, 3).map(lambda x: x.float()).leaves()
    built = case.structure()
    assert isinstance(built, Structure)
    assert isinstance(built, TopKStructure)
    y = built.decode_topk(2)[1][:, 0]
    losses = [StructuralHinge(), StructuredPerceptron()]
    losses += [StructuralHinge(L2(1.0, 3), reduction="token_mean")]
    for loss in losses:
        value = loss(built, y)
        assert (value >= 0).all()
        value.backward()
    assert_close(built.scale(2.0).decode()[0], 2 * built.decode()[0])


@every_kind
def test_what_it_cannot_sum_it_does_not_have(kind):
    built = draw(kind, 0).structure()
    assert not isinstance(built, SumStructure)
    with pytest.raises(TypeError, match="has none"):
        F.structural_hinge(built, built.decode()[1], smoothing=Entropy(1.0))


@every_kind
def test_what_is_no_number_is_refused_and_so_is_a_row_without_outputs(kind):
    case = draw(kind, 0)
    for name, x in case.potentials.items():
        place = tuple(case.read()[name].nonzero()[1].tolist())
        for wrong in (math.nan, math.inf):
            bad = x.clone()
            bad[place] = wrong
            # the edges of a grid are two arguments
            grid = kind == "binary_grid" and name == "edges"
            given = "down, right" if grid else name
            with pytest.raises(
                ValueError, match=f"{given}: expected numbers below.*{wrong} at"
            ):
                case.structure(**{name: bad})
    first, main = next(iter(case.potentials.items()))
    cost = torch.zeros_like(main)
    cost[0].fill_(math.nan)
    with pytest.raises(ValueError, match="cost: "):
        case.structure().augment(cost)
    barred = main.clone()
    barred[1] = -math.inf
    with pytest.raises(ValueError, match=f"{first}: row 1 has no feasible output"):
        case.structure(**{first: barred})
    allowed = torch.ones_like(main).bool()
    allowed[1] = False
    with pytest.raises(ValueError, match="allowed: row 1 has no feasible output"):
        case.structure().restrict(allowed)


@pytest.mark.parametrize("kind", SEARCHES)
def test_a_batch_without_rows_has_a_gradient(kind):
    case = draw(kind, 0)
    potentials = {n: x.clone().requires_grad_() for n, x in case.potentials.items()}
    none = case.structure(**potentials).select(torch.zeros(len(case)).bool())
    total = none.decode()[0].sum() + none.decode_topk(2)[0].sum()
    total.backward()
    assert not any(x.grad is not None and x.grad.any() for x in potentials.values())
