"""Large chains, large scores, and the same bits every time."""

import math

import pytest
import torch
from hypothesis import given
from torch.testing import assert_close

from smoothsp._kernels.threads import ranges as threads_module
from smoothsp.oracles import Chain
from tests import sweeps
from tests.instances.chains import (
    QUESTIONS,
    answers,
    any_transitions,
    gradients,
    large_case,
)
from tests.instances.strategies import chains, structure
from tests.sweeps import thinned
from tests.truth import recurrence
from tests.truth.chain_cases import ChainCase

F32, F64 = torch.float32, torch.float64


@pytest.mark.parametrize("per_edge", [False, True])
@pytest.mark.parametrize("S", [1, 2, 9, 17, 65])
def test_large_instances_equal_the_recurrence(S, per_edge):
    case = large_case(3, 12, S, seed=S, per_edge=per_edge, scale=2.0)
    built = structure(case)
    assert_close(built.log_partition(), recurrence.log_partition(case))
    assert_close(built.decode()[0], recurrence.maximum(case))
    assert_close(built.marginals(), recurrence.marginals(case))
    assert_close(built.score(built.decode()[1]), recurrence.maximum(case))


@pytest.mark.parametrize("scale", thinned([1.0, 100.0, 30.0, 3000.0, 300.0, 1000.0], 2))
@any_transitions
def test_many_small_chains_of_any_spread_equal_the_recurrence(per_edge, scale):
    for seed, B in enumerate([400, *[3] * 10]):
        case = large_case(B, 6, 3, seed=seed, per_edge=per_edge, scale=scale)
        built = structure(case)
        close = {"rtol": 1e-9, "atol": 1e-9}
        assert_close(built.log_partition(), recurrence.log_partition(case), **close)
        assert_close(built.marginals(), recurrence.marginals(case), **close)
        assert_close(built.decode()[0], recurrence.maximum(case), **close)


def test_normalisers_that_multiply_to_zero_do_not_lose_the_value():
    # Two in a row are so small that their product is no float64.
    case = ChainCase(
        torch.tensor([[[-405.0, 679, 789], [-582, -1149, 987], [943, 404, -1024]]]),
        torch.tensor([[548.0, 649, -785], [-859, 1230, 901], [565, -1087, -49]]),
    )
    case = case.map(lambda v: v.double())
    for B in (1, 3, 20):
        many = case.replace(emissions=case.emissions.expand(B, 3, 3))
        found = structure(many).log_partition()
        assert_close(found, case.row(0).log_partition().expand(B))


@given(chains(min_batch=1))
def test_in_float32_every_spread_agrees_with_enumeration(case: ChainCase):
    leaves, truth, close = in_float32(case)
    built = structure(leaves)
    value, log_partition = (answers(q, built) for q in ("decode", "log_partition"))
    marginals = built.marginals()
    for b, row in enumerate(truth):
        assert_close(value[b].double(), row.maximum(), **close)
        assert_close(log_partition[b].double(), row.log_partition(), **close)
        assert_close(marginals[b].double(), row.marginals(), **close)
    log_partition.sum().backward()
    for gradient in leaves.gradients().values():
        assert gradient.isfinite().all()


# no other short test compiles it in float32
@pytest.mark.long
@given(chains(min_batch=1))
def test_in_float32_every_entropy_agrees_with_enumeration(case: ChainCase):
    leaves, truth, _ = in_float32(case)
    entropy = answers("entropy", structure(leaves))
    for b, row in enumerate(truth):
        assert_close(entropy[b].double(), row.entropy(), rtol=0, atol=1e-5)
    entropy.sum().backward()
    for gradient in leaves.gradients().values():
        assert gradient.isfinite().all()


def in_float32(case):
    """Potentials to differentiate by, the same in float64, and how close answers are.

    A few roundings of the largest potential: chances move by no more than scores.
    """
    single = case.map(lambda v: v.float())
    truth = single.map(lambda v: v.double())
    finite = [v[v.isfinite()] for v in truth.potentials().values()]
    largest = torch.cat([v.flatten() for v in finite] + [torch.ones(1)]).abs().max()
    close = {"rtol": 2e-7, "atol": 4 * torch.finfo(F32).eps * largest.item()}
    return single.leaves(), truth, close


def test_rows_out_of_float32_are_summed_in_float64():
    # a row in range, one that float64 holds, and one of log space
    emissions = torch.tensor([[0.0, 1], [50, -50], [400, -400]])[:, None]
    emissions = emissions * torch.tensor([1.0, -1, 1, -1])[:, None]
    moves = torch.tensor([[0.0, -45], [-45, 0]])
    given = [x.clone().requires_grad_() for x in (emissions, moves)]
    wide = [x.detach().double().requires_grad_() for x in given]
    laws = wide[0], wide[1].expand(3, 3, 2, 2)
    found, expected = Chain(*given).log_partition(), Chain(*laws).log_partition()
    assert_close(found, expected.float(), rtol=1e-7, atol=0)
    found.sum().backward()
    expected.sum().backward()
    for x, y in zip(given, wide, strict=True):
        assert_close(x.grad, y.grad.float(), rtol=2e-7, atol=1e-30)


@pytest.mark.parametrize("scale", thinned([1.0, 1e6], 2, 1))
def test_long_rows_in_float32_equal_float64(scale):
    steps = 100_000 if sweeps.long else 10_000
    drawn = large_case(2, steps, 3, seed=1, scale=scale).map(lambda v: v.to(F32))
    short, long = drawn, drawn.map(lambda v: v.to(F64))
    entropy = ["entropy"] if sweeps.long else []
    for question in ("log_partition", "decode", *entropy):
        found, expected = (answers(question, structure(c)) for c in (short, long))
        assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    truth = recurrence.log_partition(
        long.replace(
            emissions=long.emissions[:, :2000], lengths=long.lengths.clamp(max=2000)
        )
    )
    cut = short.replace(
        emissions=short.emissions[:, :2000], lengths=short.lengths.clamp(max=2000)
    )
    assert_close(structure(cut).log_partition().double(), truth, rtol=1e-5, atol=0)
    for found, expected in zip(gradients(short), gradients(long), strict=True):
        assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_forbidden_parts_beside_huge_spreads_never_make_nan(dtype):
    case = large_case(6, 30, 4, seed=4, scale=1e4)
    transitions = case.transitions.clone()
    transitions[0, 1:] = -math.inf
    transitions[2, 2] = -math.inf
    emissions = case.emissions.clone()
    emissions[:, 3::5, :2] = -math.inf
    emissions[:, 4::7, 3] = -math.inf
    end = case.end.clone()
    end[0] = -math.inf
    case = case.replace(transitions=transitions, emissions=emissions, end=end)
    case = case.map(lambda v: v.to(dtype))
    built = structure(case)
    for question in QUESTIONS[2:]:
        assert answers(question, built).isfinite().all()
        for gradient in gradients(case, question):
            assert gradient.isfinite().all()
    exact = structure(case.map(lambda v: v.to(F64)))
    assert_close(
        built.log_partition().double(), exact.log_partition(), rtol=1e-5, atol=0
    )
    assert_close(built.marginals().double(), exact.marginals(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("S", [4, 20])
def test_a_row_that_underflows_does_not_disturb_the_others(S):
    mild = large_case(3, 8, S, seed=5)
    wild = mild.emissions.clone()
    wild[1] *= 1e5
    together = structure(mild.replace(emissions=wild))
    only_wild = structure(mild.replace(emissions=1e5 * mild.emissions))
    for question in ("log_partition", "marginals", "entropy"):
        found = answers(question, together)
        expected = answers(question, structure(mild))
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[2], expected[2])
        assert torch.equal(found[1], answers(question, only_wild)[1])


@pytest.mark.parametrize("S", thinned([9, 40], 2))
@pytest.mark.parametrize("question", QUESTIONS[2:])
def test_the_same_question_twice_gives_the_same_bits_on_any_number_of_threads(
    question, S, monkeypatch
):
    monkeypatch.setattr(threads_module, "WORK_PER_THREAD", 1)
    case = large_case(40, 30, S, seed=6).map(lambda v: v.to(F32))
    found = []
    for threads in (1, 2, 2):
        torch.set_num_threads(threads)
        try:
            value = answers(question, structure(case))
            found.append([value, *gradients(case, question)])
        finally:
            torch.set_num_threads(1)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert torch.equal(a, b)


def test_gradients_summed_over_a_large_batch_have_the_same_bits_on_any_threads():
    case = large_case(3000, 3, 17, seed=9).map(lambda v: v.to(F32))
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            found.append(gradients(case) + gradients(case, "decode_topk"))
        finally:
            torch.set_num_threads(1)
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("S", [7, 41])
@pytest.mark.parametrize("dtype", [F32, F64])
@any_transitions
def test_the_bits_of_a_row_do_not_depend_on_its_place_in_the_batch(per_edge, dtype, S):
    case = large_case(21, 12, S, seed=8, per_edge=per_edge).map(lambda v: v.to(dtype))
    order = torch.randperm(21, generator=torch.Generator().manual_seed(0))
    moved = structure(case).select(order)
    for question in QUESTIONS[2:]:
        whole = answers(question, structure(case))
        assert torch.equal(answers(question, moved), whole[order])
