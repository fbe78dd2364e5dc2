"""Spanning trees: larger ones, extreme ones, empty ones, and what is refused."""

import math

import networkx
import pytest
import torch
from torch.testing import assert_close

from smoothsp.oracles import SpanningTree
from tests.sweeps import thinned
from tests.truth.circuits.cases import draw

both_roots = pytest.mark.parametrize("single", [False, True])


def arcs_of(seed, *shape, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(shape, generator=generator, dtype=torch.float64)


def by_networkx(arcs, single):
    """The highest score, with the arcs from the root moved down to keep them few."""
    m = len(arcs)
    down = 10 * m * float(arcs.abs().max()) if single else 0.0
    graph = networkx.DiGraph()
    for head in range(m):
        for word in range(1, m):
            if head != word:
                score = float(arcs[head, word]) - (down if head == 0 else 0.0)
                graph.add_edge(head, word, weight=score)
    best = networkx.maximum_spanning_arborescence(graph)
    return sum(float(arcs[edge]) for edge in best.edges)


@both_roots
def test_the_best_tree_of_long_sentences_is_that_of_networkx(single):
    for n, ties in ((5, True), (12, True), (25, False)):
        arcs = arcs_of(n, 3, n + 1, n + 1, spread=3.0)
        arcs = arcs.round() if ties else arcs
        value, _ = SpanningTree(arcs, single_root=single).decode()
        expected = [by_networkx(row, single) for row in arcs]
        assert_close(
            value, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-9
        )


def by_partition(arcs, single, k):
    """The k highest scores: others part by the first word whose head differs."""
    n = len(arcs) - 1
    every = torch.ones_like(arcs, dtype=torch.bool)
    found, parts = [], [every]
    candidates = []
    while len(found) < k:
        for allowed in parts:
            barred = arcs.masked_fill(~allowed, -torch.inf)[None]
            try:
                value, heads = SpanningTree(barred, single_root=single).decode()
            except ValueError:
                continue
            candidates.append((value.item(), heads[0].tolist(), allowed))
        if not candidates:
            break
        candidates.sort(key=lambda x: x[0])
        value, heads, allowed = candidates.pop()
        found.append(value)
        parts, kept = [], allowed.clone()
        for word in range(1, n + 1):
            other = kept.clone()
            other[heads[word - 1], word] = False
            parts.append(other)
            kept[:, word] = torch.arange(n + 1) == heads[word - 1]
    return found


@both_roots
def test_the_k_best_trees_of_long_sentences_are_those_of_a_partition(single):
    for n, kind in ((7, "free"), (9, "ties"), (8, "barred")):
        arcs = arcs_of(n, n + 1, n + 1, spread=2.0)
        if kind == "ties":
            arcs = arcs.round()
        if kind == "barred":
            arcs = arcs.masked_fill(arcs < -0.5, -torch.inf)
            arcs[0, 1] = arcs[1, 2:] = 0.0
        built = SpanningTree(arcs[None], single_root=single)
        values, ys, valid = built.decode_topk(12)
        expected = torch.tensor(by_partition(arcs, single, 12), dtype=torch.float64)
        assert int(valid.sum()) == len(expected) == 12
        assert_close(values[0], expected, rtol=1e-12, atol=1e-9)
        assert len(ys[0].unique(dim=0)) == 12
        assert_close(built.score(ys), values, rtol=1e-12, atol=1e-9)


def laplacian_sum(arcs, single):
    """Koo et al. (2007), section 3, as a determinant."""
    weights = arcs[:, 1:, 1:].exp()
    weights = weights * (1 - torch.eye(weights.shape[1], dtype=torch.float64))
    root = arcs[:, 0, 1:].exp()
    matrix = torch.diag_embed(weights.sum(1)) - weights
    if single:
        matrix = torch.cat([root[:, None], matrix[:, 1:]], 1)
    else:
        matrix = matrix + torch.diag_embed(root)
    return torch.linalg.slogdet(matrix)[1]


@both_roots
def test_sums_over_long_sentences_are_determinants(single):
    for n in (1, 7, 40):
        ours = arcs_of(n, 4, n + 1, n + 1).requires_grad_()
        truth = ours.detach().clone().requires_grad_()
        found = SpanningTree(ours, single_root=single).log_partition()
        expected = laplacian_sum(truth, single)
        assert_close(found, expected, rtol=1e-11, atol=1e-11)
        found.sum().backward()
        expected.sum().backward()
        inside = ~torch.eye(n + 1).bool()
        inside[:, 0] = False
        assert_close(ours.grad, truth.grad * inside, rtol=1e-8, atol=1e-10)


@both_roots
def test_counts_are_those_of_cayley(single):
    for n in (1, 2, 9):
        built = SpanningTree(torch.zeros(1, n + 1, n + 1).double(), single_root=single)
        count = n ** (n - 1) if single else (n + 1) ** (n - 1)
        assert_close(
            built.log_count(), torch.tensor([math.log(count)], dtype=torch.float64)
        )
        values, ys, valid = built.decode_topk(20)
        assert int(valid.sum()) == min(20, count)
        assert len(ys[0, valid[0]].unique(dim=0)) == int(valid.sum())
        assert (values[valid] == 0).all()


@pytest.mark.parametrize("spread", thinned([3000.0, 300.0], 2))
@pytest.mark.parametrize("kind", ["spanning_tree", "spanning_tree_single_root"])
def test_weights_beyond_the_exponents_of_float64_lose_nothing(kind, spread):
    for seed in range(4):
        case = draw(kind, 3 * seed, forbid=False).map(lambda x: spread * x)
        ours, truth = case.leaves(), case.leaves()
        built = ours.structure()
        found = built.log_partition()
        expected = torch.stack([truth.scores(b).logsumexp(0) for b in range(len(case))])
        assert_close(found, expected, rtol=1e-12, atol=1e-9)
        way = torch.linspace(-1, 1, ours.potentials["arcs"].numel()).double()
        way = way.reshape(ours.potentials["arcs"].shape)
        for leaves, value in ((ours, found), (truth, expected)):
            x = leaves.potentials["arcs"]
            (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
            (leaves.potentials["curve"],) = torch.autograd.grad((slope * way).sum(), x)
            leaves.potentials["slope"] = slope.detach()
        for name in ("slope", "curve"):
            found, expected = (x.potentials[name] for x in (ours, truth))
            assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_two_words_that_hold_on_to_each_other():
    # either has the root, and the other it: the determinant is a difference of e^4000
    for strong in (0.0, 100.0, 2000.0):
        arcs = torch.zeros(1, 3, 3).double()
        arcs[0, 1, 2] = arcs[0, 2, 1] = strong
        built = SpanningTree(arcs)
        total = math.log(2 + math.exp(-strong)) + strong
        assert_close(built.log_partition(), torch.tensor([total], dtype=torch.float64))
        chance = 1 / (2 + math.exp(-strong))
        assert_close(built.marginals()[0, 1, 2].item(), chance)
        # a walk from one would go to and fro e^2000 times
        draws = built.sample(2000, torch.Generator().manual_seed(0))
        seen = (draws[0, :, 1] == 1).double().mean().item()
        assert abs(seen - chance) < 4 * math.sqrt(0.25 / 2000)


@pytest.mark.parametrize("kind", ["spanning_tree", "spanning_tree_single_root"])
def test_draws_word_by_word_have_the_right_frequency(kind):
    # words prefer each other so much that no walk would end
    case = draw(kind, 0, forbid=False)
    arcs = case.potentials["arcs"].clone()
    arcs[:, 0] -= 60
    arcs[:, 3] -= 60
    arcs[:, 4] -= 60
    case.potentials["arcs"] = arcs
    draws = case.structure().sample(2000, torch.Generator().manual_seed(1))
    for b in range(len(case)):
        found, counts = draws[b].unique(dim=0, return_counts=True)
        expected = 2000 * case.scores(b).softmax(0)
        seen = torch.zeros_like(expected)
        seen[[case.index(b, y) for y in found]] = counts.double()
        slack = 4 * expected.clamp(min=1).sqrt() + 1
        assert ((seen - expected).abs() <= slack).all()


def test_no_sentence_and_no_word():
    for B, n in ((0, 3), (2, 0), (0, 0)):
        arcs = torch.full((B, n + 1, n + 1), torch.nan if n == 0 else 0.0)
        arcs.requires_grad_()
        for single in (False, True):
            built = SpanningTree(arcs, single_root=single)
            value, heads = built.decode()
            assert heads.shape == (B, n)
            values, ys, valid = built.decode_topk(2)
            assert ys.shape == (B, 2, n)
            assert valid.tolist() == [[True, False]] * B
            found = [value, values[:, 0], built.log_partition(), built.entropy()]
            found += [built.log_prob(heads), built.log_count()]
            for x in found:
                assert x.tolist() == [0.0] * B
            assert built.sample(3).shape == (B, 3, n)
            (built.log_partition() + value).sum().backward()
            assert (arcs.grad == 0).all()


def test_what_is_never_read_hides_no_row_without_trees():
    arcs = torch.full((1, 3, 3), torch.nan)
    arcs[0, 0, 1:] = -torch.inf
    arcs[0, 1, 2] = arcs[0, 2, 1] = 0.0
    with pytest.raises(ValueError, match="arcs: row 0 has no feasible output"):
        SpanningTree(arcs)
    arcs[0, 0, 1] = 1.0
    assert SpanningTree(arcs).decode()[1].tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: SpanningTree(torch.zeros(1, 3, 4)), ValueError, "arcs: "),
        (
            lambda: SpanningTree(torch.zeros(1, 3, 3), lengths=torch.tensor([3])),
            ValueError,
            "lengths: expected values from 0 to 2, got 3 at row 0",
        ),
        (
            lambda: SpanningTree(torch.zeros(1, 3, 3)).score(torch.tensor([[2, 1]])),
            ValueError,
            r"y: expected heads of words that form a tree, got \[2, 1\] at row 0",
        ),
        (
            lambda: SpanningTree(torch.zeros(1, 3, 3), single_root=True).score(
                torch.tensor([[0, 0]])
            ),
            ValueError,
            r"y: expected heads of words that form a tree, got \[0, 0\] at row 0",
        ),
        (
            lambda: SpanningTree(torch.zeros(2, 3, 3)).restrict(
                torch.zeros(2, 3, 3).bool()
            ),
            ValueError,
            "allowed: row 0 has no feasible output",
        ),
    ],
)
def test_what_is_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()
