"""Fitted estimators as files of arrays and JSON: reading one runs no code."""

import io
import json
import math
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.features import whole_files

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
    # JSON makes strings of keys
    keys = {}
    for name, value in parameters.items():
        if isinstance(value, dict):
            keys[name] = [_plain(key) for key in value]
            parameters[name] = [_plain(x) for x in value.values()]
        else:
            parameters[name] = _plain(value)
    content = {"kind": type(estimator).__name__, "parameters": parameters}
    try:
        text = json.dumps({**content, "keys": keys, "facts": facts})
    except TypeError as error:
        raise TypeError(
            f"save: expected parameters of numbers, strings, lists and dicts: {error}"
        ) from error
    json_bytes = np.frombuffer(text.encode("utf-8"), dtype=np.uint8)
    named: dict[str, Any] = {"json": json_bytes, **arrays}
    file = io.BytesIO()
    np.savez(file, **named)
    whole_files.write(path, file.getvalue())


def _plain(value: Any) -> Any:
    """Numbers and lists of Python in place of numpy's."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """An array as it stands in the file, of no more bytes than there are."""
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{member.filename} is compressed")
    content = io.BytesIO(archive.read(member))
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    shape, _, dtype = read_header[np.lib.format.read_magic(content)](content)
    left = member.file_size - content.tell()
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != left:
        raise ValueError(f"{member.filename} of {left} bytes is {shape} {dtype}")
    content.seek(0)
    return np.asarray(np.lib.format.read_array(content, allow_pickle=False))


def load(
    kind: type,
    path: str | os.PathLike[str],
    arrays: Iterable[str],
    facts: Iterable[str],
) -> tuple[Any, dict[str, NDArray[Any]], dict[str, Any]]:
    """An estimator with the stored parameters, its arrays, and its facts.

    Raises
    ------
    ValueError
        If another class wrote the file, or the file is damaged or lacks an entry. Also
        for NaN or infinity in an array.
    """
    refused = f"{path}: expected a file that {kind.__name__}.save wrote"
    # what is damaged or edited may fail at any place of the readers
    try:
        with zipfile.ZipFile(Path(path)) as archive:
            found = {
                member.filename.removesuffix(".npy"): _array(archive, member)
                for member in archive.infolist()
            }
        content = json.loads(found.pop("json").tobytes().decode("utf-8"))
        parameters, known = dict(content["parameters"]), dict(content["facts"])
        # files of before have none
        for name, keys in dict(content.get("keys", {})).items():
            parameters[name] = dict(zip(keys, parameters[name], strict=True))
        of = content["kind"]
    except Exception as error:
        raise ValueError(f"{refused}, got {type(error).__name__}: {error}") from error
    if of != kind.__name__:
        raise ValueError(f"{refused}, got one of {of}")
    missing = [name for name in arrays if name not in found]
    missing += [name for name in facts if name not in known]
    if missing:
        raise ValueError(f"{refused}, got one without {', '.join(missing)}")
    for name, array in found.items():
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            count = array.size - np.count_nonzero(np.isfinite(array))
            raise ValueError(
                f"{refused}, got NaN or infinity in {count} of {array.size} {name}"
            )
    try:
        return kind(**parameters), found, known
    except TypeError as error:
        raise ValueError(f"{refused}, got one of another version: {error}") from error
