"""A trained detector on images: COCO's JSON, VOC's XML and figures; and evaluated."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from tqdm import tqdm

from localization.several import annotations, figures
from localization.several.annotations import Example
from localization.several.detection import DECODERS, precision
from localization.several.images import Images, kept_maps
from localization.several.model import Detector, load
from localization.several.report import table
from runs import files
from runs.failures import Failures
from smoothsp.data.images import SUFFIXES, BadFile, images_in, read_image


def predict(model: Path, folder: Path, skip_bad: bool = False) -> dict[str, float]:
    """Write ``predictions.json``, ``predictions/*.xml`` and ``*.png`` beside a model.

    An image that cannot be read is named; the others are written first.

    Returns
    -------
    dict
        How many images were read, and how many objects were found.
    """
    if not folder.is_dir():
        raise FileNotFoundError(
            f"predict: expected a folder of images, got {folder}. Put a single image"
            " into a folder of its own"
        )
    paths = images_in(folder)
    if not paths:
        raise ValueError(
            f"predict: expected images ({', '.join(SUFFIXES)}), found none in {folder}"
        )
    detector, out, failures = load(model), model.parent, Failures(skip_bad)
    stems, found = Counter(path.stem for path in paths), []
    for path in tqdm(paths, "finding", leave=False, disable=None):
        try:
            image = read_image(path)
        except BadFile as error:
            failures.add(error)
            continue
        name = path.stem if stems[path.stem] == 1 else path.name
        example = detector.find(name, path, image)
        found.append(example)
        text = annotations.voc(example)
        files.write(
            out / "predictions" / f"{name}.xml", lambda sink, own=text: sink.write(own)
        )
        drawn = out / "predictions" / f"{name}.png"
        figures.objects(drawn, image, example, detector.classes)
    files.write_json(
        out / "predictions.json", annotations.coco(found, detector.classes)
    )
    boxes = sum(len(example.boxes) for example in found)
    print(
        f"{boxes} objects in {len(found)} images; see {out}: predictions.json,"
        " predictions/"
    )
    failures.end(len(found), "images")
    return {"images": float(len(found)), "objects": float(boxes)}


def evaluate(
    model: Path, folder: Path, cache: Path, skip_bad: bool = False
) -> dict[str, float]:
    """Print and write to ``evaluation.json`` the precisions on a list of a folder."""
    detector = load(model)
    listed = (folder / "ImageSets" / "Main" / "test.txt").exists()
    part = "test" if listed else "val"
    own = annotations.read(folder, skip_bad, (part,))
    print(own.summary())
    examples = _known(own.lists[part], detector)
    maps = kept_maps(detector.network.backbone, examples, detector.about["side"], cache)
    images = Images(examples, detector.classes, detector.windows_of, maps)
    decode = DECODERS[detector.about["decoder"]]
    with torch.no_grad():
        found = [
            decode(detector.network.scores(*images.inputs(n)), images.windows(n).boxes)
            for n in range(len(images))
        ]
    objects = [images.objects(n) for n in range(len(images))]
    difficult = [images.difficult(n) for n in range(len(images))]
    result = precision(found, objects, detector.classes, difficult)
    print(table({part: {detector.about["decoder"]: result}}, detector.classes))
    files.write_json(model.parent / "evaluation.json", result)
    return result


def _known(examples: Sequence[Example], detector: Detector) -> list[Example]:
    unknown = {x for example in examples for x in example.labels} - {*detector.classes}
    if unknown:
        raise ValueError(
            f"evaluate: expected the classes {', '.join(detector.classes)}, got"
            f" {', '.join(sorted(unknown))} too. Take the folder that it was trained on"
        )
    return list(examples)
