"""Tables and numbers of ``voc_localization.py``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localization import baselines, figures
from localization.images import Images
from localization.training import Run, rank
from runs import files

PARTS = ("val", "test")


def write(
    folder: Path, about: dict[str, Any], run: Run, parts: dict[str, Images], title: str
) -> dict[str, float]:
    """Print the table, write figures and numbers; the chief ones come back.

    Of the weights that do best on the validation images; the test images had no say.
    """
    best = max(run.history, key=rank)
    run.shown.load_state_dict(run.best)
    result = {"best_round": float(best["round"]), "objective": best["objective"]}
    result["lowest_objective"] = min(row["objective"] for row in run.history)
    mean = baselines.mean_box(parts["train"].examples)
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for part in PARTS:
        if part not in parts:
            continue
        scores = run.evaluate(parts[part])
        others = baselines.table(parts[part], mean)
        rows[part] = {"learned": scores} | others
        result |= {f"{part}_{name}": value for name, value in scores.items()}
        for name, found in others.items():
            result[f"{part}_{name.replace(' ', '_')}"] = found["corloc"]
        result[f"{part}_by_chance"] = baselines.chance(parts[part])
    print(f"\n{table(rows)}")
    history_csv(folder / "history.csv", run.history)
    lines = {name: own["corloc"] for name, own in rows["val"].items()}
    title = f"{title}, {run.settings.method}"
    figures.curves(folder / "curves.png", run.history, title, lines)
    last = parts.get("test", parts["val"])
    found = run.predict(last, figures.RUNNERS_UP + 1)
    figures.sheet(folder / "sheet.png", last, found, title)
    content = about | {"history": run.history, "result": result}
    files.write_json(folder / "metrics.json", content)
    print(
        f"\nbest on validation after round {best['round']}, objective"
        f" {best['objective']:.4f}; see {folder}: model, history.csv, curves.png,"
        " sheet.png, metrics.json"
    )
    return result


def table(rows: dict[str, dict[str, dict[str, float]]]) -> str:
    """A line each way of choosing a box, columns by list of images."""
    heads = {"corloc": "CorLoc", "corloc_7": "at 0.7", "iou": "IoU", "ap": "AP"}
    width = max(len(name) for own in rows.values() for name in own) + 2
    columns = [f"{part} {heads[name]}" for part in rows for name in heads]
    lines = [" " * width + "".join(f"{head:>13}" for head in columns)]
    for way in next(iter(rows.values())):
        cells = [
            f"{100 * own[way][name]:.1f}" if name in own[way] else ""
            for own in rows.values()
            for name in heads
        ]
        line = f"{way:<{width}}" + "".join(f"{cell:>13}" for cell in cells)
        lines.append(line.rstrip())
    return "\n".join(lines)


def history_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    short = [{name: _short(value) for name, value in row.items()} for row in rows]
    files.write_table(path, short)


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value
