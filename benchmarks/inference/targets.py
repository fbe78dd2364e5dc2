"""What the chain oracles are meant to reach: one line each, reached or missed."""

from collections.abc import Callable
from dataclasses import dataclass

from inference import cells, cold_start, memory
from inference.problems import CASES, DTYPES, RAGGED, SMALL, WIDE, Case
from inference.questions import DECODE, HINGE, MARGINALS, NLL, TOP
from methods import ours, peers
from methods.crf_layers import PYTORCH_CRF
from methods.struct_edges import NAME as TORCH_STRUCT
from report.results import COLD_START, MEMORY, ORACLES, SCALING, Results, Row

F32 = ("float32",)
BOTH = tuple(DTYPES)
BUSY = 3e-3  # seconds: "more than a few milliseconds of work"
NOISE = 1.05


@dataclass(frozen=True)
class Found:
    """A measured number, and where."""

    value: float
    where: str = ""


Measure = Callable[[Results, int], list[Found]]


@dataclass(frozen=True)
class Target:
    """Of all that ``measure`` finds on so many threads, the worst has to keep it."""

    name: str
    bound: float
    measure: Measure
    at_most: bool = False
    unit: str = "x"
    threads: tuple[int, ...] = (1, 2)

    def worst(self, found: list[Found]) -> Found:
        return (max if self.at_most else min)(found, key=lambda x: x.value)

    def keeps(self, value: float) -> bool:
        return value <= self.bound if self.at_most else value >= self.bound


@dataclass(frozen=True)
class Verdict:
    """By number of threads, the worst that was found."""

    target: Target
    worst: dict[int, Found]

    @property
    def reached(self) -> bool | None:
        """None if nothing was measured."""
        if not self.worst:
            return None
        return all(self.target.keeps(found.value) for found in self.worst.values())

    @property
    def word(self) -> str:
        return {True: "reached", False: "missed", None: "not measured"}[self.reached]


def evaluate(
    results: Results, targets: tuple[Target, ...] | None = None
) -> list[Verdict]:
    """One verdict for each target."""
    verdicts = []
    for target in TARGETS if targets is None else targets:
        found = {n: target.measure(results, n) for n in target.threads}
        worst = {n: target.worst(those) for n, those in found.items() if those}
        verdicts.append(Verdict(target, worst))
    return verdicts


def against(
    method: str, question: str, cases: tuple[Case, ...], dtypes: tuple[str, ...]
) -> Measure:
    """How many times our time another method takes."""

    def measure(results: Results, threads: int) -> list[Found]:
        rows = asked(results, question, cases, dtypes, threads, method)
        return [Found(row.ratio, place(row)) for row in rows]

    return measure


def in_terms_of(
    method: str, question: str, cases: tuple[Case, ...], dtypes: tuple[str, ...]
) -> Measure:
    """How many times the time of a reference we take."""

    def measure(results: Results, threads: int) -> list[Found]:
        rows = asked(results, question, cases, dtypes, threads, method)
        return [Found(1 / row.ratio, place(row)) for row in rows]

    return measure


def whole_call(question: str, case: Case, dtypes: tuple[str, ...]) -> Measure:
    """Microseconds of our call."""

    def measure(results: Results, threads: int) -> list[Found]:
        rows = asked(results, question, (case,), dtypes, threads, ours.NAME)
        return [Found(row.median * 1e6, place(row)) for row in rows]

    return measure


def a_position(question: str) -> Measure:
    """Our time a real position in ragged batches, over that in full ones."""

    def measure(results: Results, threads: int) -> list[Found]:
        found = []
        for row in asked(results, question, RAGGED, BOTH, threads, cells.FULL):
            mine = same_cell(results, row, ours.NAME)
            share = row.positions / mine.positions
            found.append(Found(share / row.ratio, place(row)))
        return found

    return measure


def speed_up(busy: bool) -> Measure:
    """Our time with one thread over that with two, paired; where there is work.

    Where there is little, of rows whose quartiles hold equality, it is 1.
    """

    def measure(results: Results, threads: int) -> list[Found]:
        found = []
        for section in (ORACLES, SCALING):
            for row in results.where(section=section, method=cells.ONE_THREAD):
                if not row.measured or (busy and row.median < BUSY):
                    continue
                noise = not busy and row.ratio_low <= 1 <= row.ratio_high
                ratio = 1.0 if noise else row.ratio
                found.append(Found(ratio, f"{row.question}, {place(row)}"))
        return found

    return measure


def start(which: str) -> Measure:
    def measure(results: Results, threads: int) -> list[Found]:
        rows = results.where(section=COLD_START, method=which)
        return [Found(row.median) for row in rows]

    return measure


def long_memory(results: Results, threads: int) -> list[Found]:
    """Bytes by T S and the size of a number, at S = 9."""
    case = memory.long_case(memory.STATES[0])
    rows = results.where(section=MEMORY, case=str(case))
    return [Found(in_units(row), f"{row.question}, {row.dtype}") for row in rows]


def growth_of_memory(results: Results, threads: int) -> list[Found]:
    """The same at four times the states, over that at S = 9: 4 if it were O(T S^2)."""
    few, many = (str(memory.long_case(S)) for S in memory.STATES)
    found = []
    for row in results.where(section=MEMORY, case=few):
        other = results.first(
            section=MEMORY, case=many, dtype=row.dtype, question=row.question
        )
        where = f"{row.question}, {row.dtype}"
        found.append(Found(in_units(other) / in_units(row), where))
    return found


def in_units(row: Row) -> float:
    """Bytes over T S and the size of a number."""
    states = next(S for S in memory.STATES if str(memory.long_case(S)) == row.case)
    return row.median / (memory.TIME * states * DTYPES[row.dtype].itemsize)


def asked(results, question, cases, dtypes, threads, method) -> list[Row]:
    names = {str(case) for case in cases}
    rows = results.where(
        section=ORACLES, question=question, threads=threads, method=method
    )
    return [
        row
        for row in rows
        if row.measured and row.case in names and row.dtype in dtypes
    ]


def same_cell(results: Results, row: Row, method: str) -> Row:
    """Another method's row beside this one."""
    found = results.first(
        section=row.section,
        question=row.question,
        case=row.case,
        dtype=row.dtype,
        threads=row.threads,
        method=method,
    )
    assert found is not None
    return found


def place(row: Row) -> str:
    return f"{row.case} {row.dtype}"


ONE = (SMALL,)
STATES_SQUARED = float(memory.STATES[0])  # S^2 T in units of S T
TARGETS = (
    Target("NLL, (32, 50, 9) float32: pytorch-crf's time over ours", 50,
           against(PYTORCH_CRF, NLL, ONE, F32)),
    Target("NLL, (32, 50, 9) float32: torch-struct's time over ours", 100,
           against(TORCH_STRUCT, NLL, ONE, F32)),
    Target("NLL, (32, 50, 50): pytorch-crf's time over ours", 50,
           against(PYTORCH_CRF, NLL, (WIDE,), BOTH)),
    Target("NLL, every shape and dtype: the JAX scan's time over ours", 1,
           against(peers.JAX, NLL, CASES, BOTH)),
    Target("NLL, (32, 50, 9) float32: our whole call", 120,
           whole_call(NLL, SMALL, F32), at_most=True, unit="us"),
    Target("decode, (32, 50, 9): pytorch-crf's time over ours", 100,
           against(PYTORCH_CRF, DECODE, ONE, BOTH)),
    Target("decode, (32, 50, 9): the JAX scan's time over ours", 10,
           against(peers.JAX, DECODE, ONE, BOTH)),
    Target("hinge, (32, 50, 9): torch-struct's time over ours", 50,
           against(TORCH_STRUCT, HINGE, ONE, BOTH)),
    Target("top-5, (32, 50, 9): torch-struct's time over ours", 1000,
           against(TORCH_STRUCT, TOP[5], ONE, BOTH)),
    Target("top-5, (32, 50, 9): the JAX scan's time over ours", 8,
           against(peers.JAX, TOP[5], ONE, BOTH)),
    Target("top-5, (32, 50, 9), public calls: our time over that of our 1-best", 8,
           in_terms_of(cells.ONE_BEST, TOP[5], ONE, BOTH), at_most=True),
    *(
        Target(f"{question}, ragged: time a real position, over a full batch's", 1.25,
               a_position(question), at_most=True)
        for question in (NLL, HINGE, DECODE, TOP[5], MARGINALS)
    ),
    Target(f"one thread's time over two threads', from {BUSY * 1e3:g} ms of work", 1.6,
           speed_up(busy=True), threads=(2,)),
    Target(f"two threads no slower than one, up to noise ({NOISE:g}x)", 1 / NOISE,
           speed_up(busy=False), threads=(2,)),
    Target("gradients at T = 100,000, S = 9: bytes, in T S numbers (S^2 T is 9)",
           STATES_SQUARED, long_memory, at_most=True, threads=(1,)),
    Target("the same in T S numbers at S = 36, over that at S = 9 (O(T S^2): 4)", 1.5,
           growth_of_memory, at_most=True, threads=(1,)),
    Target("first loss call after import, warm cache", 0.3,
           start(cold_start.WARM), at_most=True, unit="s", threads=(1,)),
    Target("first loss call after import, empty cache", 20,
           start(cold_start.COLD), at_most=True, unit="s", threads=(1,)),
)  # fmt: skip
