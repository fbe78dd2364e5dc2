"""Dynamic programmes on a CUDA device: ours alone, beside the memory's floor."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from inference.problems import DTYPES
from inference.questions import DECODE, Answer, Method, with_gradients
from measuring import timing
from methods import ours
from report.results import CUDA, Row
from smoothsp.oracles import CTC, ProjectiveDependencies, SemiMarkov, SpanTree

SUMS = "log-partition, forward + backward"
# Relative to the largest entry, of values and gradients.
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}


def ctc(frames: Tensor, labels: int) -> CTC:
    """Every row has the labels 1, 2, and so on."""
    given = torch.arange(labels, device=frames.device) % (frames.shape[2] - 1) + 1
    return CTC(frames, given.expand(len(frames), -1))


class Case(NamedTuple):
    """A structure, and the shapes of its potentials."""

    name: str
    build: Callable[..., object]
    shapes: tuple[tuple[int, ...], ...]


CASES = (
    Case("dependencies (32, 40)", ProjectiveDependencies, ((32, 41, 41),)),
    Case("dependencies (256, 20)", ProjectiveDependencies, ((256, 21, 21),)),
    Case("spans (32, 40)", SpanTree, ((32, 40, 40),)),
    Case("segments (32, 50, 9), 8 long", SemiMarkov, ((32, 50, 8, 9), (9, 9))),
    Case("CTC (32, 100, 40), 30 labels", partial(ctc, labels=30), ((32, 100, 40),)),
)


def rows(
    cases: tuple[Case, ...],
    dtypes: tuple[str, ...],
    effort: timing.Effort,
    seed: int,
    device: str = "cuda",
    stopwatch: timing.Stopwatch = timing.on_the_device,
) -> Iterator[tuple[Row, int]]:
    """Yield rows of measurements, each with the bytes of its floor."""
    for case in cases:
        generator = torch.Generator().manual_seed(seed)
        drawn = [torch.randn(x, generator=generator).double() for x in case.shapes]
        exact = questions(case, drawn)
        for dtype in dtypes:
            given = [x.to(device, DTYPES[dtype]) for x in drawn]
            for name, call in questions(case, given).items():
                answer = call()
                agree(f"{case.name}, {name}", answer, exact[name]())
                method = {ours.NAME: Method(name, None, call, tuple)}
                once = {ours.NAME: stopwatch(call, 1)}
                measured = timing.measure(method, once, effort, stopwatch)
                found = timing.summarise(measured, ours.NAME)[ours.NAME]
                threads = torch.get_num_threads()
                row = Row(CUDA, name, case.name, dtype, threads, ours.NAME)
                timed = Row(**asdict(row) | asdict(found))
                # the value of each row is too small to count
                written = given if name == SUMS else answer[1:]
                yield timed, sum(x.nbytes for x in (*given, *written))


def questions(case: Case, given: list[Tensor]) -> dict[str, Callable[[], Answer]]:
    """The values of rows with all gradients, and the best outputs."""
    leaves = tuple(x.requires_grad_() for x in given)
    return {
        SUMS: with_gradients(lambda: case.build(*leaves).log_partition().sum(), leaves),
        DECODE: torch.no_grad()(lambda: tuple(case.build(*leaves).decode())),
    }


def agree(what: str, found: Answer, exact: Answer) -> None:
    """Stop if values or gradients are not those of the CPU in float64."""
    tolerance = TOLERANCE[found[0].dtype]
    for one, other in zip(found, exact, strict=True):
        # of outputs, which may differ at ties, the scores are compared
        if other.is_floating_point():
            error = (one.detach().cpu() - other.detach()).abs().max()
            if not error <= tolerance * other.detach().abs().max():
                raise SystemExit(f"{what}: smoothsp is off by {error:.2g}")
