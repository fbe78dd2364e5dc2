"""Every Triton kernel equals its numba twin: values, marginals, labels."""

import math

import pytest
import torch
from hypothesis import given, settings

from smoothsp.oracles._chain.kernel_checks import run_cpu_function
from tests.instances.chains import large_case
from tests.instances.strategies import chains, generators, values
from tests.kernels.cpu_references import (
    DEVICE,
    KERNELS,
    UGLY,
    WIDE,
    Twins,
    kernels,
    of_marginals,
    ugly_case,
)
from tests.sweeps import drawn_from, thinned
from tests.truth.chain_cases import ChainCase

any_kernel = pytest.mark.parametrize("kernel", KERNELS)
# a kernel of the CPU takes seconds to compile for another dtype
dtypes = drawn_from([WIDE, torch.float32])

# Time in parallel is for rows with few states.
# A kernel of the CPU takes seconds to compile for another dtype.
SIZES = [
    (kernel, *size)
    for size in sorted(UGLY, key=lambda size: size[-1] != WIDE)
    for kernel in KERNELS
    if kernel != "scan" or size[2] <= 64
]


@pytest.fixture(scope="module", autouse=True)
def _scratch_is_poisoned():
    """What ``torch.empty`` returns holds NaN, or the largest integer."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@any_kernel
@settings(max_examples=settings.default.max_examples // 8)
@given(case=chains(), dtype=dtypes, generator=generators())
def test_a_kernel_equals_its_twin(kernel, case, dtype, generator):
    getattr(Twins.of(case, dtype, generator), kernel)()


# A step that shares no factor with the number of kernels meets all of them. Compiled,
# each kernel runs more sizes (tests/ptx).
@pytest.mark.parametrize(
    ("kernel", "B", "T", "S", "per_edge", "dtype"), thinned(SIZES[::7], 3, 1)
)
def test_sizes_that_fill_no_block(kernel, B, T, S, per_edge, dtype):
    generator = torch.Generator().manual_seed(0)
    getattr(Twins.of(ugly_case(B, T, S, per_edge), dtype, generator), kernel)()


@any_kernel
def test_a_batch_without_rows_and_one_without_time(kernel):
    generator = torch.Generator().manual_seed(0)
    for B, T in ((0, 3), (2, 0)):
        case = ChainCase(torch.zeros(B, T, 2).double(), torch.zeros(2, 2).double())
        getattr(Twins.of(case, WIDE, generator), kernel)()


def test_rows_longer_than_a_block_of_time():
    generator = torch.Generator().manual_seed(0)
    emissions = torch.randn(1, 70, 3, generator=generator, dtype=WIDE)
    case = ChainCase(emissions, torch.eye(3, dtype=WIDE))
    Twins.of(case, torch.float32, generator).forward_backward()


@pytest.mark.parametrize("per_edge", [False, True])
@pytest.mark.parametrize("S", thinned([5, 130], 2))
def test_ties_go_to_the_lower_state(S, per_edge):
    generator = torch.Generator().manual_seed(0)
    shape = (2, 2, S, S) if per_edge else (S, S)
    potentials = [values(generator, "ties", *x) for x in ((2, 3, S), shape, (S,), (S,))]
    twins = Twins.of(ChainCase(*potentials), WIDE, generator)
    twins.viterbi()
    assert torch.equal(
        twins.topk(1)[0][:, 0], run_cpu_function("decode", *twins.chain)[1]
    )


@pytest.mark.parametrize("kernel", thinned(["forward_backward", "scan"], 2))
def test_normalisers_whose_product_is_too_small(kernel):
    # about 1e-190 at every step, as no move is both cheap and towards a likely state
    edges = torch.full((2, 2), -440.0, dtype=WIDE)
    edges[0, 1] = 0
    emissions = torch.tensor([0.0, -450.0], dtype=WIDE).expand(1, 6, 2)
    case = ChainCase(emissions, edges)
    getattr(Twins.of(case, WIDE, torch.Generator()), kernel)()


@pytest.mark.parametrize(
    ("kernel", "dtype", "gap"),
    thinned(
        [
            ("forward_backward", torch.float32, 40.0),
            ("forward_backward", WIDE, 300.0),
            ("scan", torch.float32, 40.0),
            ("scan", WIDE, 300.0),
        ],
        4,
    ),
)
def test_rows_that_scaling_cannot_do_are_done_in_log_space(kernel, dtype, gap):
    # The second row may not change its state: what is likely at first has a weight that
    # underflows at last, though no normaliser is small on the way forward.
    likely, not_now = torch.tensor([[gap, 0.0], [0.0, gap]], dtype=WIDE)
    often = torch.stack([likely, not_now, likely, not_now, likely, not_now])
    turn = torch.stack([likely, likely, likely, not_now, not_now, not_now])
    emissions = torch.stack([3 * often, turn])
    edges = torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]], dtype=WIDE)
    case = ChainCase(emissions, edges)
    getattr(Twins.of(case, dtype, torch.Generator()), kernel)()


@pytest.mark.long
@pytest.mark.skipif(DEVICE == "cuda", reason="only the interpreter can be looked into")
@pytest.mark.parametrize("per_edge", [False, True])
@pytest.mark.parametrize(
    ("kernel", "T", "S"),
    [("forward_backward", 150, 3), ("forward_backward", 5, 130), ("scan", 25, 3)],
)
def test_ordinary_rows_never_reach_log_space(kernel, T, S, per_edge, monkeypatch):
    def unexpected(*args):
        raise AssertionError

    for module in ("forward_backward", "scan"):
        monkeypatch.setattr(kernels(module), "forward_backward_row", unexpected)
    case = large_case(1, T, S, per_edge=per_edge)
    getattr(Twins.of(case, torch.float32, torch.Generator()), kernel)()


@pytest.mark.parametrize("per_edge", [False, True])
def test_a_row_without_a_feasible_output_has_no_nan(per_edge):
    emissions = torch.zeros(2, 3, 2, dtype=WIDE)
    emissions[0, 1] = -math.inf
    edges = torch.zeros(2, 2, 2, 2) if per_edge else torch.zeros(2, 2)
    twins = Twins.of(ChainCase(emissions, edges.double()), WIDE, torch.Generator())
    fill = [torch.full((2,), math.nan, dtype=WIDE)]
    fill += [torch.full((2, 3, 2), math.nan, dtype=WIDE)]
    fill += [torch.full((2, 2 if per_edge else 1, 2, 2), math.nan, dtype=WIDE)]
    fill += [torch.full((2, 2), math.nan, dtype=WIDE)] * 2
    found = twins.run(
        of_marginals(kernels("forward_backward").forward_backward), fill=fill
    )
    assert found[0].tolist() == [-math.inf, pytest.approx(3 * math.log(2))]
    assert all((x[0] == 0).all() and x[1].isfinite().all() for x in found[1:])


@pytest.mark.gpu
@any_kernel
@pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA device")
def test_two_runs_give_the_same_bits(kernel, monkeypatch):
    found = []
    call = Twins.call

    def kept(self, *args, **options):
        found.append(call(self, *args, **options))
        return found[-1]

    monkeypatch.setattr(Twins, "call", kept)
    case = ugly_case(40, 50, 17, per_edge=False)
    for _ in range(2):
        generator = torch.Generator().manual_seed(0)
        getattr(Twins.of(case, torch.float32, generator), kernel)()
    half = len(found) // 2
    for first, second in zip(found[:half], found[half:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
