"""Fitted estimators as files of arrays and JSON: reading one runs no code."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Not stored: it may be any function.
_LEFT_OUT = "callback"


def save(
    estimator: Any,
    path: str | os.PathLike[str],
    arrays: dict[str, NDArray[Any]],
    facts: dict[str, Any],
) -> None:
    """Write parameters, arrays and facts, whole or not at all."""
    parameters = estimator.get_params(deep=False)
    parameters.pop(_LEFT_OUT, None)
    for name, value in parameters.items():
        if isinstance(value, np.ndarray | np.generic):
            parameters[name] = value.tolist()
    kind = type(estimator).__name__
    try:
        text = json.dumps({"kind": kind, "parameters": parameters, "facts": facts})
    except TypeError as error:
        raise TypeError(
            f"save: expected parameters of numbers, strings, lists and dicts: {error}"
        ) from error
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        json_bytes = np.frombuffer(text.encode("utf-8"), dtype=np.uint8)
        named: dict[str, Any] = {"json": json_bytes, **arrays}
        np.savez(file, **named)
    partial.replace(path)


def load(
    kind: type, path: str | os.PathLike[str]
) -> tuple[Any, dict[str, NDArray[Any]], dict[str, Any]]:
    """An estimator with the stored parameters, the arrays, and the facts."""
    refused = f"{path}: expected a file that {kind.__name__}.save wrote"
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        content = json.loads(arrays.pop("json").tobytes().decode("utf-8"))
        found, parameters = content["kind"], content["parameters"]
        facts = content["facts"]
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{refused}, got {error}") from error
    if found != kind.__name__:
        raise ValueError(f"{refused}, got one of {found}")
    return kind(**parameters), arrays, facts
