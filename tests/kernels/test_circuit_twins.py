"""The Triton kernels of circuits equal the compiled loops.

They run on a GPU where there is one, else in Triton's interpreter on the CPU.
"""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from smoothsp.oracles import ProjectiveDependencies, SemiMarkov
from smoothsp.oracles._circuits import cpu, cuda, schedule
from smoothsp.oracles._circuits.circuit_batch import Leaves
from tests.instances.circuits import BUILDERS, projective, semi_markov, small
from tests.sweeps import thinned
from tests.truth.circuits.cases import KINDS, draw

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAN, INF = math.nan, math.inf


@pytest.fixture(scope="module", autouse=True)
def _scratch_is_poisoned():
    """What ``torch.empty`` returns holds NaN, or the largest integer."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def name(build):
    return getattr(build, "__name__", str(build))


every_structure = pytest.mark.parametrize("build", BUILDERS, ids=name)
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def sums(leaves, query, outwards=True):
    """Values and marginals ``[B, P + Q]`` of the Triton kernels, on the CPU."""
    there = leaves.map(lambda x: x.to(DEVICE))
    wanted = [outwards] * len((*leaves.per_row, *leaves.shared))
    value, _, marginals = cuda.log_partition_and_marginals(
        there, query, wanted, torch.float64
    )
    return value.cpu(), flat(x.cpu() for x in marginals)


def flat(arrays):
    arrays = list(arrays)
    return torch.cat([x.reshape(len(x), x.shape[1:].numel()) for x in arrays], 1)


def choose(leaves, query):
    there = leaves.map(lambda x: x.to(DEVICE))
    found = cuda.best(there, query, None, torch.float64)
    return [x.cpu() for x in (found[0], *found[2:])]


def compare(leaves, query, rtol, atol):
    """Hold sums and the best against those of the compiled loops."""
    found = sums(leaves, query)
    wanted = [True] * len((*leaves.per_row, *leaves.shared))
    wide = leaves.map(lambda x: x.double())
    value, _, marginals = cpu.log_partition_and_marginals(
        wide, query, wanted, torch.float64
    )
    assert_close(found[0], value, rtol=rtol, atol=atol)
    assert_close(found[1].double(), flat(marginals), rtol=rtol, atol=atol)
    value, _, *rest = cpu.best(leaves, query, None, torch.float64)
    assert_close(choose(leaves, query), [value, *rest], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("build", "dtype", "spread"),
    # the interpreter takes a second for each
    thinned(
        itertools.product(BUILDERS, (torch.float32, torch.float64), (1.0, 300.0)), 16, 4
    ),
    ids=name,
)
def test_kernels_equal_their_twins(build, dtype, spread):
    narrow = dtype == torch.float32
    compare(*small(build, dtype, spread), **tolerance(narrow))


def tolerance(narrow):
    return {"rtol": 1e-5, "atol": 1e-5} if narrow else {"rtol": 1e-12, "atol": 1e-12}


@pytest.mark.parametrize(
    ("build", "dtype"),
    thinned(itertools.product(BUILDERS, (torch.float32, torch.float64)), 8),
    ids=name,
)
def test_forbidden_parts_and_ties(build, dtype):
    leaves, query = small(build, dtype)
    generator = torch.Generator().manual_seed(1)

    def coarse(x):
        x = x.round()
        return x.masked_fill(torch.rand(x.shape, generator=generator) < 0.3, -INF)

    compare(leaves.map(coarse), query, **tolerance(dtype == torch.float32))


@pytest.mark.long
@every_structure
def test_rows_without_an_output_have_no_nan(build):
    leaves, query = small(build, torch.float64)
    own = leaves.per_row[0].clone()
    own[0] = -INF
    barred = Leaves((own, *leaves.per_row[1:]), leaves.shared)
    value, marginals = sums(barred, query)
    assert value[0] == -INF
    assert value[1:].isfinite().all()
    assert (marginals[0] == 0).all()
    assert marginals.isfinite().all()
    value, labels, parts = choose(barred, query)
    assert value[0] == -INF
    assert (labels[0] == -1).all()
    assert (parts[0] == -1).all()


@pytest.mark.long
@pytest.mark.parametrize("poison", [NAN, INF, 1e30], ids=str)
def test_what_no_output_uses_is_never_read(poison):
    leaves, query = small(projective, torch.float32)
    lengths = torch.tensor([2, 0, 3, 1])
    beyond = torch.arange(4) > lengths[:, None]
    padding = beyond[:, :, None] | beyond[:, None, :]
    dirty = leaves.map(lambda x: x.masked_fill(padding, poison))
    assert_close(sums(dirty, query), sums(leaves, query), rtol=0, atol=0)
    assert_close(choose(dirty, query), choose(leaves, query), rtol=0, atol=0)


@pytest.mark.long
@both_dtypes
def test_scores_above_exponents_are_done_on_the_cpu(dtype):
    leaves, query = small(semi_markov, dtype)
    large = Leaves((1e12 * leaves.per_row[0], *leaves.per_row[1:]), leaves.shared)
    # only the first row: what the second one reads stays small
    some = torch.tensor([True, False, False])
    mixed = torch.where(some[:, None, None, None], large.per_row[0], leaves.per_row[0])
    mixed = Leaves((mixed, *leaves.per_row[1:]), leaves.shared)
    compare(mixed, query, rtol=1e-5, atol=1e-5)
    found, alone = sums(mixed, query), sums(leaves, query)
    assert_close([x[1:] for x in found], [x[1:] for x in alone], rtol=0, atol=0)
    compare(large, query, rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_sums_far_from_one_keep_their_precision():
    leaves, query = small(projective, torch.float32)
    low = leaves.map(lambda x: x - 1e6)
    compare(low, query, rtol=1e-6, atol=1e-5)


@pytest.mark.long
def test_the_bits_of_a_row_do_not_depend_on_its_neighbours():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.arange(10) % 4  # rows of two programs
    structure = ProjectiveDependencies(
        torch.randn(10, 4, 4, generator=generator), lengths=lengths
    )
    leaves, query = structure._leaves(), structure._circuit_batch
    together = (*sums(leaves, query), *choose(leaves, query))
    for row in (0, 9):
        alone = cpu.select_rows(leaves, torch.tensor([row]))
        asked_alone = query.select(torch.tensor([row]))
        found = (*sums(alone, asked_alone), *choose(alone, asked_alone))
        assert_close(found, tuple(x[row : row + 1] for x in together), rtol=0, atol=0)


@pytest.mark.long
@every_structure
def test_values_alone_are_those_with_marginals(build):
    leaves, query = small(build, torch.float32)
    there = leaves.map(lambda x: x.to(DEVICE))
    none = [False] * len((*leaves.per_row, *leaves.shared))
    value, _, marginals = cuda.log_partition_and_marginals(
        there, query, none, torch.float64
    )
    assert all(x.numel() == 0 for x in marginals)
    assert_close(value.cpu(), sums(leaves, query)[0], rtol=0, atol=0)


@pytest.mark.parametrize(("B", "n"), thinned([(0, 3), (2, 0), (1, 1)], 3, 1))
def test_batches_without_rows_or_words(B, n):
    for structure in (
        ProjectiveDependencies(torch.ones(B, n + 1, n + 1)),
        SemiMarkov(torch.ones(B, n, 2, 3), torch.zeros(3, 3)),
    ):
        compare(structure._leaves(), structure._circuit_batch, **tolerance(True))


@pytest.mark.parametrize("kind", KINDS)
def test_uses_are_products_turned_around(kind):
    topology = draw(kind, 0).structure()._circuit_batch.topology
    edges = topology.edges
    definition, left, right = schedule.products(edges)
    head = edges.heads[definition].tolist()
    expected = [*zip(left.tolist(), head, right.tolist(), strict=True)]
    expected += zip(right.tolist(), head, left.tolist(), strict=True)
    device = torch.device("cpu")
    circuit = schedule.device_schedule(topology, device)
    found, ranks = gone_through(circuit.outside_schedule)
    assert sorted(found) == sorted(x for x in expected if x[0] > 0)
    leaves = range(1, 1 + topology.leaves)
    assert sorted(ranks) == sorted([*leaves, *edges.heads.tolist()])
    assert all(ranks[head] < ranks[item] for item, head, _ in found)

    found, ranks = gone_through(circuit.inside_schedule)
    expected = zip(head, left.tolist(), right.tolist(), strict=True)
    assert sorted(found) == sorted(expected)
    assert sorted(ranks) == sorted(edges.heads.tolist())
    for item, *factors in found:
        assert all(ranks.get(x, -1) < ranks[item] for x in factors)
    for item in ranks:
        assert ranks[item] == circuit.depths[item] - 1


def gone_through(order):
    """What a schedule reads, ``(item, a, b)``, and the level of each item."""
    tables = [x.tolist() for x in order]
    bounds, heads, starts, runs = tables
    found, ranks = [], {}
    for level, (first, last) in enumerate(itertools.pairwise(bounds)):
        for h in range(first, last):
            assert heads[h] not in ranks
            ranks[heads[h]] = level
            for count, a, step_a, b, step_b in runs[starts[h] : starts[h + 1]]:
                assert count > 0
                found += [
                    (heads[h], a + i * step_a, b + i * step_b) for i in range(count)
                ]
    assert len(ranks) == len(heads)
    assert starts[-1] == len(runs)
    return found, ranks
