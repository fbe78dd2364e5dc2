"""What was measured as tables: printed, and between the markers of a page."""

import re
from collections.abc import Iterable
from pathlib import Path

from inference import cells, cold_start
from inference.questions import QUESTIONS
from inference.targets import Verdict, in_units
from methods import ours, peers
from report.results import (
    COLD_START,
    MEMORY,
    ORACLES,
    SCALING,
    Results,
    Row,
)

Table = list[list[str]]  # the first row is the head


def fill(path: Path, tables: dict[str, str]) -> None:
    """Put each text between the markers of its name."""
    text = path.read_text()
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if begin not in text or end not in text:
            raise ValueError(f"{path}: expected the lines {begin} and {end}")
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        text = pattern.sub(lambda _, x=f"{begin}\n{table}\n{end}": x, text)
    path.write_text(text)


def tables(
    results: Results, verdicts: list[Verdict], where: dict[str, str]
) -> dict[str, str]:
    """The texts of the page by the names of their markers."""
    return {
        "measured": measured(results, where),
        "targets": markdown(targets_table(verdicts)),
        **{question: markdown(peer_table(results, question)) for question in QUESTIONS},
        "two threads": markdown(threads_table(results)),
        "ragged": markdown(ragged_table(results)),
        "cold start": markdown(cold_start_table(results)),
        "memory": markdown(memory_table(results)),
    }


def markdown(table: Table) -> str:
    head, *body = table
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measured(results: Results, where: dict[str, str]) -> str:
    """One paragraph: when, where, with what, and how quiet it was."""
    what = {k: v for k, v in where.items() if k not in ("date", "commit", "machine")}
    versions = ", ".join(f"{name} {version}" for name, version in what.items())
    timed = [row for row in results.rows if row.measured]
    rounds = {cell(row): (row.rounds, row.disturbed) for row in timed}
    total, disturbed = (sum(x) for x in zip(*rounds.values(), strict=True))
    share = disturbed / max(total, 1)
    return (
        f"{where['date']}, commit `{where['commit']}`, {where['machine']}; {versions}."
        f"\nOther processes disturbed {share:.0%} of {total} rounds."
    )


def cell(row: Row) -> tuple[object, ...]:
    return row.section, row.question, row.case, row.dtype, row.threads


def targets_table(verdicts: Iterable[Verdict]) -> Table:
    table = [["target", "wanted", "1 thread", "2 threads", "worst at", ""]]
    for verdict in verdicts:
        target, worst = verdict.target, verdict.worst
        sign = "at most" if target.at_most else "at least"
        values = {n: quantity(found.value, target.unit) for n, found in worst.items()}
        where = target.worst(list(worst.values())).where if worst else ""
        wanted = f"{sign} {quantity(target.bound, target.unit)}"
        each = [values.get(n, "") for n in (1, 2)]
        table.append([target.name, wanted, *each, where, verdict.word])
    return table


def peer_table(results: Results, question: str) -> Table:
    """Ours, with quartiles, and how many times our time the others take."""
    rows = results.where(section=ORACLES, question=question)
    names = [n for n in peers.NAMES if any(row.method == n for row in rows)]
    table = [["(B, T, S)", "dtype", "threads", *names]]
    lines: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in rows:
        if row.method in names:
            key = row.case, row.dtype, row.threads
            lines.setdefault(key, {})[row.method] = row
    # the order of the cases, with the two thread counts side by side
    order = list(dict.fromkeys((case, dtype) for case, dtype, _ in lines))
    for key in sorted(lines, key=lambda key: (order.index(key[:2]), key[2])):
        found = lines[key]
        entries = [entry(found.get(name)) for name in names]
        table.append([*map(str, key), *entries])
    return table


def at_a_glance(results: Results, case: str) -> Table:
    """Of one case, in float32 on one thread: our time, and the peers' over it."""
    rows = results.where(section=ORACLES, case=case, dtype="float32", threads=1)
    names = [n for n in peers.NAMES if any(row.method == n for row in rows)]
    table = [["question", *names]]
    for question in dict.fromkeys(row.question for row in rows):
        found = {row.method: row for row in rows if row.question == question}
        table.append([question, *(glance(found.get(name)) for name in names)])
    return table


def glance(row: Row | None) -> str:
    if row is None or not row.measured:
        return "" if row is None else row.note
    ours_too = row.method == ours.NAME
    return duration(row.median) if ours_too else quantity(row.ratio, "x")


def cuda_table(results: Results, names: list[str]) -> Table:
    """As ``peer_table``, all questions, and ours next to the memory's floor."""
    table = [["question", "(B, T, S)", "dtype", *names, "of the floor"]]
    for key in dict.fromkeys((x.question, x.case, x.dtype) for x in results.rows):
        question, case, dtype = key
        found = {
            row.method: row
            for row in results.where(question=question, case=case, dtype=dtype)
        }
        entries = [entry(found.get(name)) for name in names]
        table.append([*key, *entries, found[ours.NAME].note])
    return table


def entry(row: Row | None) -> str:
    """``5.5 ms, 70x``; ours with quartiles; or why there is no number."""
    if row is None:
        return ""
    if not row.measured:
        return row.note
    if row.method == ours.NAME:
        return f"{duration(row.median)} ({duration(row.low)} to {duration(row.high)})"
    few = f" (n = {row.samples})" if row.samples < 4 else ""
    return f"{duration(row.median)}, {row.ratio:.3g}x{few}"


def threads_table(results: Results) -> Table:
    """Where one thread takes over a millisecond."""
    table = [["question", "(B, T, S)", "dtype", "one thread", "two threads", "ratio"]]
    for section in (SCALING, ORACLES):
        for row in results.where(section=section, method=cells.ONE_THREAD):
            if row.median < 1e-3:
                continue
            ratio = f"{row.ratio:.2f} ({row.ratio_low:.2f} to {row.ratio_high:.2f})"
            times = duration(row.median), duration(row.median / row.ratio)
            table.append([row.question, row.case, row.dtype, *times, ratio])
    return table


def ragged_table(results: Results) -> Table:
    """Nanoseconds a real position."""
    head = ["question", "(B, T, S)", "dtype", "threads", "ragged", "full", "ratio"]
    table = [head]
    for full in results.where(section=ORACLES, method=cells.FULL):
        ratio = full.positions / full.ratio
        mine = results.first(
            section=ORACLES,
            question=full.question,
            case=full.case,
            dtype=full.dtype,
            threads=full.threads,
            method=ours.NAME,
        )
        a_position = [row.median / row.positions * 1e9 for row in (mine, full)]
        times = [f"{x:.1f} ns" for x in a_position]
        where = [full.question, full.case, full.dtype, str(full.threads)]
        table.append([*where, *times, f"{ratio / mine.positions:.2f}"])
    return table


def cold_start_table(results: Results) -> Table:
    table = [["", "median", "quartiles", "processes"]]
    names = {
        cold_start.IMPORT: "`import smoothsp`, after torch",
        cold_start.WARM: "first loss call, warm cache",
        cold_start.COLD: "first loss call, empty cache: compilation",
    }
    for method, name in names.items():
        for row in results.where(section=COLD_START, method=method):
            spread = f"{duration(row.low)} to {duration(row.high)}"
            table.append([name, duration(row.median), spread, str(row.samples)])
    return table


def memory_table(results: Results) -> Table:
    head = ["question", "(B, T, S)", "dtype", "growth", "in numbers, by T S"]
    table = [[*head, "of S^2 T numbers"]]
    for row in results.where(section=MEMORY):
        units = in_units(row)
        states = int(row.case.strip("()").split(", ")[-1])
        grown = f"{row.median / 1e6:.1f} MB"
        numbers = [grown, f"{units:.2f}", f"{units / states:.0%}"]
        table.append([row.question, row.case, row.dtype, *numbers])
    return table


def duration(seconds: float) -> str:
    for scale, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * scale < 999.5:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def quantity(value: float, unit: str) -> str:
    text = f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"
    return f"{text}x" if unit == "x" else f"{text} {unit}"
