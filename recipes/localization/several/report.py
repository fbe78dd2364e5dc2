"""Tables and numbers of several objects in an image."""

from pathlib import Path
from typing import Any

from localization.report import history_csv
from localization.several import figures
from localization.several.circles import Circles
from localization.several.detection import DECODERS, precision
from localization.several.images import Images
from localization.several.training import Run
from runs import files


def write(
    folder: Path, about: dict[str, Any], run: Run, parts: dict[str, Images], title: str
) -> dict[str, float]:
    """Print the table, write numbers and figures; the chief ones come back.

    Of the weights that do best on the validation images; the test images had no say.
    """
    best = max(run.history, key=run.rank)
    run.shown.load_state_dict(run.best)
    result = {"best_round": float(best["round"])}
    train = parts["train"]
    classes = train.classes
    circles = Circles(train.examples, classes)
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for part, images in list(parts.items())[1:]:
        rows[part] = {name: run.evaluate(images, name) for name in DECODERS}
        objects = [images.objects(n) for n in range(len(images))]
        found = [circles.found(example) for example in images.examples]
        rows[part]["circles, not trained"] = precision(
            found, objects, classes, [images.difficult(n) for n in range(len(images))]
        )
        own = rows[part][run.decoder]
        result |= {f"{part}_{name}": value for name, value in own.items()}
        result[f"{part}_circles_map50"] = rows[part]["circles, not trained"]["map50"]
        result[f"{part}_recall_of_windows"] = images.recall()
    print(f"\n{table(rows, classes)}")
    last = list(parts.values())[-1]
    for part in rows:
        recall = result[f"{part}_recall_of_windows"]
        print(f"{part}: windows cover {100 * recall:.1f} % of the objects")
    history_csv(folder / "history.csv", run.history)
    figures.sheet(folder / "sheet.png", last, run.found(last), title)
    content = about | {"history": run.history, "result": result, "table": rows}
    files.write_json(folder / "metrics.json", content)
    print(
        f"\nbest on validation after round {best['round']}; see {folder}: model,"
        " history.csv, sheet.png, metrics.json"
    )
    return result


def table(rows: dict[str, dict[str, dict[str, float]]], classes: list[str]) -> str:
    """A line each way to find objects, columns by list of images, in percent."""
    heads = {"map50": "mAP .5", "map": "mAP to .95"}
    heads |= {f"ap50_{name}": f"AP .5 {name}" for name in classes}
    width = max(len(name) for own in rows.values() for name in own) + 2
    columns = [f"{part} {head}" for part in rows for head in heads.values()]
    lines = [" " * width + "".join(f"{head:>{len(head) + 2}}" for head in columns)]
    for way in next(iter(rows.values())):
        cells = [
            f"{100 * own[way][name]:.1f}" if name in own[way] else ""
            for own in rows.values()
            for name in heads
        ]
        line = "".join(
            f"{cell:>{len(head) + 2}}"
            for cell, head in zip(cells, columns, strict=True)
        )
        lines.append(f"{way:<{width}}{line}".rstrip())
    return "\n".join(lines)
