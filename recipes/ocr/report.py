"""Tables and numbers of ``ocr_words.py``."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from multiclass.cells import Cells
from ocr import figures
from ocr.letters import Words
from ocr.runs import COURSES, SOLVERS, VARIANTS, course_key, variant_key
from runs import files

NONE = "-"
Row = dict[str, Any]


def write(config: Any, words: Words, cells: Cells) -> dict[str, float]:
    """Print the tables and write all written; the chief numbers come back."""
    runs = variant_rows(config, words, cells)
    courses = course_rows(config, words, cells)
    for setting in config.settings:
        for lam in config.lam:
            mine = [r for r in runs if (r["setting"], r["lam"]) == (setting, lam)]
            print(f"\n{setting}, lambda {lam:g}\n\n{variant_table(mine, config.tol)}")
    for setting in config.courses:
        mine = [row for row in courses if row["setting"] == setting]
        print(f"\n{setting}, every lambda\n\n{course_table(mine)}")
    out, written = config.out, ["metrics.json"]
    if runs:
        files.write_table(out / "variants.csv", [without_lists(row) for row in runs])
        files.write_table(out / "gaps.csv", gap_rows(runs))
        written += ["variants.csv", "gaps.csv"]
    if courses:
        files.write_table(out / "courses.csv", point_rows(courses))
        written.append("courses.csv")
    for setting in config.settings:
        mine = [row for row in runs if row["setting"] == setting]
        written.append(f"gaps_{setting}.png")
        figures.gaps(out / written[-1], mine, config.lam, config.tol)
    for setting in config.courses:
        mine = [row for row in courses if row["setting"] == setting]
        written.append(f"courses_{setting}.png")
        figures.courses(out / written[-1], mine)
    result = chief_numbers(runs, courses)
    content = {
        "settings": {name: readable(value) for name, value in asdict(config).items()},
        "words": str(words),
        "result": result,
        "variants": [without_lists(row) for row in runs],
        "courses": [without_lists(row) for row in courses],
    }
    files.write_json(out / "metrics.json", content)
    print(f"\nsee {out}: {', '.join(written)}")
    return result


def readable(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return [readable(x) for x in value] if isinstance(value, tuple) else value


def without_lists(row: Row) -> Row:
    return {name: value for name, value in row.items() if not isinstance(value, list)}


def variant_rows(config: Any, words: Words, cells: Cells) -> list[Row]:
    return [
        {"setting": setting, "lam": lam, "variant": str(variant), "seed": seed}
        | cells[variant_key(words, setting, lam, variant, seed)]
        for setting in config.settings
        for lam in config.lam
        for variant in VARIANTS
        for seed in config.seeds
    ]


def course_rows(config: Any, words: Words, cells: Cells) -> list[Row]:
    seed = min(config.seeds, default=0)
    return [
        {"setting": setting, "course": course, "solver": str(solver)}
        | cells[course_key(words, setting, course, solver, seed)]
        for setting in config.courses
        for solver in SOLVERS
        for course in COURSES
    ]


def variant_table(rows: list[Row], tol: float) -> str:
    """One row a variant: medians over seeds."""
    lines = []
    for variant in dict.fromkeys(row["variant"] for row in rows):
        mine = [row for row in rows if row["variant"] == variant]
        gap = median(mine, "gap")
        lines.append(
            [
                variant,
                shown(median(mine, "passes"), 0),
                shown(median(mine, "oracle_passes"), 0),
                shown(median(mine, "seconds"), 2),
                f"{gap:.1e}" if gap > tol else "reached",
                shown(median(mine, "letter_error"), 2),
                shown(median(mine, "word_error"), 2),
            ]
        )
    head = ["variant", "passes", "oracle calls / n", "seconds", f"gap {tol:g}"]
    return markdown([*head, "wrong letters, %", "wrong words, %"], lines)


def median(rows: list[Row], name: str) -> float:
    return statistics.median(row[name] for row in rows)


def course_table(rows: list[Row]) -> str:
    lines = [
        [
            f"{row['course']}, {row['solver']}",
            str(len(row["points"])),
            shown(row["oracle_passes"], 0),
            shown(row["seconds"], 2),
            shown(row["largest_excess"], 3),
            shown(min(row["errors"], default=None), 2),
            "yes" if row["complete"] else "no",
        ]
        for row in rows
    ]
    head = ["", "breakpoints or values", "oracle calls / n", "seconds"]
    head += ["largest excess", "fewest wrong letters, %", "down to 2^-15"]
    return markdown(head, lines)


def shown(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def markdown(head: Sequence[str], lines: list[list[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def gap_rows(runs: list[Row]) -> list[Row]:
    """One row a certificate."""
    about = ("setting", "lam", "variant", "seed")
    names = ("passes", "oracle_passes", "seconds", "gap")
    return [
        {name: row[name] for name in about} | dict(zip(names, record, strict=True))
        for row in runs
        for record in row["history"]
    ]


def point_rows(courses: list[Row]) -> list[Row]:
    """One row a breakpoint or value."""
    about = ("setting", "course", "solver")
    names = ("lam", "oracle_passes", "seconds", "gap")
    return [
        {name: row[name] for name in about} | dict(zip(names, point, strict=True))
        for row in courses
        for point in row["points"]
    ]


def chief_numbers(runs: list[Row], courses: list[Row]) -> dict[str, float]:
    """Passes, seconds and errors of each variant, and cost of paths over grids."""
    result: dict[str, float] = {}
    groups: dict[str, list[Row]] = {}
    for row in runs:
        name = f"{row['setting']}_{row['lam']:g}_{row['variant']}"
        groups.setdefault(name, []).append(row)
    for name, rows in groups.items():
        for number in ("oracle_passes", "seconds", "gap", "letter_error"):
            result[f"{name}_{number}"] = median(rows, number)
    known = {(r["setting"], r["course"], r["solver"]): r for r in courses}
    for (setting, course, solver), row in known.items():
        result[f"{setting}_{course}_{solver}_oracle_passes"] = row["oracle_passes"]
        if course == "path":
            grid = known[setting, "grid, same weights", solver]
            # a budget may end before the first value of a grid
            for number in ("oracle_passes", "seconds"):
                name = f"{setting}_path_over_grid_{solver}_{number}"
                if grid["oracle_passes"]:
                    result[name] = row[number] / grid[number]
    return result
