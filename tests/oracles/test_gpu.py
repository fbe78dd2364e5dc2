"""On a CUDA device every answer of a chain is that of the CPU, and stays there."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from smoothsp.oracles import Chain
from smoothsp.oracles._inference import kernel_checks
from tests.instances.chains import (
    QUESTIONS,
    Y,
    any_transitions,
    large_case,
    random_case,
)
from tests.instances.strategies import structure
from tests.on_device import DEVICE, needs_gpu, same, there, value_and_gradients
from tests.truth.chain_cases import ChainCase

pytestmark = needs_gpu
NARROW = {"rtol": 2e-5, "atol": 1e-5}


def chain_of_rows(dtype: torch.dtype = torch.float64) -> ChainCase:
    """Ragged rows, enough to fill several groups of programs."""
    return large_case(300, 9, 3, scale=2.0).map(lambda x: x.to(dtype))


def answer(question: str, built: Chain, y: Tensor) -> Tensor:
    """Return the numbers that answer a question."""
    y = y.to(built.emissions.device)
    if question in ("score", "log_prob"):
        return getattr(built, question)(y)
    if question == "decode":
        return built.decode()[0]
    if question == "decode_topk":
        values, _, valid = built.decode_topk(4)
        return torch.where(valid, values, 0.0)
    return getattr(built, question)()


@contextmanager
def no_waiting() -> Iterator[None]:
    """Raise where the host waits for the device."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@any_transitions
@pytest.mark.parametrize("forbid", [False, True])
@pytest.mark.parametrize("question", QUESTIONS)
def test_values_and_gradients_are_those_of_the_cpu(question, forbid, per_edge):
    case = random_case(per_edge, forbid)
    y = Y
    if forbid:
        # an output that is allowed, of which all is finite
        y = structure(case).decode()[1].clamp(min=0)
    same(case, lambda c: answer(question, structure(c), y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("question", [q for q in QUESTIONS if q != "edge_marginals"])
def test_many_ragged_rows(question, dtype):
    case = chain_of_rows(dtype)
    y = torch.zeros(300, 9, dtype=torch.int64)
    tolerance = NARROW if dtype == torch.float32 else {}
    same(case, lambda c: answer(question, structure(c), y), **tolerance)


@any_transitions
def test_states_that_fit_into_no_block_of_registers(per_edge):
    case = large_case(2, 4, 300, per_edge=per_edge)
    for question in ("log_partition", "decode", "decode_topk", "entropy"):
        same(case, lambda c, q=question: answer(q, structure(c), Y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_long_rows(dtype):
    case = large_case(2, 5000, 9).map(lambda x: x.to(dtype))
    tolerance = NARROW if dtype == torch.float32 else {}
    same(case, lambda c: structure(c).log_partition(), **tolerance)


def test_rows_that_the_dtype_is_too_narrow_for():
    for T in (9, 4100):
        case = large_case(2, T, 3, scale=60.0).map(lambda x: x.float())
        same(case, lambda c: structure(c).log_partition(), **NARROW)


def test_outputs_are_those_of_the_cpu_to_the_last_bit():
    case = large_case(40, 30, 20)
    near, far = structure(case), structure(there(case))
    for found, expected in zip(far.decode(), near.decode(), strict=True):
        assert found.device == DEVICE
        assert torch.equal(found.cpu(), expected)
    for found, expected in zip(far.decode_topk(6), near.decode_topk(6), strict=True):
        assert found.device == DEVICE
        assert torch.equal(found.cpu(), expected)


def test_second_derivatives_are_those_of_the_cpu():
    def curvature(case: ChainCase, ask: str) -> list[Tensor]:
        leaves = case.leaves()
        value = getattr(structure(leaves), ask)()
        first = torch.autograd.grad(
            value.sin().sum(), list(leaves.potentials().values()), create_graph=True
        )
        sum(x.square().sum() for x in first).backward()
        return list(leaves.gradients().values())

    for per_edge in (False, True):
        case = random_case(per_edge)
        found = curvature(there(case), "log_partition")
        expected = curvature(case, "log_partition")
        torch.testing.assert_close([x.cpu() for x in found], expected)


def test_half_precision_comes_back_as_it_went_in():
    leaves = [
        x.to(torch.bfloat16).requires_grad_()
        for x in (torch.randn(3, 5, 4, device=DEVICE), torch.randn(4, 4, device=DEVICE))
    ]
    value = Chain(*leaves).log_partition()
    value.sum().backward()
    expected = Chain(*(x.detach().float().cpu() for x in leaves)).log_partition()
    torch.testing.assert_close(value.cpu(), expected)
    assert all(x.grad.dtype == torch.bfloat16 for x in leaves)


def test_draws_follow_the_marginals():
    case = random_case(False, forbid=True)
    built = structure(there(case))
    n = 20_000
    generator = torch.Generator(DEVICE).manual_seed(0)
    draws = built.sample(n, generator)
    assert draws.device == DEVICE
    again = built.sample(n, torch.Generator(DEVICE).manual_seed(0))
    assert torch.equal(draws, again)
    assert (draws[~built.mask[:, None].expand_as(draws)] == -1).all()
    assert (built.log_prob(draws.clamp(min=0)) > -math.inf).all()
    often = torch.nn.functional.one_hot(draws.clamp(min=0), 3).double().mean(1)
    often = often * built.mask[..., None]
    # six standard deviations
    torch.testing.assert_close(often, built.marginals(), rtol=0, atol=3 / n**0.5)


@any_transitions
def test_nothing_waits_for_the_device(per_edge):
    leaves = there(chain_of_rows() if not per_edge else random_case(True)).leaves()
    built = structure(leaves)
    generator = torch.Generator(DEVICE).manual_seed(0)

    def everything() -> None:
        built.log_partition().sum().backward()
        built.entropy().sum().backward()
        built.decode()[0].sum().backward()
        built.decode_topk(3)[0][:, 0].sum().backward()
        built.marginals()
        built.edge_marginals()
        built.log_count()
        built.sample(2, generator)

    # once to compile
    everything()
    torch.cuda.synchronize()
    with no_waiting():
        everything()


def test_two_runs_give_the_same_bits():
    case = there(chain_of_rows(torch.float32))
    for question in ("log_partition", "entropy", "decode_topk"):
        first, second = (
            value_and_gradients(case, lambda c, q=question: answer(q, structure(c), Y))
            for _ in range(2)
        )
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_rows_do_not_depend_on_their_batch():
    case = there(chain_of_rows(torch.float32))
    built = structure(case)
    rows = torch.tensor([7, 200, 299], device=DEVICE)
    for question in ("log_partition", "marginals", "entropy"):
        together = getattr(built, question)()[rows]
        assert torch.equal(together, getattr(built.select(rows), question)())


def test_a_graph_may_be_captured_and_replayed():
    case = there(large_case(4, 6, 5)).replace(lengths=None)
    emissions, transitions = case.emissions.clone(), case.transitions

    def ask() -> tuple[Tensor, Tensor]:
        chain = Chain(emissions, transitions)
        return chain.log_partition(), chain.decode()[1]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        ask()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value, labels = ask()
    emissions.mul_(-2)
    graph.replay()
    expected, expected_labels = ask()
    torch.testing.assert_close(value, expected)
    assert torch.equal(labels, expected_labels)


def test_kernels_that_failed_are_replaced_by_the_cpu(monkeypatch):
    monkeypatch.setattr(kernel_checks, "_failed", True)
    case = random_case(False)
    for question in QUESTIONS:
        same(case, lambda c, q=question: answer(q, structure(c), Y))
    built = structure(there(case))
    graph = torch.cuda.graph(torch.cuda.CUDAGraph())
    with pytest.raises(RuntimeError, match="call it outside of the graph"), graph:
        built.log_partition()


def test_a_compiled_function_takes_tensors_on_the_device():
    def loss(emissions: Tensor, transitions: Tensor, y: Tensor) -> Tensor:
        return -Chain(emissions, transitions).log_prob(y).sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    case = there(large_case(4, 6, 5))
    y = torch.zeros(4, 6, dtype=torch.int64, device=DEVICE)
    found = []
    for function in (loss, compiled):
        leaves = [case.emissions.clone(), case.transitions.clone()]
        value = function(*(x.requires_grad_() for x in leaves), y)
        value.backward()
        found.append([value.detach(), *(x.grad for x in leaves)])
    torch.testing.assert_close(*found)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device")
def test_a_second_device_is_used_where_the_tensors_are():
    case = large_case(3, 5, 4)
    other = torch.device("cuda", 1)
    moved = case.map(lambda x: x.to(other)).replace(lengths=case.lengths.to(other))
    value = structure(moved).log_partition()
    assert value.device == other
    torch.testing.assert_close(value.cpu(), structure(case).log_partition())
