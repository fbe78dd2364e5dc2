"""Description of the folder of a model, read without PyTorch."""

import json
import math
import struct
import sys
from pathlib import Path
from typing import Any

from smoothsp.command_line.results import json_line
from smoothsp.json_files import is_file_name, read_json
from smoothsp.json_files import parse_json_object as json_object

__all__ = ["kind_of", "show"]

FORMATS = "smoothsp.models."
KINDS = ("Tagger", "Parser", "ConstituencyParser", "Localiser", "Segmenter")
WEIGHTS = "model.safetensors"
# Bytes of the header of a file of weights, which names all tensors.
MOST_HEADER = 2**26
SHOWN = 12


def kind_of(folder: Path) -> str:
    """Class of the model in a folder."""
    return _config(folder)[0]


def show(folder: Path, in_json: bool) -> None:
    """Print kind, labels, sizes, number of weights, training and files of a model."""
    found = described(folder)
    if in_json:
        sys.stdout.write(json_line(found))
        return
    lines = {"model": f"{found['kind']} in {folder}"}
    if labels := found["labels"]:
        more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
        lines["labels"] = f"{len(labels)}: {', '.join(labels[:SHOWN])}{more}"
    weights = found["weights"]
    lines["weights"] = "unknown" if weights is None else f"{weights:,} numbers"
    for part in ("sizes", "training", "best epoch"):
        if found[part]:
            lines[part] = ", ".join(
                f"{key} {_said(x)}" for key, x in found[part].items()
            )
    for name, size in found["files"].items():
        said = "missing" if size is None else f"{size:,} bytes"
        before = lines.get("files")
        lines["files"] = f"{before}; {name} {said}" if before else f"{name} {said}"
    for key, text in lines.items():
        sys.stdout.write(f"{key:<12}{_printable(text)}\n")


def described(folder: Path) -> dict[str, Any]:
    """Return all that ``show`` prints, as values of JSON."""
    kind, config = _config(folder)
    about = config.get("about")
    about = about if isinstance(about, dict) else {}
    settings = about.get("settings")
    history = about.get("history")
    labels = config.get("labels") or config.get("classes") or []
    known = {"about", "classes", "encoder", "files", "format", "labels", "sizes"}
    own = {k: x for k, x in config.items() if k not in {*known, "version"}}
    sizes = config.get("sizes")
    own |= sizes if isinstance(sizes, dict) else {}
    encoder = config.get("encoder")
    if isinstance(encoder, dict):
        model = encoder.get("model")
        own["encoder"] = model.get("model_type") if isinstance(model, dict) else None
    sums = config.get("files")
    names = sorted(x for x in sums if is_file_name(x)) if isinstance(sums, dict) else []
    return {
        "kind": kind,
        "labels": [str(x) for x in labels] if isinstance(labels, list) else [],
        "weights": _count(folder / WEIGHTS),
        "sizes": own,
        "training": settings if isinstance(settings, dict) else {},
        "best epoch": _best(history, about),
        "files": {
            name: (folder / name).stat().st_size if (folder / name).is_file() else None
            for name in ("config.json", *names)
        },
    }


def _best(history: Any, about: dict[str, Any]) -> dict[str, Any]:
    """Numbers of the epoch that was kept; without a history those of the model."""
    rows = (
        [x for x in history if isinstance(x, dict)] if isinstance(history, list) else []
    )
    plain = {k: x for k, x in about.items() if isinstance(x, int | float)}
    if not rows:
        return plain
    ends = ("las", "f1", "map50", "corloc", "iou")
    names = [key for end in ends for key in rows[0] if key.lower().endswith(end)]
    scored = [
        row for row in rows if names and isinstance(row.get(names[0]), int | float)
    ]
    row = max(scored, key=lambda x: x[names[0]]) if scored else rows[-1]
    return {k: x for k, x in row.items() if isinstance(x, int | float)}


def _config(folder: Path) -> tuple[str, dict[str, Any]]:
    path = folder / "config.json"
    if not path.is_file():
        there = "a file" if folder.is_file() else "no config.json there"
        there = there if folder.exists() else "nothing"
        raise FileNotFoundError(
            f"{folder}: expected the folder of a model, got {there}. Training writes"
            " one: the folder model of its --out"
        )
    config = read_json(path)
    found = str(config.get("format"))
    kind = found.removeprefix(FORMATS)
    if not found.startswith(FORMATS) or kind not in KINDS:
        raise ValueError(
            f"{path}: expected format {FORMATS}{f' or {FORMATS}'.join(KINDS)}, got"
            f" {found[:60]!r}"
        )
    return kind, config


def _count(path: Path) -> int | None:
    """Numbers in a file of weights, by its header; None if there is none."""
    if not path.is_file():
        return None
    size = path.stat().st_size
    with path.open("rb") as source:
        begin = source.read(8)
        length = struct.unpack("<Q", begin)[0] if len(begin) == 8 else size
        if length > min(size - 8, MOST_HEADER):
            raise ValueError(f"{path}: expected safetensors, got a header out of range")
        header = json_object(path, source.read(length))
    header.pop("__metadata__", None)
    try:
        return sum(math.prod(map(int, x["shape"])) for x in header.values())
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: expected safetensors, got a header without shapes"
        ) from error


def _said(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _printable(text: str) -> str:
    """A line without control characters, which could rewrite a terminal."""
    shown = "".join(x if x.isprintable() else ascii(x)[1:-1] for x in text)
    return shown if len(shown) <= 2000 else f"{shown[:2000]}..."
