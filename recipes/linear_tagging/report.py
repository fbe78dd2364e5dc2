"""Tables and CSV of ``conll_linear.py``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from runs import files

Row = dict[str, Any]
FIELDS = ("study", "method", "c", "seed", "calls", "seconds", "F", "gap", "F1")


def write(path: Path, rows: list[Row]) -> None:
    """All rows as CSV."""
    files.write_table(path, rows, FIELDS)


def table(rows: list[Row]) -> str:
    """How the runs ended, as Markdown: mean and standard deviation over seeds."""
    lines = [
        "| c | method | calls | s | F | gap | F1 |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (c, method), group in group_rows(rows).items():
        last = last_rows(group)
        if not np.isfinite([row["F"] for row in last]).all():
            lines.append(f"| {c:g} | {method} | diverges | | | | |")
            continue
        seconds = np.mean([row["seconds"] for row in last])
        cells = [mean_and_std(last, name, 4) for name in ("F", "gap")]
        cells.append(mean_and_std(last, "F1", 2))
        lines.append(
            f"| {c:g} | {method} | {last[0]['calls']:g} | {seconds:.1f} |"
            f" {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def mean_and_std(rows: list[Row], name: str, digits: int) -> str:
    values = [row[name] for row in rows]
    mean = f"{np.mean(values):.{digits}f}"
    return f"{mean} ± {np.std(values):.{digits}f}" if len(values) > 1 else mean


def final_means(rows: list[Row]) -> dict[str, float]:
    """Means over seeds at the last looks."""
    return {
        f"{method}, c = {c:g}: {name}": float(np.mean([row[name] for row in last]))
        for (c, method), group in group_rows(rows).items()
        for last in [last_rows(group)]
        for name in ("F", "gap", "F1")
    }


def last_rows(rows: list[Row]) -> list[Row]:
    """The last row of each seed."""
    return list({row["seed"]: row for row in rows}.values())


def group_rows(rows: Iterable[Row]) -> dict[tuple[float, str], list[Row]]:
    """Rows of each c and method, by c, methods in the order in which they were run."""
    groups: dict[tuple[float, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["c"], row["method"]), []).append(row)
    # stable
    return dict(sorted(groups.items(), key=lambda item: item[0][0]))
