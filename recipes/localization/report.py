"""Tables, numbers and figures of ``voc_localization.py``."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from localization import baselines, figures
from localization.circles import Circles
from localization.folder import Folder
from localization.optimizers import PASSES
from localization.settings import Config
from runs import files
from smoothsp.models.box_images import (
    CORRECT_IOU,
    MultiObjectImages,
    SingleObjectImages,
    make_box_images,
)
from smoothsp.models.detection import DECODERS, Detections
from smoothsp.models.localiser import Found, Localiser

RUNNERS_UP = 3
Rows = dict[str, dict[str, float]]


def write(config: Config, localiser: Localiser, folder: Folder) -> dict[str, float]:
    """Print the table, write figures and numbers; return the chief ones.

    They are those of the epoch that is best on the validation images; the test images
    had no say.
    """
    history = localiser.about["history"]
    monitor = "iou" if localiser.objects == "one" else "map50"
    best = max(history, key=lambda row: row[monitor])
    result = {"best_epoch": float(best["epoch"])}
    if localiser.objects == "one":
        result["objective"] = best["objective"]
        result["lowest_objective"] = min(row["objective"] for row in history)
    rows: dict[str, Rows] = {}
    train = folder.lists["train"]
    title = (
        f"{config.kind or ', '.join(localiser.classes)}: {len(train)} training images,"
        f" {config.backbone} with weights: {config.weights}"
        f"{', then trained too' if config.finetune else ''}"
    )
    for part, examples in list(folder.lists.items())[1:]:
        images = make_box_images(
            localiser, examples, config.cache, config.workers, config.finetune
        )
        if isinstance(images, SingleObjectImages):
            mean = baselines.mean_box(train)
            rows[part] = {"learned": images.evaluate()}
            rows[part] |= baselines.table(images, mean)
            result[f"{part}_by_chance"] = baselines.random_corloc(images)
            panels = _single_object_panels(images)
        else:
            rows[part] = _evaluate_decoders(images)
            circles = Circles(train, localiser.classes)
            detections = [circles.detect(example) for example in images.examples]
            rows[part]["circles, not trained"] = images.evaluate(detections)
            result[f"{part}_recall_of_windows"] = images.recall()
            panels = _multi_object_panels(images)
        rows_of_part = "learned" if localiser.objects == "one" else localiser.decoder
        result |= {f"{part}_{name}": x for name, x in rows[part][rows_of_part].items()}
        for name, others in rows[part].items():
            chief = "corloc" if localiser.objects == "one" else "map50"
            result[f"{part}_{name.split(',')[0].replace(' ', '_')}"] = others[chief]
    print(f"\n{table(rows, localiser)}")
    files.write_table(
        config.out / "history.csv", [_round_floats(row) for row in history]
    )
    if localiser.objects == "one":
        lines = {
            name: rows_of_part["corloc"] for name, rows_of_part in rows["val"].items()
        }
        passes = PASSES.get(config.optimizer, 1)
        about = f"{title}, {config.optimizer}"
        figures.curves(config.out / "curves.png", history, passes, about, lines)
    single_object = localiser.objects == "one"
    figures.sheet(config.out / "sheet.png", panels, single_object, title)
    content = {"settings": localiser.about["settings"], "history": history}
    content |= {"result": result, "table": rows}
    files.write_json(config.out / "metrics.json", content)
    print(
        f"\nbest on validation after epoch {best['epoch']}; see {config.out}: model,"
        f" history.csv, {'curves.png, ' if single_object else ''}sheet.png,"
        " metrics.json"
    )
    return result


def _single_object_panels(images: SingleObjectImages) -> list[figures.Panel]:
    """Images from the best to the worst prediction, and their runners-up."""
    ranked = images.rank_candidates(RUNNERS_UP + 1)
    iou = [
        float(overlap[int(ys[0])])
        for overlap, (_, ys) in zip(images.overlaps, ranked, strict=True)
    ]
    order = sorted(range(len(images)), key=lambda number: -iou[number])
    panels = []
    for rank in figures.evenly_spaced(len(images), single_object=True):
        number = order[rank]
        scores, ys = ranked[number]
        kind = images.localiser.classes * len(ys)
        prediction = _as_prediction(
            images, number, images.candidates(number)[ys], kind, scores
        )
        is_hit, example = iou[number] > CORRECT_IOU, images.examples[number]
        caption = (
            f"{'hit' if is_hit else 'MISS'}  {example.name}  IoU {iou[number]:.2f}"
        )
        panels.append(figures.Panel(example, prediction, caption, is_hit))
    return panels


def _evaluate_decoders(images: MultiObjectImages) -> Rows:
    return {name: images.evaluate(images.detect(name)) for name in DECODERS}


def _multi_object_panels(images: MultiObjectImages) -> list[figures.Panel]:
    """Images of a list, evenly spaced, and the boxes that are sure."""
    panels, detections = [], images.detect()
    for number in figures.evenly_spaced(len(images), single_object=False):
        detection: Detections = detections[number]
        names = [
            images.localiser.classes[n]
            for n in detection.labels[: detection.num_selected].tolist()
        ]
        boxes, scores = (
            detection.boxes[: detection.num_selected],
            detection.scores[: detection.num_selected],
        )
        example = images.examples[number]
        prediction = _as_prediction(images, number, boxes, names, scores)
        caption = (
            f"{example.name}: {detection.num_selected} found, {len(example.boxes)} true"
        )
        panels.append(figures.Panel(example, prediction, caption))
    return panels


def _as_prediction(
    images: SingleObjectImages | MultiObjectImages,
    number: int,
    boxes: Tensor,
    labels: list[str],
    scores: Tensor,
) -> Found:
    listed = [tuple(box) for box in boxes.tolist()]
    return Found(listed, labels, scores.tolist(), *images.sizes[number])


def table(rows: Mapping[str, Rows], localiser: Localiser) -> str:
    """A line each way to find boxes, columns by list of images, in percent."""
    if localiser.objects == "one":
        heads = {"corloc": "CorLoc", "corloc_7": "at 0.7", "iou": "IoU", "ap": "AP"}
    else:
        heads = {"map50": "mAP .5", "map": "mAP to .95"}
        heads |= {f"ap50_{name}": f"AP .5 {name}" for name in localiser.classes}
    width = max(len(name) for part_rows in rows.values() for name in part_rows) + 2
    columns = [f"{part} {head}" for part in rows for head in heads.values()]
    lines = [" " * width + "".join(f"{head:>{len(head) + 2}}" for head in columns)]
    for method in next(iter(rows.values())):
        cells: Sequence[str] = [
            f"{100 * part_rows[method][name]:.1f}" if name in part_rows[method] else ""
            for part_rows in rows.values()
            for name in heads
        ]
        line = "".join(
            f"{cell:>{len(head) + 2}}"
            for cell, head in zip(cells, columns, strict=True)
        )
        lines.append(f"{method:<{width}}{line}".rstrip())
    return "\n".join(lines)


def _round_floats(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: f"{x:.6g}" if isinstance(x, float) else x for k, x in row.items()}
