"""A trained localiser on a folder of images: figures with boxes, and one JSON file."""

import json
from pathlib import Path

from tqdm import tqdm

from localization import figures
from runs import files
from runs.failures import Failures
from smoothsp.data.images import SUFFIXES, BadFile, images_in, read_image
from smoothsp.models import load
from smoothsp.models.localiser import Localiser


def predict(
    model: Path, folder: Path, nbest: int, skip_bad: bool = False
) -> dict[str, float]:
    """Write ``predictions.json`` and ``predictions/*.png`` beside the model.

    An image that cannot be read is named; the others are written first.

    Returns
    -------
    dict
        How many images were read.
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
    if not model.exists():
        raise FileNotFoundError(
            f"predict: expected a model, found no {model}. Train one first, or give the"
            " --out of the run that did"
        )
    localiser = load(model)
    if not isinstance(localiser, Localiser):
        raise ValueError(
            f"out: expected the folder of a localiser, got a {type(localiser).__name__}"
            f" in {model}. Give the --out of a run of this recipe"
        )
    found, out, failures = {}, model.parent, Failures(skip_bad)
    for path in tqdm(paths, "locating", leave=False, disable=None):
        try:
            image = read_image(path)
        except BadFile as error:
            failures.add(error)
            continue
        (answer,) = localiser.locate([image], nbest)
        found[path.name] = json.loads(answer.json())
        drawn = out / "predictions" / f"{path.name}.png"
        figures.boxes(drawn, image, answer.boxes, answer.scores)
    content = {"class": localiser.kind, "images": found}
    files.write_json(out / "predictions.json", content)
    print(f"{len(found)} images; see {out}: predictions.json, predictions/")
    failures.end(len(found), "images")
    return {"images": float(len(found))}
