"""What is particular to chains: memory layouts, dtypes, padding."""

import math

import pytest
import torch
from torch.testing import assert_close

from smoothsp.oracles import Chain
from tests.instances.chains import (
    QUESTIONS,
    answers,
    gradients,
    large_case,
    random_case,
)
from tests.instances.strategies import structure
from tests.truth.chain_cases import ChainCase

F32, F64 = torch.float32, torch.float64


@pytest.mark.parametrize("question", QUESTIONS)
def test_memory_layout_does_not_matter(question):
    case = random_case(per_edge=True)
    emissions = case.emissions.transpose(0, 2).contiguous().transpose(0, 2)
    edges = case.transitions.transpose(1, 3).contiguous().transpose(1, 3)
    start = torch.stack([case.start, case.start], 1)[:, 0]
    mask = torch.stack([case.mask, ~case.mask], 2)[:, :, 0]
    strided = case.replace(
        emissions=emissions, transitions=edges, start=start, mask=mask
    )
    assert not any(v.is_contiguous() for v in (emissions, edges, start, mask))
    one, other = (
        answers(question, structure(case)),
        answers(question, structure(strided)),
    )
    assert_close(one, other, rtol=0, atol=0)


def test_gradients_reach_expanded_and_transposed_potentials():
    case = random_case(per_edge=False)
    leaves = case.replace(
        emissions=case.emissions[:1].clone().requires_grad_(),
        transitions=case.transitions.t().clone().requires_grad_(),
    )
    built = Chain(
        leaves.emissions.expand(4, -1, -1), leaves.transitions.t(), mask=case.mask
    )
    built.log_partition().sum().backward()
    full = ChainCase(
        leaves.emissions.detach().repeat(4, 1, 1), case.transitions, mask=case.mask
    ).leaves()
    structure(full).log_partition().sum().backward()
    assert_close(leaves.emissions.grad, full.emissions.grad.sum(0, keepdim=True))
    assert_close(leaves.transitions.grad, full.transitions.grad.t())


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_computes_in_float32_and_gradients_return_in_half(half):
    case = random_case(per_edge=False).map(lambda v: v.to(half))
    leaves, wide = case.leaves(), case.map(lambda v: v.to(F32)).leaves()
    for question in ("log_partition", "decode", "entropy", "decode_topk"):
        found = answers(question, structure(leaves))
        expected = answers(question, structure(wide))
        assert found.dtype == F32
        assert_close(found, expected, rtol=0, atol=0)
        found.sum().backward()
        expected.sum().backward()
    for name, gradient in leaves.gradients().items():
        assert gradient.dtype == half
        expected = wide.gradients()[name]
        # Four gradients were each rounded to half before they were added.
        assert_close(
            gradient.float(), expected, rtol=0, atol=16 * torch.finfo(half).eps
        )


def test_half_emissions_meet_parameters_in_float32():
    case = random_case(per_edge=False).map(lambda v: v.to(F32))
    case = case.replace(emissions=case.emissions.to(torch.bfloat16)).leaves()
    value = structure(case).log_partition()
    assert value.dtype == F32
    value.sum().backward()
    dtypes = [v.grad.dtype for v in case.potentials().values()]
    assert dtypes == [torch.bfloat16, F32, F32, F32]


def test_a_chain_of_one_label_needs_no_transition():
    generator = torch.Generator().manual_seed(0)
    emissions = torch.randn(2, 1, 3, generator=generator, dtype=F64)
    start, end = emissions[0, 0] + 1, emissions[1, 0] - 1
    for edges in (torch.zeros(3, 3, dtype=F64), torch.zeros(2, 0, 3, 3, dtype=F64)):
        built = Chain(emissions, edges, start, end)
        total = emissions[:, 0] + start + end
        assert_close(built.log_partition(), total.logsumexp(1))
        assert_close(built.decode()[0], total.amax(1))
        assert_close(built.marginals()[:, 0], total.softmax(1))
        assert built.edge_marginals().shape == (2, 0, 3, 3)
        values, _, valid = built.decode_topk(5)
        assert_close(values[:, :3], total.sort(1, descending=True).values)
        assert valid.sum(1).tolist() == [3, 3]


def test_a_chain_without_positions_has_only_empty_rows():
    built = Chain(torch.zeros(2, 0, 3), torch.zeros(3, 3))
    assert built.log_partition().tolist() == [0, 0]
    assert built.decode()[0].tolist() == [0, 0]
    assert built.decode_topk(2)[2].tolist() == [[True, False]] * 2
    assert built.marginals().shape == (2, 0, 3)
    assert built.edge_marginals().shape == (2, 0, 3, 3)
    assert built.sample(4).shape == (2, 4, 0)


def test_answers_are_given_in_inference_mode():
    case = random_case(per_edge=False)
    with torch.inference_mode():
        for question in QUESTIONS:
            inside = answers(question, structure(case))
            assert_close(inside, answers(question, structure(case)), rtol=0, atol=0)


def test_padding_beyond_the_longest_row_changes_no_bit():
    case = large_case(4, 6, 3)
    B, T, S = case.emissions.shape
    padded = torch.full((B, T + 5, S), math.nan, dtype=F64)
    padded[:, :T] = case.emissions
    longer = case.replace(emissions=padded)
    for question in ("log_partition", "decode", "entropy"):
        one, other = (answers(question, structure(c)) for c in (case, longer))
        assert_close(one, other, rtol=0, atol=0)
    assert_close(
        structure(longer).marginals()[:, :T],
        structure(case).marginals(),
        rtol=0,
        atol=0,
    )
    assert (gradients(longer)[0][:, T:] == 0).all()
    assert (structure(longer).decode()[1][:, T:] == -1).all()


@pytest.mark.parametrize(
    "question", ["log_partition", "decode", "decode_topk", "entropy"]
)
def test_masked_positions_are_skipped_as_if_deleted(question):
    case = random_case(per_edge=True)
    for b in range(len(case)):
        positions = case.positions(b)
        if not positions:
            continue
        into = [t - 1 for t in positions[1:]]
        short = Chain(
            case.emissions[b : b + 1, positions],
            case.transitions[b : b + 1, into],
            case.start,
            case.end,
        )
        whole = answers(question, structure(case))[b : b + 1]
        assert_close(answers(question, short), whole, rtol=0, atol=0)


def test_absent_ends_are_no_chains_own_to_change():
    given = torch.ones(2, 3, 4), torch.ones(4, 4)
    chain = Chain(*given)
    before = chain.log_partition()
    chain.start.fill_(7)
    chain.end.fill_(7)
    assert_close(Chain(*given).log_partition(), before, rtol=0, atol=0)


def test_answers_are_about_the_memory_that_a_chain_was_made_of():
    emissions, moves = torch.ones(2, 3, 4), torch.ones(4, 4)
    chain = Chain(emissions, moves)
    before = chain.log_partition(), chain.entropy(), chain.marginals()
    emissions.data = torch.zeros(1, 1, 1, dtype=F64)
    moves.data = torch.zeros(9)
    after = chain.log_partition(), chain.entropy(), chain.marginals()
    assert_close(after, before, rtol=0, atol=0)


def test_a_log_partition_is_differentiated_again_and_for_what_is_asked():
    emissions = torch.randn(3, 4, 2, dtype=F64, requires_grad=True)
    moves, end = torch.randn(2, 2, dtype=F64), torch.randn(2, dtype=F64)
    moves.requires_grad_()
    chain = Chain(emissions, moves, end=end)
    value = chain.log_partition()
    weights = torch.tensor([1.0, -2.0, 0.5], dtype=F64)
    first = torch.autograd.grad(value, (emissions, moves), weights, retain_graph=True)
    first[0].zero_()
    again = torch.autograd.grad(value, emissions, weights, create_graph=True)[0]
    expected = chain.marginals() * weights[:, None, None]
    assert_close(again, expected)
    assert_close(first[1], torch.autograd.grad(value, moves, weights)[0])
    other = Chain(emissions, moves, end=end).marginals() * weights[:, None, None]
    wanted = torch.autograd.grad((other**2).sum(), moves)[0]
    assert_close(torch.autograd.grad((again**2).sum(), moves)[0], wanted)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_labels_and_lengths_may_be_integers_of_any_width(dtype):
    generator = torch.Generator().manual_seed(0)
    emissions, edges = (
        torch.randn(s, generator=generator) for s in ((2, 3, 4), (4, 4))
    )
    y, lengths = torch.tensor([[0, 3, 1], [2, 2, 0]]), torch.tensor([3, 1])
    narrow = Chain(emissions, edges, lengths=lengths.to(dtype))
    wide = Chain(emissions, edges, lengths=lengths)
    assert torch.equal(narrow.score(y.to(dtype)), wide.score(y))
    assert torch.equal(narrow.hamming(y.to(dtype)), wide.hamming(y))
