"""Programs for `test_threads.py`: a crash or a hang ends them, not the tests.

Run as ``python -m tests.kernels.concurrency NAMES``; any difference raises.
"""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.utils.data import DataLoader, Dataset

from smoothsp._kernels.threads import ranges
from smoothsp.losses import L2, StructuralHinge
from smoothsp.oracles import Chain
from tests.oracles.searches.test_threads import answers as answers_of
from tests.truth.circuits.cases import SEARCHES

# Enough for two threads, and few enough numbers that torch itself stays on one: its
# OpenMP does not survive a fork.
B, T, S = 8, 65, 63
assert B * T * S * S > 2 * 800_000  # the work of one pass
assert B * T * S < 32_768 and B * S * S < 32_768


def answers() -> bytes:
    """Every oracle's answers and gradients on one batch, as bytes."""
    generator = torch.Generator().manual_seed(0)
    potentials = [
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((B, T, S), (S, S), (S,), (S,))
    ]
    y = torch.randint(0, S, (B, T), generator=generator)
    lengths = torch.randint(1, T + 1, (B,), generator=generator)
    chain = Chain(*potentials, lengths=lengths)
    value, best = chain.decode()
    values, ys, _ = chain.decode_topk(3)
    loss = StructuralHinge(L2(1.0, 3))(chain, y)
    total = chain.log_partition() + chain.entropy() + value - chain.log_prob(y)
    gradients = torch.autograd.grad(total.sum() + loss, potentials)
    samples = chain.sample(2, generator=generator)
    found = [value, best, values, ys, loss, total, samples, *gradients]
    found += [chain.marginals(), chain.log_count()]
    return b"".join(x.detach().numpy().tobytes() for x in found)


def searches() -> bytes:
    """The same of each structure whose maxima are searched for."""
    # these sum over labels by PyTorch's softmax, whose threads do not survive a fork
    alone = [x for x in SEARCHES if x[14:] not in ("labelled", "undirected")]
    found = [x for kind in alone for x in answers_of(kind)]
    return b"".join(x.contiguous().numpy().tobytes() for x in found)


def expect(expected: bytes, found: bytes, where: str) -> None:
    if found != expected:
        raise AssertionError(f"other bits {where}")


def expect_pool() -> None:
    if not any(t.name.startswith("smoothsp") for t in threading.enumerate()):
        raise AssertionError("the batch is too small to use the pool of threads")


def from_threads(expected: bytes) -> None:
    """Ask from eight threads at once, each of which changes the size of the pool."""
    gate = threading.Barrier(8)

    def ask(number: int) -> bytes:
        gate.wait()
        torch.set_num_threads(1 + number % 3)
        return answers()

    for _ in range(3):
        with ThreadPoolExecutor(8) as threads:
            for number, found in enumerate(threads.map(ask, range(8))):
                expect(expected, found, f"in thread {number}")


class Answers(Dataset):
    """Each item is asked for in the worker that loads it."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[int, bytes]:
        if index % 2:
            torch.set_num_threads(2)
        found = answers()
        if index % 2:
            expect_pool()
        return os.getpid(), found


def from_workers(expected: bytes) -> None:
    """Ask inside two forked workers of a DataLoader, with and without a pool."""
    loader = DataLoader(
        Answers(), batch_size=None, num_workers=2, multiprocessing_context="fork"
    )
    pids = set()
    for pid, found in loader:
        expect(expected, found, "in a worker")
        pids.add(pid)
    if len(pids) != 2 or os.getpid() in pids:
        raise AssertionError(f"expected two workers, got {pids}")
    expect(expected, answers(), "in the parent of the workers")


def after_fork(expected: bytes, ask: Callable[[], bytes] = answers) -> None:
    """Ask in a child, in its own child, and in the parent after both."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            expect(expected, ask(), "in the child")
            expect_pool()
            grandchild = os.fork()
            if grandchild == 0:
                os._exit(0 if ask() == expected else 1)
            _, waited = os.waitpid(grandchild, 0)
            status = os.waitstatus_to_exitcode(waited)
        finally:
            os._exit(status)
    expect(expected, ask(), "in the parent, while the child runs")
    _, waited = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(waited) != 0:
        raise AssertionError("the child failed")
    expect(expected, ask(), "in the parent, after the child")


def searches_after_fork(_: bytes) -> None:
    """The searches in a child, where any work is shared among threads."""
    ranges.WORK_PER_THREAD = 1
    after_fork(searches(), searches)


PROGRAMS = (from_threads, from_workers, after_fork, searches_after_fork)


def main() -> None:
    torch.set_num_threads(1)
    expected = answers()
    torch.set_num_threads(2)
    expect(expected, answers(), "on two threads")
    expect_pool()
    programs = {f.__name__: f for f in PROGRAMS}
    for name in sys.argv[1:]:
        programs[name](expected)


if __name__ == "__main__":
    main()
