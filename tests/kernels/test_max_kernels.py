"""Max-product kernels give what lists merged step by step give, to the last bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothsp._kernels.chain.cpu import hinge as cpu_hinge
from smoothsp._kernels.chain.cpu import scores
from smoothsp._kernels.chain.cpu import viterbi as cpu_viterbi
from tests.instances.chains import large_case
from tests.instances.strategies import SPREADS, forbid_some, generators, structure
from tests.instances.strategies import values as drawn_values
from tests.sweeps import thinned
from tests.truth.chain_cases import ChainCase

# Rows that fill groups of eight and blocks of four, or not; states that fill vectors of
# eight, or not, and that go in lanes, or not.
BATCHES = st.sampled_from([1, 3, 4, 5, 7, 8, 9, 12, 17])
STATES = st.sampled_from([1, 2, 3, 5, 8, 9, 11, 12, 16, 17, 33])


@st.composite
def batches(draw: st.DrawFn) -> ChainCase:
    """Masks with holes, NaN under the mask, sometimes -inf or ties, own transitions."""
    generator = draw(generators())
    B, T, S = draw(BATCHES), draw(st.integers(1, 6)), draw(STATES)
    spread = draw(st.sampled_from(SPREADS))
    edges = (S, S) if draw(st.booleans()) else (B, T - 1, S, S)
    shapes = ((B, T, S), edges, (S,), (S,))
    drawn = [drawn_values(generator, spread, *shape) for shape in shapes]
    mask = torch.rand(B, T, generator=generator) < draw(st.sampled_from([0.3, 0.8, 1]))
    case = ChainCase(*drawn, mask=mask)
    case = forbid_some(case, generator) if draw(st.booleans()) else case
    emissions = case.emissions.masked_fill(~mask[..., None], torch.nan)
    return case.replace(emissions=emissions)


def arrays(case: ChainCase, dtype: torch.dtype) -> tuple:
    """The chain as kernels take it, and its rows, longest first."""
    chain = structure(case.map(lambda x: x.to(dtype)))._buffers.arrays
    return (*chain, np.argsort(-chain[5], kind="stable"))


def merged(chain: tuple, b: int, k: int) -> list[tuple[float, list[int]]]:
    """The k best scores and labels of a row: a list for each state, merged by step.

    Sums are float64, in time order. Sorting is stable: ties go to the lower state.
    """
    emissions, transitions, start, end, steps, lengths, shared, _ = chain
    emissions, transitions = emissions.astype(float), transitions.astype(float)
    if lengths[b] == 0:
        return [(0.0, [])]
    lists = [[(float(start[s]) + emissions[b, steps[b, 0], s], [s])]
             for s in range(len(start))]  # fmt: skip
    for t in steps[b, 1 : lengths[b]]:
        moves = transitions[0, 0] if shared else transitions[b, t - 1]
        lists = [
            [
                (score + emissions[b, t, j], [*labels, j])
                for score, labels in best(lists, moves[:, j], k)
            ]
            for j in range(len(start))
        ]
    return best(lists, end.astype(float), k)


def best(lists: list, moves: np.ndarray, k: int) -> list[tuple[float, list[int]]]:
    """The k best of all lists, each moved on by one score."""
    reached = [
        (score + move, labels)
        for entries, move in zip(lists, moves, strict=True)
        for score, labels in entries
        if score + move > -np.inf
    ]
    return sorted(reached, key=lambda entry: -entry[0])[:k]


def viterbi(chain: tuple, gold: np.ndarray | None = None, cost: float = 0.0) -> tuple:
    """Labels and values, poisoned before."""
    B, T, _ = chain[0].shape
    labels, value = np.full((B, T), 99), np.full(B, np.nan)
    gold = labels if gold is None else gold
    cpu_viterbi.viterbi(0, B, chain[:7], chain[7], gold, cost, labels, value)
    return labels, value


def placed(chain: tuple, b: int, labels: list[int]) -> np.ndarray:
    """Labels at the real positions of a row, -1 elsewhere."""
    row = np.full(chain[0].shape[1], -1)
    row[chain[4][b, : len(labels)]] = labels
    return row


dtypes = pytest.mark.parametrize("dtype", thinned([torch.float64, torch.float32], 2))


@dtypes
@given(batches())
def test_viterbi_finds_what_merging_lists_finds(dtype, case):
    chain = arrays(case, dtype)
    labels, value = viterbi(chain)
    for b in range(len(case)):
        score, expected = merged(chain, b, 1)[0]
        assert value[b] == score
        assert np.array_equal(labels[b], placed(chain, b, expected))


@dtypes
@settings(max_examples=40)
@given(batches(), st.sampled_from([1, 2, 3, 7, 30]))
def test_lazy_enumeration_lists_what_merging_lists(dtype, case, k):
    chain = arrays(case, dtype)
    B, T, S = chain[0].shape
    k = min(k, 200 // S + 1)
    labels, valid = np.full((B, k, T), 99), np.ones((B, k), np.bool_)
    values = np.full((B, k), np.nan)
    cpu_viterbi.viterbi_topk(0, B, chain[:7], chain[7], labels, valid, values)
    for b in range(B):
        expected = merged(chain, b, k)
        assert valid[b].tolist() == [i < len(expected) for i in range(k)]
        for i in range(k):
            row = placed(chain, b, expected[i][1]) if i < len(expected) else -1
            assert (labels[b, i] == row).all()
            assert values[b, i] == (expected[i][0] if valid[b, i] else -np.inf)


def test_forbidden_rows_have_no_output():
    chain = list(arrays(large_case(5, 4, 13), torch.float64))
    chain[0][chain[5].argmax(), 0] = -np.inf
    labels, valid = np.full((5, 3, 4), 99), np.ones((5, 3), np.bool_)
    values = np.full((5, 3), np.nan)
    given = tuple(chain[:7]), chain[7]
    cpu_viterbi.viterbi_topk(0, 5, *given, labels, valid, values)
    forbidden = chain[5].argmax()
    assert not valid[forbidden].any()
    assert (labels[forbidden] == -1).all()
    assert (values[forbidden] == -np.inf).all()
    assert valid[np.arange(5) != forbidden, 0].all()


# Where scores lie far apart, most states are left out of most steps.
@dtypes
@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("S", [128, 131, 160])
def test_many_states_are_pruned_to_the_same_bits(S, spread, dtype):
    generator = torch.Generator().manual_seed(S)
    case = large_case(7, 12, S, seed=S)
    case = case.replace(emissions=spread * case.emissions)
    forbidden = torch.rand(S, S, generator=generator) < 0.3
    # a state that nothing moves into, and one that nothing leaves
    forbidden[:, 5] = True
    forbidden[7] = True
    moves = case.transitions.masked_fill(forbidden, -torch.inf)
    # whole numbers tie, and come as near to the bounds as they can
    for tried in (case, case.replace(transitions=moves), case.map(torch.round)):
        chain = arrays(tried, dtype)
        check_many_states(chain, *viterbi(chain))


def check_many_states(chain: tuple, labels: np.ndarray, value: np.ndarray) -> None:
    emissions, transitions, start, end, steps, lengths, _, _ = chain
    moves = transitions[0, 0].astype(float)
    for b in range(len(lengths)):
        if lengths[b] == 0:
            continue
        alpha = start.astype(float) + emissions[b, steps[b, 0]]
        back = []
        for t in steps[b, 1 : lengths[b]]:
            reach = alpha[:, None] + moves
            back.append(reach.argmax(0))
            alpha = reach.max(0) + emissions[b, t]
        alpha = alpha + end
        path = [alpha.argmax()]
        for into in reversed(back):
            path.append(into[path[-1]])
        assert value[b] == alpha.max()
        assert np.array_equal(labels[b], placed(chain, b, path[::-1]))


@pytest.mark.parametrize("S", [5, 20])
def test_a_row_does_not_depend_on_the_range_it_is_in(S):
    case = large_case(21, 9, S, seed=3)
    chain = arrays(case, torch.float64)
    whole, value = viterbi(chain)
    labels, values = np.full_like(whole, 99), np.full(21, np.nan)
    topk, valid = np.full((21, 3, 9), 99), np.ones((21, 3), np.bool_)
    for first, last in ((0, 1), (1, 6), (6, 14), (14, 21), (21, 21)):
        rows = first, last, chain[:7], chain[7]
        cpu_viterbi.viterbi(*rows, labels, 0.0, labels, values)
        cpu_viterbi.viterbi_topk(*rows, topk, valid, np.empty((21, 3)))
    assert np.array_equal(labels, whole)
    assert np.array_equal(values, value)
    assert np.array_equal(topk[:, 0], whole)
    assert valid[:, 0].all()


def hinge(chain: tuple, gold: np.ndarray, cost: float) -> tuple:
    B, T, _ = chain[0].shape
    labels, value = np.full((B, T), 99), np.full(B, np.nan)
    fault = np.full(B, 99)
    arguments = (chain[:7], chain[7], gold, cost, labels, value, fault)
    cpu_hinge.hinge(0, B, *arguments)
    return labels, value, fault


def score(chain: tuple, b: int, labels: np.ndarray) -> float:
    """The score of the labels, in float64 and in time order."""
    emissions, transitions, start, end, steps, lengths, shared, _ = chain
    total, before = 0.0, -1
    for n, t in enumerate(steps[b, : lengths[b]]):
        if n == 0:
            total = float(start[labels[t]])
        else:
            moves = transitions[0, 0] if shared else transitions[b, t - 1]
            total += float(moves[before, labels[t]])
        total += float(emissions[b, t, labels[t]])
        before = labels[t]
    return total + float(end[before]) if lengths[b] > 0 else 0.0


@dtypes
@given(batches(), generators(), st.sampled_from([0.0, 0.3, 1.0, 50.0]))
def test_the_hinge_is_the_augmented_maximum_less_the_gold_score(
    dtype, case, generator, cost
):
    chain = arrays(case, dtype)
    B, _, S = chain[0].shape
    gold = random_labels(chain, generator)
    labels, value, fault = hinge(chain, gold, cost)
    assert (fault == -1).all()
    wrong = np.arange(S) != gold[..., None]
    costly = (chain[0] + np.where(wrong, cost, 0.0), *chain[1:])
    for b in range(B):
        highest, expected = merged(costly, b, 1)[0]
        assert np.array_equal(labels[b], placed(chain, b, expected))
        # the difference is that of exact sums
        close = highest - score(chain, b, gold[b])
        np.testing.assert_allclose(value[b], close, rtol=1e-9, atol=1e-9)
    assert (value >= 0).all()


def random_labels(chain: tuple, generator: torch.Generator) -> np.ndarray:
    B, T, S = chain[0].shape
    labels = torch.randint(0, S, (B, T), generator=generator)
    return np.where(chain_mask(chain), labels, -100)


def chain_mask(chain: tuple) -> np.ndarray:
    mask = np.zeros(chain[0].shape[:2], np.bool_)
    for b, n in enumerate(chain[5]):
        mask[b, chain[4][b, :n]] = True
    return mask


@given(batches(), st.data())
def test_a_gold_label_out_of_range_is_reported(case, data):
    chain = arrays(case, torch.float32)
    mask, S = chain_mask(chain), chain[0].shape[2]
    gold = np.where(mask, 0, -100)
    places = np.argwhere(mask)
    if len(places) == 0:
        return
    b, t = places[data.draw(st.integers(0, len(places) - 1))]
    gold[b, t] = data.draw(st.sampled_from([-1, S, -100]))
    later = np.arange(mask.shape[1]) > t
    gold[b] = np.where(mask[b] & later, S + 1, gold[b])
    labels, value, fault = hinge(chain, gold, 1.0)
    assert fault.tolist() == [t if row == b else -1 for row in range(len(fault))]
    assert (labels == 99).all()
    assert np.isnan(value).all()


@dtypes
@given(batches(), generators())
def test_the_gradient_of_the_hinge_counts_the_parts_that_differ(dtype, case, generator):
    chain = arrays(case, dtype)
    (B, T, S), shared = chain[0].shape, chain[6]
    gold = random_labels(chain, generator)
    labels, _, _ = hinge(chain, gold, 1.0)
    weights = np.linspace(-1, 2, B).round(2).astype(chain[0].dtype)
    found, expected = ([
        np.zeros_like(chain[0]),
        np.zeros((1, 1, S, S) if shared else (B, T - 1, S, S)),
        np.zeros(S),
        np.zeros(S),
    ] for _ in range(2))  # fmt: skip
    real = (*chain[4:6], shared)
    cpu_hinge.hinge_gradient(0, B, labels, gold, *real, weights, tuple(found))
    scores.add_part_counts(
        0, B, weights[:, None], labels[:, None], *real, tuple(expected)
    )
    scores.add_part_counts(
        0, B, -weights[:, None], gold[:, None], *real, tuple(expected)
    )
    assert np.array_equal(found[0], expected[0])
    for ours, theirs in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-14 * B * T)


def test_what_both_outputs_use_has_no_gradient():
    chain = arrays(large_case(6, 8, 4), torch.float64)
    labels, _ = viterbi(chain)
    found = [np.zeros_like(x) for x in chain[:4]]
    weights = np.linspace(0.1, 0.7, 6)
    real = (*chain[4:6], True)
    cpu_hinge.hinge_gradient(0, 6, labels, labels, *real, weights, tuple(found))
    assert not any(x.any() for x in found)
