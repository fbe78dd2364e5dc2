"""What a chain answers on a device is what it answers on the CPU, op by op.

The functions run on a GPU where there is one, else on the CPU through Triton's
interpreter.
"""

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from tests.instances.chains import large_case, random_case
from tests.instances.strategies import chains, fill_padding, generators
from tests.kernels.cpu_references import (
    DEVICE,
    UGLY,
    WIDE,
    Twins,
    kernels,
    ugly_case,
    widened,
)
from tests.sweeps import drawn_from, thinned
from tests.truth.chain_cases import ChainCase

from smoothsp._kernels.chain.cpu import validation  # isort: skip
from smoothsp.oracles._chain import checks, scores  # isort: skip
from smoothsp.oracles._chain import cuda

from smoothsp.oracles._chain.kernel_checks import run_cpu_function  # isort: skip
from smoothsp.oracles._chain.buffers import ChainBuffers  # isort: skip

NAMES = (
    "log_partition",
    "vjp",
    "covariance",
    "entropy",
    "score",
    "count_parts",
    "decode",
    "decode_topk",
    "sample",
)
# Sums in the same order, to the last bit.
EXACT = ("score", "decode", "decode_topk")
any_question = pytest.mark.parametrize("name", NAMES)
any_transitions = pytest.mark.parametrize("per_edge", [False, True])
dtypes = drawn_from([WIDE, torch.float32])


@pytest.fixture(scope="module", autouse=True)
def _answers_are_poisoned():
    """What ``torch.empty`` returns holds NaN, or the largest integer."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def ask(name: str, *inputs: object) -> object:
    """Return the device's answer, on the CPU."""
    there = [x.to(DEVICE) if isinstance(x, Tensor) else x for x in inputs]
    answer = getattr(cuda, name)(*there)
    if isinstance(answer, Tensor):
        return answer.cpu()
    return tuple(x.cpu() for x in answer)


def further_inputs(name: str, twins: Twins) -> Iterator[tuple[object, ...]]:
    """Yield what a question takes besides the chain."""
    B, T, _ = twins.sizes
    if name == "covariance":
        yield tuple(twins.randn(*x.shape) for x in twins.sums()[1:])
    elif name == "score":
        yield from ((twins.labels(k),) for k in (1, 3))
    elif name == "decode_topk":
        yield from ((k,) for k in (1, 4))
    elif name == "sample":
        yield (torch.rand((B, 3, T), generator=twins.generator, dtype=WIDE),)
    elif name == "log_partition":
        yield from ((True,), (False,))
    else:
        yield ()


def compare(name: str, twins: Twins) -> None:
    """Hold the device's answers against the CPU's."""
    if name == "count_parts":
        compare_counts(twins)
        return
    if name == "vjp":
        compare_weighed(twins)
        return
    for more in further_inputs(name, twins):
        found = ask(name, *twins.chain, *more)
        if name in EXACT:
            expected = expected_of(name, *twins.chain, *more)
        else:
            wide = expected_of(name, *twins.wide, *widened(more))
            expected = narrowed(wide, found)
        if name == "decode_topk":
            (found, valid), (expected, exist) = found, expected
            assert torch.equal(valid, exist)
            # outputs may tie: to the last bit
            found, expected = twins.scores(found, valid), twins.scores(expected, exist)
        if name in (*EXACT, "sample"):
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
        else:
            torch.testing.assert_close(found, expected, **twins.tolerance)


def expected_of(name: str, *inputs: object) -> object:
    """Return the CPU's answer."""
    if name != "score":
        return run_cpu_function(name, *inputs)
    return scores.score_cpu(ChainBuffers.from_op_args(*inputs[:6]), inputs[6], False)[0]


def narrowed(expected, found):
    """What the CPU answers in float64, in the dtypes that were found."""
    if isinstance(found, Tensor):
        return expected.to(found.dtype)
    return tuple(x.to(y.dtype) for x, y in zip(expected, found, strict=True))


def compare_counts(twins: Twins) -> None:
    B, _, S = twins.sizes
    chain = ChainBuffers.from_op_args(*twins.chain)
    for k in (1, 3):
        weights, labels = twins.randn(B, k), twins.labels(k)
        found = ask("count_parts", weights, labels, *twins.chain[4:], S, twins.shared)
        expected = scores.count_parts_cpu(chain, weights, labels)
        torch.testing.assert_close(found, tuple(expected), **twins.tolerance)


def compare_weighed(twins: Twins) -> None:
    _, *parts = twins.sums()
    # float64, as the gradient of a log-partition comes
    weights = twins.randn(len(parts[0])).to(WIDE)
    there = [x.to(DEVICE) for x in (weights, *parts)]
    found = [x.cpu() for x in cuda.vjp(there[0], there[1:], twins.shared)]
    expected = [torch.einsum("b,b...->b...", weights, x.to(WIDE)) for x in parts]
    if twins.shared:
        expected[1] = expected[1].sum(0)
    expected[2:] = expected[2].sum(0), expected[3].sum(0)
    twins.close(found, [x.to(parts[0].dtype) for x in expected])


@settings(max_examples=settings.default.max_examples // 10)
@given(case=chains(), dtype=dtypes, generator=generators())
def test_the_device_answers_as_the_cpu(case, dtype, generator):
    twins = Twins.of(case, dtype, generator)
    for name in NAMES:
        compare(name, twins)


# A step that shares no factor with the number of questions meets all of them.
@pytest.mark.parametrize(
    ("name", "B", "T", "S", "per_edge", "dtype"),
    thinned([(name, *size) for size in UGLY[1:5] for name in NAMES], 17, 7),
)
def test_sizes_that_fill_no_block(name, B, T, S, per_edge, dtype):
    generator = torch.Generator().manual_seed(0)
    compare(name, Twins.of(ugly_case(B, T, S, per_edge), dtype, generator))


@any_transitions
@pytest.mark.parametrize("deterministic", [True, False])
def test_scores_are_added_in_the_order_of_time(per_edge, deterministic):
    case = large_case(3, 300, 4, per_edge=per_edge, scale=1e3)
    torch.use_deterministic_algorithms(deterministic)
    try:
        for rows in (1, 3):
            few = case.map(lambda x, n=rows: x[:n] if x.dim() > 2 else x)
            few = few.replace(lengths=case.lengths[:rows])
            compare("score", Twins.of(few, WIDE, torch.Generator().manual_seed(0)))
    finally:
        torch.use_deterministic_algorithms(True)


@pytest.mark.parametrize("shared", [True, False])
def test_labels_out_of_range_are_not_counted(shared):
    y = torch.tensor([[[0, -1, 3, 1, 2]]])
    positions = torch.arange(5)[None], torch.tensor([5])
    given = (torch.ones(1, 1), y, *positions, 3, shared)
    nodes, edges, start, end = ask("count_parts", *given)
    assert nodes[0].nonzero().tolist() == [[0, 0], [3, 1], [4, 2]]
    assert edges.nonzero().tolist() == [[1, 2] if shared else [0, 3, 1, 2]]
    assert (start.tolist(), end.tolist()) == ([1, 0, 0], [0, 0, 1])


@any_transitions
def test_marginals_may_lie_in_any_order_in_memory(per_edge):
    generator = torch.Generator().manual_seed(0)
    twins = Twins.of(ugly_case(3, 5, 4, per_edge), WIDE, generator)
    weights = twins.randn(3).to(DEVICE)
    parts = [x.to(DEVICE) for x in twins.sums()[1:]]
    turned = [x.mT.contiguous().mT if x.dim() > 2 else x for x in parts]
    assert not turned[0].is_contiguous()
    expected, found = (
        cuda.vjp(weights, tuple(x), twins.shared) for x in (parts, turned)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@any_question
def test_a_batch_without_rows_and_one_without_time(name):
    generator = torch.Generator().manual_seed(0)
    for B, T in ((0, 3), (2, 0)):
        case = ChainCase(torch.zeros(B, T, 2).double(), torch.zeros(2, 2).double())
        compare(name, Twins.of(case, WIDE, generator))


@pytest.mark.parametrize(
    ("name", "per_edge"), thinned(itertools.product(NAMES, [False, True]), 5)
)
def test_tensors_may_lie_in_memory_as_they_like(name, per_edge):
    twins = Twins.of(random_case(per_edge), WIDE, torch.Generator().manual_seed(0))
    emissions, transitions, start, end, steps, lengths = twins.chain
    spread = torch.stack([lengths, lengths], 1)[:, 0]
    strided = (
        emissions.transpose(0, 1).contiguous().transpose(0, 1),
        transitions.mT.contiguous().mT,
        start[:1].expand(3),
        torch.stack([end, end], 1)[:, 0],
        steps.T.contiguous().T,
        spread,
    )
    assert not any(x.is_contiguous() for x in strided)
    compare(name, Twins(strided, twins.generator))


@pytest.mark.parametrize("per_edge", thinned([False, True], 2))
def test_long_rows_are_answered_with_time_in_parallel(per_edge, monkeypatch):
    scan = kernels("scan")
    twins = Twins.of(large_case(2, 9, 3, per_edge=per_edge), WIDE, torch.Generator())
    asked = []
    inner = scan.forward_backward
    monkeypatch.setattr(
        scan, "forward_backward", lambda *x: (asked.append(1), inner(*x))
    )
    compare("log_partition", twins)
    assert not asked
    monkeypatch.setattr(scan.prefer_scan, "__defaults__", (9,))
    compare("log_partition", twins)
    assert asked


def test_time_in_parallel_is_for_few_long_rows_with_few_states():
    pays = kernels("scan").prefer_scan
    assert pays(1, 4096, 9)
    assert pays(1, 100_000, 64)
    assert not pays(1, 4095, 9)
    assert not pays(1, 4096, 65)
    assert not pays(5, 4096, 64)
    assert not pays(257, 4096, 9)


def test_a_label_out_of_range_is_refused_in_the_words_of_the_cpu(monkeypatch):
    case = ChainCase(torch.zeros(3, 4, 2).double(), torch.zeros(2, 2).double())
    case = case.replace(mask=torch.tensor([[1, 1, 0, 1], [0, 1, 1, 1], [1] * 4]).bool())
    twins = Twins.of(case, WIDE, torch.Generator())
    y = torch.zeros(3, 2, 4, dtype=torch.int64)
    y[0, 0, 2] = 5  # where nothing is real
    y[1, 1, 2:] = 2
    with pytest.raises(ValueError, match=r"got \[0, 2\] at row 1, step 2") as expected:
        expected_of("score", *twins.chain, y)
    with pytest.raises(ValueError, match="y:") as found:
        ask("score", *twins.chain, y)
    assert str(found.value) == str(expected.value)
    # no flag is read while a graph is captured
    monkeypatch.setattr(cuda, "is_capturing", lambda near: True)
    ask("score", *twins.chain, y)


@any_transitions
@pytest.mark.parametrize("number", thinned([math.nan, 2.0**40, -1e30, -math.inf], 4))
def test_numbers_are_judged_as_on_the_cpu(number, per_edge, monkeypatch):
    case = fill_padding(random_case(per_edge), math.nan)
    twins = Twins.of(case, torch.float32, torch.Generator())

    def look(chain: tuple[Tensor, ...]) -> int:
        found = cuda.value_flags(*(x.to(DEVICE) for x in chain))
        assert found == checks._value_flags(ChainBuffers.from_op_args(*chain))[0]
        return found

    assert look(twins.chain) == 0
    for which, potential in enumerate(twins.chain[:4]):
        chain = list(twins.chain)
        for place in range(0, potential.numel(), 7):
            chain[which] = potential.clone()
            chain[which].view(-1)[place] = number
            look(tuple(chain))
        chain[which] = torch.full_like(potential, number)
        fault = validation.INFEASIBLE if number < 0 else validation.HAS_INVALID
        assert look(tuple(chain)) & fault
    # nothing waits while a graph is captured
    monkeypatch.setattr(cuda, "is_capturing", lambda near: True)
    assert cuda.value_flags(*chain) == 0
