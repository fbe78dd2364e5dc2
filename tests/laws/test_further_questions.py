"""Max-marginals, cross-entropy, relative entropy and distinct draws, by enumeration."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from smoothsp.oracles import Chain, Multiclass, Subset
from tests.sweeps import thinned
from tests.truth.circuits.cases import KINDS, SUMMED, draw

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
every_kind = pytest.mark.parametrize("kind", [*KINDS, *SUMMED])
every_seed = pytest.mark.parametrize("seed", thinned((3, 4, 0, 5), 4))


@every_seed
@every_kind
def test_max_marginals_are_the_best_scores_with_each_part(kind, seed):
    case = draw(kind, seed)
    built = case.structure()
    for name, x in case.potentials.items():
        found = built.max_marginals(name)
        shape = (len(case), *x.shape) if name in case.shared else x.shape
        expected = torch.full(shape, -math.inf).double()
        for b in range(len(case)):
            for score, y in zip(case.scores(b), case.outputs[b], strict=True):
                for part, place in case.parts(b, y):
                    if part == name:
                        at = (b, *place) if name in case.shared else place
                        expected[at] = expected[at].maximum(score)
        assert_close(found, expected, **CLOSE)
    with pytest.raises(ValueError, match="name: "):
        built.max_marginals("none")


@pytest.mark.parametrize("kind", SUMMED)
def test_max_marginals_far_from_zero_reach_the_best_score(kind):
    case = draw(kind, 0, forbid=False).map(lambda x: (x.sin() + 1e4).float())
    built = case.structure()
    found, best = built.max_marginals().flatten(1).amax(1), built.decode()[0]
    rows = built.lengths > 0
    assert_close(found[rows], best[rows], rtol=1.2e-7, atol=0)


def pair(kind, seed):
    """Two cases of the same outputs, the second of which forbids no more."""
    generator = torch.Generator().manual_seed(seed + 100)
    p = draw(kind, seed).map(lambda x: torch.where(x.isinf(), x, 2 * x.sin())).leaves()
    q = p.map(
        lambda x: torch.where(
            x.isinf(), x, torch.randn(x.shape, generator=generator).double()
        )
    ).leaves()
    return p, q


@every_seed
@every_kind
def test_divergences_and_their_gradients_are_those_of_the_enumeration(kind, seed):
    p, q = pair(kind, seed)
    one, two = p.structure(), q.structure()
    crossed, relative = one.cross_entropy(two), one.kl(two)
    expected = []
    for b in range(len(p)):
        logs = [x.scores(b) for x in (p, q)]
        some = logs[0] > -math.inf
        log_p, log_q = (x[some].log_softmax(0) for x in logs)
        chance = log_p.exp()
        expected.append(
            torch.stack([-(chance * log_q).sum(), (chance * (log_p - log_q)).sum()])
        )
    expected = torch.stack(expected, 1)
    assert_close(torch.stack([crossed, relative]), expected, **CLOSE)
    assert (relative >= 0).all()
    given = [*p.potentials.values(), *q.potentials.values()]
    weights = torch.linspace(1, 2, len(p)).double()
    found = torch.autograd.grad(((crossed + 3 * relative) * weights).sum(), given)
    total = (expected[0] + 3 * expected[1]) * weights
    truth = torch.autograd.grad(total.sum(), given, allow_unused=True)
    for x, y in zip(found, truth, strict=True):
        assert_close(x, torch.zeros_like(x) if y is None else y, **CLOSE)
    assert_close(one.kl(one), torch.zeros(len(p)).double(), rtol=0, atol=1e-12)
    assert_close(one.cross_entropy(one), one.entropy(), **CLOSE)


@every_kind
def test_divergences_of_no_rows_are_empty(kind):
    case = draw(kind, 0)
    potentials = {
        n: x if n in case.shared else x[:0] for n, x in case.potentials.items()
    }
    options = {
        n: x[:0] if isinstance(x, Tensor) else x for n, x in case.options.items()
    }
    built = case.build(**potentials, **options)
    for found in (built.cross_entropy(built), built.kl(built)):
        assert found.shape == (0,)


@pytest.mark.parametrize("kind", thinned([*KINDS, *SUMMED], 4))
def test_what_the_other_forbids_is_infinitely_far(kind):
    barred = draw(kind, 0, forbid=True)
    free = barred.map(lambda x: x.masked_fill(x.isinf(), 0))
    for b in range(len(free)):
        one, two = (x.row(b).structure() for x in (free, barred))
        ours, theirs = (x.scores(b) > -math.inf for x in (free, barred))
        far = bool((ours & ~theirs).any())
        assert one.cross_entropy(two).isinf().item() == far
        assert one.kl(two).isinf().item() == far


@every_kind
def test_distinct_draws_have_the_frequencies_of_draws_without_replacement(kind):
    case = draw(kind, 0, forbid=True).map(
        lambda x: torch.where(x.isinf(), x, 0.7 * x.sin())
    )
    times = 800 if kind in KINDS else 300
    for b in range(min(len(case), 2)):
        row = case.row(b)
        built = row.structure().select(torch.zeros(times).long())
        ys = built.sample(2, torch.Generator().manual_seed(b), replace=False)
        chances = row.scores(0).softmax(0)
        number = {tuple(y.flatten().tolist()): i for i, y in enumerate(row.outputs[0])}
        listed = ys.unsqueeze(-1).flatten(2).tolist()
        pairs = [[number.get(tuple(y)) for y in two] for two in listed]
        several = int((chances > 0).sum()) > 1
        if not several:
            assert all(two[0] is not None for two in pairs)
            assert (ys[:, 1] == -1).all()
            continue
        assert all(one != other for one, other in pairs)
        places = torch.tensor(pairs).T
        seen = torch.stack([x.bincount(minlength=len(chances)) for x in places])
        after = chances[:, None] * chances / (1 - chances[:, None])
        expected = times * torch.stack([chances, after.fill_diagonal_(0).sum(0)])
        slack = 4.5 * (expected * (1 - expected / times)).sqrt() + 2
        assert ((seen - expected).abs() <= slack).all()


@every_kind
def test_all_outputs_come_once_and_then_none(kind):
    case = draw(kind, 3)
    n = max(map(len, case.outputs)) + 1
    ys = case.structure().sample(n, torch.Generator().manual_seed(0), replace=False)
    again = case.structure().sample(n, torch.Generator().manual_seed(0), replace=False)
    assert_close(ys, again, rtol=0, atol=0)
    for b in range(len(case)):
        possible = int((case.scores(b) > -math.inf).sum())
        places = {case.index(b, y) for y in ys[b, :possible]}
        assert len(places) == possible
        assert (ys[b, possible:] == -1).all()


def test_rare_outputs_are_drawn_after_the_likely_one():
    # probabilities of e^-700 and e^-2000 beside 1: no draw would ever repeat them
    scores = torch.tensor([[0.0, -700.0, -2000.0, -2000.0]]).double()
    built = Subset(scores, 1, 1).select(torch.zeros(400).long())
    ys = built.sample(4, torch.Generator().manual_seed(0), replace=False)
    order = ys.argmax(2)
    assert (order[:, 0] == 0).all() and (order[:, 1] == 1).all()
    assert 150 < int((order[:, 2] == 2).sum()) < 250
    assert (order[:, 2] + order[:, 3] == 5).all()


def test_kl_keeps_its_digits_under_a_common_offset():
    scores = torch.randn(1, 8, generator=torch.Generator().manual_seed(0))
    other = scores + 1e-3 * scores.flip(1)
    near = Subset(scores.double(), 2, 3).kl(Subset(other.double(), 2, 3))
    for offset in (1e3, 1e6, 1e9):
        far = [Subset(x.double() + offset, 3, 3) for x in (scores, other)]
        close = [Subset(x.double(), 3, 3) for x in (scores, other)]
        assert_close(far[0].kl(far[1]), close[0].kl(close[1]), rtol=1e-3, atol=1e-6)
    assert near > 0


def test_arguments_are_checked():
    built = Subset(torch.zeros(1, 3))
    with pytest.raises(TypeError, match="replace: "):
        built.sample(2, replace=1)
    with pytest.raises(ValueError, match="n: "):
        built.sample(10**7, replace=False)
    other = Subset(torch.zeros(1, 3), 1)
    with pytest.raises(ValueError, match="other: "):
        built.cross_entropy(other)
    with pytest.raises(TypeError, match="max_marginals: "):
        torch.func.vmap(lambda x: Subset(x).max_marginals())(torch.zeros(2, 1, 3))


def chains(dtype=torch.float64, by_step=False):
    """Two chains of the same masked positions, and a move that both forbid."""
    generator = torch.Generator().manual_seed(int(by_step))
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]]).bool()
    found = []
    for _ in range(2):
        emissions = torch.randn(4, 4, 3, generator=generator).to(dtype)
        emissions[1, 1] = math.nan
        shape = (4, 3, 3, 3) if by_step else (3, 3)
        moves = torch.randn(shape, generator=generator).to(dtype)
        moves[..., 0, 1] = -math.inf
        ends = torch.randn(2, 3, generator=generator).to(dtype)
        found.append(Chain(emissions, moves, *ends, mask=mask))
    return found


@pytest.mark.parametrize("by_step", [False, True])
def test_chains_are_asked_what_all_of_their_labels_say(by_step):
    p, q = chains(by_step=by_step)
    best, relative, crossed = p.max_marginals(), p.kl(q), p.cross_entropy(q)
    draws = p.sample(90, torch.Generator().manual_seed(0), replace=False)
    for b in range(4):
        rows = [x.select(torch.tensor([b])) for x in (p, q)]
        _, ys, valid = rows[0].decode_topk(90)
        ys = ys[:, : int(valid.sum())]
        scores, logs = rows[0].score(ys)[0], [x.log_prob(ys)[0] for x in rows]
        ys = ys[0]
        expected = torch.full((4, 3), -math.inf).double()
        for y, score in zip(ys, scores, strict=True):
            for t in (y >= 0).nonzero().flatten():
                expected[t, y[t]] = expected[t, y[t]].maximum(score)
        assert_close(best[b], expected, **CLOSE)
        chances = logs[0].exp()
        assert_close(relative[b], (chances * (logs[0] - logs[1])).sum(), **CLOSE)
        assert_close(crossed[b], -(chances * logs[1]).sum(), **CLOSE)
        found = {tuple(y) for y in draws[b, : len(scores)].tolist()}
        assert found == {tuple(y) for y in ys.tolist()}
        assert (draws[b, len(scores) :] == -1).all()


def test_candidates_are_drawn_without_replacement():
    scores = torch.tensor([[0.0, 1.0, -math.inf, 2.0], [5.0, 1.0, 1.0, 1.0]]).double()
    mask = torch.tensor([[True] * 4, [False] * 4])
    built = Multiclass(scores, mask)
    assert_close(built.max_marginals()[0], scores[0])
    many = Multiclass(scores[:1]).select(torch.zeros(9000).long())
    draws = many.sample(5, torch.Generator().manual_seed(0), replace=False)
    assert (draws[:, 3:] == -1).all() and (draws[:, :3].sort(1).values[:, 2] == 3).all()
    chances = scores[0].softmax(0)
    after = chances[:, None] * chances / (1 - chances[:, None])
    for place, expected in enumerate((chances, after.fill_diagonal_(0).sum(0))):
        counts = torch.bincount(draws[:, place], minlength=4) / 9000
        assert ((counts - expected).abs() < 0.025).all()
    assert (built.sample(3, replace=False)[1] == -1).all()


def test_candidates_have_divergences():
    given = [
        torch.tensor([[0.0, 1.0, 9.0]]).double().requires_grad_() for _ in range(2)
    ]
    mask = torch.tensor([[True, True, False]])
    p, q = Multiclass(given[0], mask), Multiclass(given[1] * 2, mask)
    logs = [x[0, :2].log_softmax(0) for x in (given[0], given[1] * 2)]
    expected = (logs[0].exp() * (logs[0] - logs[1])).sum()
    assert_close(p.kl(q)[0], expected)
    assert_close(p.cross_entropy(q), p.kl(q) + p.entropy())
    found = torch.autograd.grad(p.kl(q).sum(), given)
    for one, two in zip(found, torch.autograd.grad(expected, given), strict=True):
        assert_close(one, two)
    barred = Multiclass(torch.tensor([[0.0, -math.inf, 0.0]]).double(), mask)
    assert p.kl(barred).isinf() and barred.kl(p).isfinite()
    with pytest.raises(ValueError, match="other: "):
        p.kl(Multiclass(given[0]))
