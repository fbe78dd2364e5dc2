"""What the nine laws leave: scores of outputs, costs, counts, entropy, samples."""

import itertools
import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.testing import assert_close

from smoothsp.oracles import Multiclass
from tests.instances.strategies import (
    chains,
    draw_case,
    draw_outputs,
    every_structure,
    generators,
    structure,
)
from tests.truth.chain_cases import Case, ChainCase, MulticlassCase

CLOSE = {"rtol": 1e-9, "atol": 1e-9}

RANDOM = torch.Generator().manual_seed(0)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=RANDOM, dtype=torch.float64)


def chosen(row: object, y: torch.Tensor) -> int:
    """The place of an output whose padding may hold anything negative."""
    return row.index(torch.where(y < 0, -1, y))


@every_structure
@given(st.data(), generators())
def test_score_is_the_sum_of_the_potentials_used(kind, data, generator):
    case = draw_case(data, kind)
    y = draw_outputs(case, generator)
    score, log_prob = structure(case).score(y), structure(case).log_prob(y)
    assert score.shape == log_prob.shape == (len(case),)
    for b, row in enumerate(case):
        expected = row.scores[chosen(row, y[b])]
        assert_close(score[b], expected, **CLOSE)
        assert_close(log_prob[b], expected - row.log_partition(), **CLOSE)


@every_structure
@given(st.data())
def test_every_output_is_scored_and_probabilities_sum_to_one(kind, data):
    case = draw_case(data, kind)
    for b, row in enumerate(case):
        alone = structure(case).select(torch.tensor([b]))
        outputs = row.outputs[None]
        assert_close(alone.score(outputs)[0], row.scores, **CLOSE)
        log_prob = alone.log_prob(outputs)[0]
        assert_close(log_prob.exp(), row.probabilities, **CLOSE)
        assert_close(log_prob.exp().sum().item(), 1.0, **CLOSE)


@every_structure
@given(st.data(), generators())
def test_hamming_counts_the_labels_that_differ(kind, data, generator):
    case = draw_case(data, kind)
    y = draw_outputs(case, generator)
    cost = structure(case).hamming(y)
    for b, row in enumerate(case):
        gold = row.outputs[chosen(row, y[b])]
        expected = (row.outputs != gold).reshape(len(row.outputs), -1).sum(1)
        assert_close(row.cost(cost[b]), expected.double(), rtol=0, atol=0)
        assert ((cost[b] == 0) | (cost[b] == 1)).all()
        unread = ~case.real[b]
        assert (cost[b][unread] == 0).all()


@every_structure
@given(st.data(), generators())
def test_augmented_decoding_maximises_score_plus_cost(kind, data, generator):
    case = draw_case(data, kind)
    y = draw_outputs(case, generator)
    cost = structure(case).hamming(y)
    augmented = structure(case).augment(cost)
    value, best = augmented.decode()
    for b, row in enumerate(case):
        total = row.scores + row.cost(cost[b])
        assert_close(value[b], total.max(), **CLOSE)
        assert_close(total[row.index(best[b])], total.max(), **CLOSE)
        assert_close(augmented.log_partition()[b], total.logsumexp(0), **CLOSE)


@every_structure
@given(st.data())
def test_gradients_flow_through_augment_and_scale(kind, data):
    case = draw_case(data, kind, spreads=("normal",), min_batch=1).leaves()
    built = structure(case)
    marginals = structure(case).scale(2.0).marginals().detach()
    cost = torch.zeros_like(case.parts).requires_grad_()
    built.augment(cost).scale(2.0).log_partition().sum().backward()
    assert_close(case.parts.grad, 2 * marginals, **CLOSE)
    assert_close(cost.grad, 2 * marginals, **CLOSE)


@every_structure
@given(st.data(), st.permutations([0, 1, 2]))
def test_select_takes_rows_in_any_order(kind, data, order):
    case = draw_case(data, kind, min_batch=1)
    rows = torch.tensor([i for i in order if i < len(case)])
    picked, whole = structure(case).select(rows), structure(case)
    assert_close(picked.decode()[0], whole.decode()[0][rows], **CLOSE)
    assert_close(picked.log_partition(), whole.log_partition()[rows], **CLOSE)
    assert_close(picked.entropy(), whole.entropy()[rows], **CLOSE)


@every_structure
@given(st.data())
def test_entropy_and_count_are_the_enumerated_ones(kind, data):
    case = draw_case(data, kind)
    entropy, log_count = structure(case).entropy(), structure(case).log_count()
    for b, row in enumerate(case):
        assert_close(entropy[b], row.entropy(), rtol=1e-8, atol=1e-8)
        assert_close(log_count[b].item(), math.log(row.count()), **CLOSE)


@every_structure
@given(st.data())
def test_more_outputs_can_be_asked_for_than_exist(kind, data):
    case = draw_case(data, kind, spreads=("ties", "wide"), min_batch=1)
    case = only_small(case)
    assume(all(row.count() > 0 for row in case))
    k = 200
    values, _, valid = structure(case).decode_topk(k)
    for b, row in enumerate(case):
        assert_close(values[b], row.topk(k), **CLOSE)
        assert valid[b].sum().item() == row.count()


def only_small(case: Case) -> Case:
    """Keep three positions: 64 outputs at most, fewer than are asked for."""
    if isinstance(case, MulticlassCase):
        return case
    mask = case.real & (case.real.cumsum(1) <= 3)
    return case.replace(mask=mask, lengths=None)


@given(chains())
def test_edge_marginals_are_enumerated_and_agree_with_node_marginals(case: ChainCase):
    edges, nodes = structure(case).edge_marginals(), structure(case).marginals()
    B, T, S = case.emissions.shape
    assert edges.shape == (B, T - 1, S, S)
    for b, row in enumerate(case):
        assert_close(edges[b], row.edge_marginals(), **CLOSE)
        positions = case.positions(b)
        for before, t in itertools.pairwise(positions):
            assert_close(edges[b, t - 1].sum(0), nodes[b, t], **CLOSE)
            assert_close(edges[b, t - 1].sum(1), nodes[b, before], **CLOSE)


SAMPLED = {
    "chain": ChainCase(
        randn(2, 4, 2),
        torch.tensor([[0.3, -math.inf], [0.1, 0.9]], dtype=torch.float64),
        randn(2),
        randn(2),
        mask=torch.tensor([[1, 0, 1, 1], [0, 1, 1, 0]]).bool(),
    ),
    "multiclass": MulticlassCase(
        torch.tensor(
            [[0.1, -1.0, math.nan, -math.inf], [0.0, 0.5, 1.0, -0.7]]
        ).double(),
        mask=torch.tensor([[1, 1, 0, 1], [1, 1, 1, 1]]).bool(),
    ),
}


@every_structure
def test_samples_are_outputs_with_their_probabilities(kind):
    case, n = SAMPLED[kind], 20_000
    samples = structure(case).sample(n, generator=torch.Generator().manual_seed(1))
    assert samples.dtype == torch.int64
    for b, row in enumerate(case):
        assert samples[b].shape == (n, *row.outputs.shape[1:])
        seen, counts = samples[b].unique(dim=0, return_counts=True)
        frequencies = torch.zeros_like(row.scores)
        for y, count in zip(seen, counts, strict=True):
            frequencies[row.index(y)] = count / n
        p = row.probabilities
        assert (frequencies[p == 0] == 0).all()
        # Five standard deviations; the generator is fixed, so this never flickers.
        assert ((frequencies - p).abs() <= 5 * (p * (1 - p) / n).sqrt()).all()


@every_structure
def test_samples_depend_on_nothing_but_the_generator(kind):
    built = structure(SAMPLED[kind])
    draws = [
        built.sample(50, generator=torch.Generator().manual_seed(seed))
        for seed in (3, 3, 4)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    torch.manual_seed(5)
    default = built.sample(50)
    torch.manual_seed(5)
    assert torch.equal(built.sample(50), default)


@pytest.mark.parametrize("n", [1, 7])
def test_an_empty_batch_answers_everything(n):
    for case in (
        ChainCase(randn(0, 3, 2), randn(2, 2)),
        MulticlassCase(randn(0, 4)),
    ):
        built = structure(case)
        tail = (3,) if isinstance(case, ChainCase) else ()
        assert built.sample(n).shape == (0, n, *tail)
        assert built.decode_topk(n)[1].shape == (0, n, *tail)
        assert built.decode()[1].shape == (0, *tail)
        none = torch.zeros(0, *tail, dtype=torch.int64)
        for found in (
            built.log_partition(),
            built.entropy(),
            built.log_count(),
            built.score(none),
            built.log_prob(none),
            built.decode()[0],
        ):
            assert found.shape == (0,)


def test_a_batch_without_candidates_answers_as_one_whose_candidates_are_masked():
    scores = torch.zeros(2, 0, requires_grad=True)
    none = Multiclass(scores, torch.ones(2, 0, dtype=torch.bool))
    masked = Multiclass(torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.bool))
    y = none.decode()[1]
    assert y.tolist() == [-1, -1]
    for ask in (
        lambda x: (*x.decode(), *x.decode_topk(3), x.sample(2)),
        lambda x: (x.score(y), x.log_prob(y), x.log_prob(y[:, None])),
        lambda x: (x.log_partition(), x.entropy(), x.log_count(), x.lengths),
        lambda x: (x.log_prob_within(x.mask), x.augment(x.hamming(y)).decode()[0]),
    ):
        assert_close(ask(none), ask(masked))
    for name in ("marginals", "label_counts", "hamming"):
        found = getattr(none, name)(*[y][: name != "marginals"])
        assert found.shape == (2, 0)
    none.log_partition().sum().backward()
