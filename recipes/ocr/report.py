"""Tables and numbers of ``ocr_words.py``."""

import statistics
from collections.abc import Sequence
from typing import Any

from ocr import figures
from ocr.letters import LetterWords
from ocr.variants import VARIANTS, variant_key
from runs import files
from runs.result_store import ResultStore

Row = dict[str, Any]


def write(config: Any, words: LetterWords, store: ResultStore) -> dict[str, float]:
    """Print the tables and write all written; the chief numbers come back."""
    runs = variant_rows(config, store)
    for setting in config.settings:
        for lam in config.lam:
            mine = [r for r in runs if (r["setting"], r["lam"]) == (setting, lam)]
            print(f"\n{setting}, lambda {lam:g}\n\n{variant_table(mine, config.tol)}")
    out, file_names = config.out, ["metrics.json", "variants.csv", "gaps.csv"]
    files.write_table(out / "variants.csv", [without_lists(row) for row in runs])
    files.write_table(out / "gaps.csv", gap_rows(runs))
    for setting in config.settings:
        mine = [row for row in runs if row["setting"] == setting]
        for lam in config.lam:
            file_names.append(f"gaps_{setting}_{lam:g}.png")
            figures.gaps(
                out / file_names[-1], [row for row in mine if row["lam"] == lam]
            )
    result = main_results(runs)
    content = {
        "settings": config.as_json(),
        "words": str(words),
        "result": result,
        "variants": [without_lists(row) for row in runs],
    }
    files.write_json(out / "metrics.json", content)
    print(f"\nsee {out}: {', '.join(file_names)}")
    return result


def without_lists(row: Row) -> Row:
    return {name: value for name, value in row.items() if not isinstance(value, list)}


def variant_rows(config: Any, store: ResultStore) -> list[Row]:
    return [
        {"setting": setting, "lam": lam, "variant": str(variant), "seed": seed}
        | store[variant_key(setting, lam, variant, seed)]
        for setting in config.settings
        for lam in config.lam
        for variant in VARIANTS
        for seed in config.seeds
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
                format_number(median(mine, "passes"), 0),
                format_number(median(mine, "oracle_passes"), 0),
                format_number(median(mine, "seconds"), 2),
                f"{gap:.1e}" if gap > tol else "reached",
                format_number(median(mine, "letter_error"), 2),
                format_number(median(mine, "word_error"), 2),
            ]
        )
    head = ["variant", "passes", "oracle calls / n", "seconds", f"gap {tol:g}"]
    return markdown([*head, "wrong letters, %", "wrong words, %"], lines)


def median(rows: list[Row], name: str) -> float:
    return statistics.median(row[name] for row in rows)


def format_number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}"


def markdown(head: Sequence[str], lines: list[list[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def gap_rows(runs: list[Row]) -> list[Row]:
    """One row a certificate."""
    about = ("setting", "lam", "variant", "seed")
    return [
        {name: row[name] for name in about} | record
        for row in runs
        for record in row["history"]
    ]


def main_results(runs: list[Row]) -> dict[str, float]:
    """Passes, seconds and errors of each variant."""
    result: dict[str, float] = {}
    groups: dict[str, list[Row]] = {}
    for row in runs:
        name = f"{row['setting']}_{row['lam']:g}_{row['variant']}"
        groups.setdefault(name, []).append(row)
    for name, rows in groups.items():
        for number in ("oracle_passes", "seconds", "gap", "letter_error"):
            result[f"{name}_{number}"] = median(rows, number)
    return result
