"""Command ``info``: description of a saved model, without importing PyTorch."""

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
# Limit of the header of a safetensors file, in bytes.
MAX_HEADER_BYTES = 2**26
MAX_SHOWN_LABELS = 12


def kind_of(folder: Path) -> str:
    """Return the class name of the model in a folder."""
    return _read_config(folder)[0]


def show(folder: Path, in_json: bool) -> None:
    """Print kind, labels, sizes, number of weights, training and files of a model."""
    description = describe(folder)
    if in_json:
        sys.stdout.write(json_line(description))
        return
    lines = {"model": f"{description['kind']} in {folder}"}
    if labels := description["labels"]:
        more = (
            f" and {len(labels) - MAX_SHOWN_LABELS} more"
            if len(labels) > MAX_SHOWN_LABELS
            else ""
        )
        lines["labels"] = f"{len(labels)}: {', '.join(labels[:MAX_SHOWN_LABELS])}{more}"
    weights = description["weights"]
    lines["weights"] = "unknown" if weights is None else f"{weights:,} numbers"
    for part in ("sizes", "training", "best epoch"):
        if description[part]:
            lines[part] = ", ".join(
                f"{key} {_format_value(x)}" for key, x in description[part].items()
            )
    for name, size in description["files"].items():
        size_text = "missing" if size is None else f"{size:,} bytes"
        listed = lines.get("files")
        lines["files"] = (
            f"{listed}; {name} {size_text}" if listed else f"{name} {size_text}"
        )
    for key, text in lines.items():
        sys.stdout.write(f"{key:<12}{_escape_control_characters(text)}\n")


def describe(folder: Path) -> dict[str, Any]:
    """Return the output of ``show`` as JSON values."""
    kind, config = _read_config(folder)
    about = config.get("about")
    about = about if isinstance(about, dict) else {}
    settings = about.get("settings")
    history = about.get("history")
    labels = config.get("labels") or config.get("classes") or []
    common = {"about", "classes", "encoder", "files", "format", "labels", "sizes"}
    model_fields = {k: x for k, x in config.items() if k not in {*common, "version"}}
    sizes = config.get("sizes")
    model_fields |= sizes if isinstance(sizes, dict) else {}
    encoder = config.get("encoder")
    if isinstance(encoder, dict):
        model = encoder.get("model")
        model_fields["encoder"] = (
            model.get("model_type") if isinstance(model, dict) else None
        )
    sums = config.get("files")
    names = sorted(x for x in sums if is_file_name(x)) if isinstance(sums, dict) else []
    return {
        "kind": kind,
        "labels": [str(x) for x in labels] if isinstance(labels, list) else [],
        "weights": _count_weights(folder / WEIGHTS),
        "sizes": model_fields,
        "training": settings if isinstance(settings, dict) else {},
        "best epoch": _best_epoch(history, about),
        "files": {
            name: (folder / name).stat().st_size if (folder / name).is_file() else None
            for name in ("config.json", *names)
        },
    }


def _best_epoch(history: Any, about: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of the saved epoch; without a history, those of ``about``."""
    rows = (
        [x for x in history if isinstance(x, dict)] if isinstance(history, list) else []
    )
    plain = {k: x for k, x in about.items() if isinstance(x, int | float)}
    if not rows:
        return plain
    # the first metric of the history with one of these endings chose the epoch
    ends = ("las", "f1", "map50", "corloc", "iou")
    names = [key for end in ends for key in rows[0] if key.lower().endswith(end)]
    scored = [
        row for row in rows if names and isinstance(row.get(names[0]), int | float)
    ]
    row = max(scored, key=lambda x: x[names[0]]) if scored else rows[-1]
    return {k: x for k, x in row.items() if isinstance(x, int | float)}


def _read_config(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return class name and fields of the ``config.json`` of a model."""
    path = folder / "config.json"
    if not path.is_file():
        problem = "a file" if folder.is_file() else "no config.json in it"
        problem = problem if folder.exists() else "nothing"
        raise FileNotFoundError(
            f"{folder}: expected the folder of a model, got {problem}. Training writes"
            " one: the folder model in its --out"
        )
    config = read_json(path)
    format_name = str(config.get("format"))
    kind = format_name.removeprefix(FORMATS)
    if not format_name.startswith(FORMATS) or kind not in KINDS:
        raise ValueError(
            f"{path}: expected format {FORMATS}{f' or {FORMATS}'.join(KINDS)}, got"
            f" {format_name[:60]!r}"
        )
    return kind, config


def _count_weights(path: Path) -> int | None:
    """Return the number of weights by the header of a file; None without a file."""
    if not path.is_file():
        return None
    size = path.stat().st_size
    with path.open("rb") as source:
        # safetensors: 8 bytes with the length of the header, then the header as JSON
        begin = source.read(8)
        length = struct.unpack("<Q", begin)[0] if len(begin) == 8 else size
        if length > min(size - 8, MAX_HEADER_BYTES):
            raise ValueError(f"{path}: expected safetensors, got a header out of range")
        header = json_object(path, source.read(length))
    header.pop("__metadata__", None)
    try:
        return sum(math.prod(map(int, x["shape"])) for x in header.values())
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: expected safetensors, got a header without shapes"
        ) from error


def _format_value(value: Any) -> str:
    """Return a setting or a score as text."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _escape_control_characters(text: str) -> str:
    """Return a line without control characters, which could rewrite a terminal."""
    shown = "".join(x if x.isprintable() else ascii(x)[1:-1] for x in text)
    return shown if len(shown) <= 2000 else f"{shown[:2000]}..."
