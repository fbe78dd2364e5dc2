"""What structures that sum over outputs obey: a file of ``tests/truth`` is a row."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import L2, CRFLoss, StructuralHinge, StructuredPerceptron
from smoothsp.losses import functional as F
from smoothsp.oracles import SpanTree
from tests import sweeps
from tests.sweeps import thinned
from tests.truth.circuits.cases import (
    KINDS,
    SUMMED,
    check_lengths,
    check_shapes,
    check_strides,
    draw,
)
from tests.truth.losses import SMOOTHINGS, smooth_max

# Potentials reach 1000, and sums of ten of them are compared.
CLOSE = {"rtol": 1e-9, "atol": 1e-9}
every_kind = pytest.mark.parametrize("kind", [*KINDS, *SUMMED])
# of what all kinds share
any_kind = pytest.mark.parametrize("kind", thinned([*KINDS, *SUMMED], 4, 1))
every_seed = pytest.mark.parametrize("seed", thinned((3, 4, 0, 5), 4))
# whose loops no other kind shares, and that are compiled anew for float32
ALONE = ("alignment", "spanning_tree")
every_narrow_kind = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            marks=[pytest.mark.long] * (kind.startswith(ALONE) and kind not in ALONE),
        )
        for kind in (*KINDS, *SUMMED)
    ],
)


@every_seed
@every_kind
def test_the_decoded_value_is_the_maximum_and_the_output_attains_it(kind, seed):
    case = draw(kind, seed)
    value, y = case.structure().decode()
    assert y.dtype == torch.int64
    for b in range(len(case)):
        scores = case.scores(b)
        assert_close(value[b], scores.max(), **CLOSE)
        assert_close(scores[case.index(b, y[b])], scores.max(), **CLOSE)


@pytest.mark.parametrize("seed", thinned((4, 3, 0, 5), 4))
@every_kind
def test_topk_is_the_sorted_enumeration(kind, seed):
    case = draw(kind, seed)
    for k in (1, 4, 70):
        values, ys, valid = case.structure().decode_topk(k)
        fewer = case.structure().decode_topk(max(k - 1, 1))
        for short, long in zip(fewer, (values, ys, valid), strict=True):
            assert_close(short, long[:, : short.shape[1]], rtol=0, atol=0)
        assert (values[:, 1:] <= values[:, :-1]).all()
        for b in range(len(case)):
            scores = case.scores(b)
            ranked = scores.sort(descending=True).values
            n = min(k, int((scores > -math.inf).sum()))
            assert valid[b].tolist() == [i < n for i in range(k)]
            assert_close(values[b, :n], ranked[:n], **CLOSE)
            places = [case.index(b, y) for y in ys[b, :n]]
            assert len(set(places)) == n
            assert_close(scores[places], values[b, :n], **CLOSE)
            assert (ys[b, n:] == -1).all()
            assert (values[b, n:] == -math.inf).all()


def test_the_k_best_lose_none_of_scores_that_differ_by_a_rounding():
    # 4 less either is 3
    labels = torch.tensor([4.0, 1.0, 1.0 + 2**-52], dtype=torch.float64)
    values, _, valid = SpanTree(labels.reshape(1, 1, 1, 3)).decode_topk(4)
    assert valid.tolist() == [[True, True, True, False]]
    assert_close(values[0, :3], labels.sort(descending=True).values, rtol=0, atol=0)


@every_kind
def test_gradients_of_the_k_best_mark_their_parts(kind):
    ours, truth = draw(kind, 3).leaves(), draw(kind, 3).leaves()
    values, ys, valid = ours.structure().decode_topk(3)
    values.masked_fill(~valid, 0).sum().backward()
    for b in range(len(truth)):
        total = sum(truth.score(b, y) for y in ys[b][valid[b]])
        if total.requires_grad:
            total.backward()
    for name, x in truth.potentials.items():
        assert_close(ours.potentials[name].grad, x.grad, **CLOSE)


@every_kind
def test_draws_are_outputs_of_the_right_frequency(kind):
    case = draw(kind, 0, forbid=True)
    n = 4000
    draws = case.structure().sample(n, torch.Generator().manual_seed(2))
    again = case.structure().sample(n, torch.Generator().manual_seed(2))
    assert_close(draws, again, rtol=0, atol=0)
    for b in range(len(case)):
        found, counts = draws[b].unique(dim=0, return_counts=True)
        places = [case.index(b, y) for y in found]
        chances = case.scores(b).softmax(0)
        expected = n * chances
        seen = torch.zeros_like(expected)
        seen[places] = counts.double()
        assert (seen[chances == 0] == 0).all()
        # four standard deviations of a binomial count, and one
        slack = 4 * (expected * (1 - chances)).sqrt() + 1
        assert ((seen - expected).abs() <= slack).all()


@any_kind
def test_outputs_end_where_their_shapes_say(kind):
    check_shapes(draw(kind, 0))


@any_kind
def test_the_order_of_axes_in_memory_changes_no_gradient(kind):
    check_strides(draw(kind, 0, forbid=False))


@pytest.mark.parametrize("kind", KINDS)
def test_scores_costs_and_counts_are_of_outputs_that_exist(kind):
    built = draw(kind, 0).structure()
    _, ys, valid = built.decode_topk(2)
    y, second = ys[:, 0].clone(), ys[range(len(ys)), valid.sum(1) - 1]
    asks = built.score, built.hamming, built.label_counts
    expected = [ask(second) for ask in asks]
    for ask in asks:
        ask(y)
    # what was known of y is not known of what it becomes, however it does
    y.numpy()[...] = second.numpy()
    torch.testing.assert_close([ask(y) for ask in asks], expected, rtol=0, atol=0)
    y.fill_(99)
    for ask in asks:
        with pytest.raises(ValueError, match="y: "):
            ask(y)


@any_kind
def test_lengths_are_a_copy(kind):
    check_lengths(draw(kind, 0))


@every_seed
@every_kind
def test_the_log_partition_is_the_logsumexp_of_the_enumeration(kind, seed):
    case = draw(kind, seed)
    found = case.structure().log_partition()
    for b in range(len(case)):
        assert_close(found[b], case.scores(b).logsumexp(0), **CLOSE)


@every_kind
def test_the_log_count_counts(kind):
    for seed in range(2):
        case = draw(kind, seed)
        found = case.structure().log_count()
        for b in range(len(case)):
            count = (case.scores(b) > -math.inf).sum()
            assert_close(found[b], count.double().log(), **CLOSE)


@every_seed
@every_kind
def test_marginals_are_the_enumerated_expectation(kind, seed):
    case = draw(kind, seed)
    built = case.structure()
    for name, x in case.potentials.items():
        found = built.marginals(name)
        for b in range(len(case)):
            row = torch.zeros_like(x if name in case.shared else x[b])
            chances = case.scores(b).softmax(0)
            for chance, y in zip(chances, case.outputs[b], strict=True):
                for part, place in case.parts(b, y):
                    if part == name:
                        row[place if name in case.shared else place[1:]] += chance
            assert_close(found[b], row, **CLOSE)


@every_seed
@every_kind
def test_gradients_of_every_answer_are_those_of_the_enumeration(kind, seed):
    ours, truth = draw(kind, seed).leaves(), draw(kind, seed).leaves()
    upstream = torch.linspace(-1.0, 2.0, len(ours), dtype=torch.float64)
    built = ours.structure()
    value, y = built.decode()
    (
        upstream * (built.log_partition() + 2 * value + 3 * built.score(y))
    ).sum().backward()
    for b in range(len(truth)):
        scores = truth.scores(b)
        best = scores[truth.index(b, y[b])]
        total = scores[scores > -math.inf].logsumexp(0) + 5 * best
        if total.requires_grad:
            (upstream[b] * total).backward()
    for name, x in truth.potentials.items():
        expected = torch.zeros_like(x) if x.grad is None else x.grad
        assert_close(ours.potentials[name].grad, expected, **CLOSE)


@any_kind
def test_second_derivatives_and_those_of_entropy_and_marginals(kind):
    case = draw(kind, 0)
    names = list(case.potentials)
    generator = torch.Generator().manual_seed(1)

    ours, truth = case.leaves(), case.leaves()
    leaves, twins = ours.potentials.values(), truth.potentials.values()
    way = [torch.randn(x.shape, generator=generator).double() for x in leaves]
    built = ours.structure()
    total = sum(truth.scores(b).logsumexp(0) for b in range(len(truth)))
    slopes = torch.autograd.grad(
        built.log_partition().sum(), list(leaves), create_graph=True, allow_unused=True
    )
    along = sum((s * w).sum() for s, w in zip(slopes, way, strict=True))
    found = torch.autograd.grad(along, list(leaves))
    slopes = torch.autograd.grad(total, list(twins), create_graph=True)
    along = sum((s * w).sum() for s, w in zip(slopes, way, strict=True))
    for name, x, e in zip(
        names, found, torch.autograd.grad(along, list(twins)), strict=True
    ):
        assert_close(x, e, **CLOSE, msg=name)
    entropies = []
    for b in range(len(truth)):
        logs = truth.scores(b).log_softmax(0)
        entropies.append(-(logs.exp() * logs).sum())
    expected = torch.stack(entropies)
    assert_close(built.entropy(), expected, **CLOSE)
    found = torch.autograd.grad(built.entropy().sum(), list(leaves))
    for x, e in zip(
        found, torch.autograd.grad(expected.sum(), list(twins)), strict=True
    ):
        assert_close(x, e, **CLOSE)
    first = way[0]
    found = torch.autograd.grad((built.marginals() * first).sum(), list(leaves))
    slope = torch.autograd.grad(
        sum(truth.scores(b).logsumexp(0) for b in range(len(truth))),
        next(iter(twins)),
        create_graph=True,
    )[0]
    expected = torch.autograd.grad((slope * first).sum(), list(twins))
    for x, e in zip(found, expected, strict=True):
        assert_close(x, e, **CLOSE)


@every_seed
@every_kind
def test_scores_and_chances_of_all_outputs(kind, seed):
    case = draw(kind, seed)
    for b in range(len(case)):
        row = case.row(b)
        ys, scores = torch.stack(list(row.outputs[0]))[None], row.scores(0)
        built = row.structure()
        assert_close(built.score(ys)[0], scores, **CLOSE)
        assert_close(built.score(ys[:, 0])[0], scores[0], **CLOSE)
        noisy = torch.where(case.padding(b), 5, ys)
        assert_close(built.score(noisy)[0], scores, **CLOSE)
        logs = built.log_prob(ys)
        assert (logs <= 0).all()
        assert_close(logs.exp().sum(1), torch.ones(1).double(), **CLOSE)
        expected = torch.where(
            scores > -math.inf, scores - scores.logsumexp(0), -math.inf
        )
        assert_close(logs[0], expected, **CLOSE)


@every_kind
def test_what_is_no_output_has_no_score(kind):
    case = draw(kind, 0)
    generator = torch.Generator().manual_seed(0)
    built = case.row(0).structure()
    known = {tuple(y.flatten().tolist()) for y in case.outputs[0]}
    y = case.outputs[0][0]
    refused = 0
    for _ in range(30):
        other = torch.randint(-1, int(y.max()) + 3, y.shape, generator=generator)
        if tuple(other.flatten().tolist()) not in known:
            refused += 1
            with pytest.raises(ValueError, match=r"y: expected .*, got .* at row 0"):
                built.score(other[None])
    assert refused


def answers(built):
    """Every number that a structure can be asked for without an output."""
    value, y = built.decode()
    return {
        "value": value,
        "y": y,
        "values": built.decode_topk(4)[0],
        "score": built.score(y),
        "log_partition": built.log_partition(),
        "marginals": built.marginals(),
        "entropy": built.entropy(),
        "log_count": built.log_count(),
    }


@pytest.mark.parametrize("dtype", thinned([torch.float64, torch.float32], 2), ids=str)
@every_kind
def test_the_bits_of_a_row_do_not_depend_on_its_neighbours(kind, dtype):
    case = draw(kind, 3).map(lambda x: x.to(dtype))
    together = answers(case.structure())
    for b in range(len(case)):
        alone = answers(case.row(b).structure())
        picked = answers(case.structure().select(torch.tensor([b])))
        for name, found in together.items():
            assert_close(found[b : b + 1], alone[name], rtol=0, atol=0)
            assert_close(alone[name], picked[name], rtol=0, atol=0)


@pytest.mark.parametrize(
    "poison", thinned([math.nan, math.inf, 1e30, -math.inf], 4), ids=str
)
@every_kind
def test_what_no_output_uses_is_never_read(kind, poison):
    case = draw(kind, 4, forbid=False)
    read = case.read()
    dirty = {n: x.masked_fill(~read[n], poison) for n, x in case.potentials.items()}
    expected, found = answers(case.structure()), answers(case.structure(**dirty))
    for name, value in expected.items():
        assert_close(found[name], value, rtol=0, atol=0)
    leaves = {n: x.requires_grad_() for n, x in dirty.items()}
    built = case.structure(**leaves)
    total = built.log_partition() + built.decode()[0] + built.entropy()
    total.sum().backward()
    for name, x in leaves.items():
        assert x.grad.isfinite().all()
        assert (x.grad[~read[name]] == 0).all()


@every_narrow_kind
def test_half_the_precision_is_close(kind):
    for seed in range(2):
        case = draw(kind, seed)
        precise = answers(case.map(lambda x: x.float().double()).structure())
        for name, x in answers(case.map(lambda x: x.float()).structure()).items():
            if name == "y":
                continue
            assert x.dtype == torch.float32
            tolerance = {"rtol": 1e-6, "atol": 2e-5 if name == "marginals" else 1e-4}
            assert_close(x.double(), precise[name], **tolerance)


@any_kind
def test_scaling_scales_and_restricting_restricts(kind):
    case = draw(kind, 0)
    scaled = case.structure().scale(0.5)
    expected = case.map(lambda x: 0.5 * x).structure()
    assert_close(scaled.log_partition(), expected.log_partition(), **CLOSE)
    first = next(iter(case.potentials))
    kept = torch.ones_like(case.potentials[first]).bool()
    partial = [y[len(y) // 2] for y in case.outputs]
    for b, y in enumerate(partial):
        used = [p for n, p in case.parts(b, y) if n == first]
        kept[b] = False
        for place in used:
            kept[place] = True
    found = case.structure().restrict(kept)
    barred = case.potentials[first].masked_fill(~kept, -math.inf)
    expected = case.structure(**{first: barred})
    assert_close(found.log_partition(), expected.log_partition(), rtol=0, atol=0)


@every_narrow_kind
def test_the_default_dtype_changes_no_answer(kind):
    case = draw(kind, 3).map(lambda x: x.float())

    def ask():
        built = case.structure()
        y = built.decode()[1]
        hinge = F.structural_hinge(built, y, smoothing=L2(1.0, 2))
        return answers(built) | {"hinge": hinge, "nll": F.crf_nll(built, y)}

    before = torch.get_default_dtype()
    for default in (torch.float64, torch.bfloat16):
        torch.set_default_dtype(default)
        try:
            found = ask()
        finally:
            torch.set_default_dtype(before)
        assert_close(found, ask(), rtol=0, atol=0)


# a step that shares no factor with the number of smoothings meets all of them
@pytest.mark.parametrize(
    ("kind", "smoothing"),
    thinned(itertools.product([*KINDS, *SUMMED], SMOOTHINGS), 7),
    ids=str,
)
def test_the_hinge_is_the_enumerated_formula(kind, smoothing):
    for seed in range(2 if sweeps.long else 1):
        ours, truth = draw(kind, seed).leaves(), draw(kind, seed).leaves()
        gold = [y[seed % len(y)] for y in truth.outputs]
        for b, y in enumerate(gold):
            if truth.score(b, y) == -math.inf:
                best = int(truth.scores(b).argmax())
                gold[b] = truth.outputs[b][best]
        y = torch.stack(gold)
        noise = torch.randint(-100, 9, y.shape)
        y = torch.where(
            torch.stack([truth.padding(b) for b in range(len(y))]), noise, y
        )
        found = F.structural_hinge(ours.structure(), y, smoothing=smoothing)
        free = F.structural_hinge(ours.structure(), y, smoothing=smoothing, cost=None)
        (found.sum() + free.sum()).backward()
        for b, row in enumerate(truth.outputs):
            scores = truth.scores(b)
            costs = torch.stack([truth.wrong(x, gold[b]) for x in row])
            target = truth.score(b, gold[b])
            hinge = smooth_max(scores + costs, smoothing) - target
            assert_close(found[b], hinge, rtol=1e-8, atol=1e-8)
            hard = smooth_max(scores, smoothing) - target
            assert_close(free[b], hard, rtol=1e-8, atol=1e-8)


@every_kind
def test_the_losses_are_modules_of_any_structure(kind):
    case = draw(kind, 3).map(lambda x: x.float()).leaves()
    y = case.structure().decode()[1]
    losses = [CRFLoss(), StructuredPerceptron()]
    losses += [StructuralHinge(s, reduction="token_mean") for s in SMOOTHINGS]
    for loss in losses:
        value = loss(case.structure(), y)
        assert (value >= 0).all()
        value.backward()
    for x in case.potentials.values():
        assert x.grad.isfinite().all()
