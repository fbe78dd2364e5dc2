"""A trained localiser on a folder of images: figures with boxes, and one JSON file."""

import json
from pathlib import Path

from tqdm import tqdm

from localization import figures
from localization.folder import SUFFIXES, read_image
from runs import checkpoint
from smoothsp.models import load


def predict(model: Path, folder: Path, nbest: int) -> dict[str, float]:
    """Write ``predictions.json`` and ``predictions/*.png`` beside the model.

    Returns
    -------
    dict
        How many images there were.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"predict: expected a folder of images, got {folder}")
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES)
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
    found, out = {}, model.parent
    for path in tqdm(paths, "locating", leave=False, disable=None):
        image = read_image(path)
        (answer,) = localiser.locate([image], nbest)
        found[path.name] = json.loads(answer.json())
        drawn = out / "predictions" / f"{path.name}.png"
        figures.boxes(drawn, image, answer.boxes, answer.scores)
    content = {"class": localiser.kind, "images": found}
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    checkpoint.write(out / "predictions.json", lambda sink: sink.write(text.encode()))
    print(f"{len(paths)} images; see {out}: predictions.json, predictions/")
    return {"images": float(len(paths))}
