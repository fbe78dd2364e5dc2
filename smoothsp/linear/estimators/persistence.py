"""Save and load of estimators as npz files with JSON: loading runs no code."""

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

# Parameter that is not saved, since it may be any function.
_UNSAVED_PARAMETER = "callback"


def save(
    estimator: Any,
    path: str | os.PathLike[str],
    arrays: dict[str, NDArray[Any]],
    metadata: dict[str, Any],
) -> None:
    """Write parameters, arrays and metadata to a file, atomically."""
    parameters = estimator.get_params(deep=False)
    parameters.pop(_UNSAVED_PARAMETER, None)
    # JSON keys are strings: save keys of dicts as a separate list
    keys = {}
    for name, value in parameters.items():
        if isinstance(value, dict):
            keys[name] = [_to_python(key) for key in value]
            parameters[name] = [_to_python(x) for x in value.values()]
        else:
            parameters[name] = _to_python(value)
    content = {"kind": type(estimator).__name__, "parameters": parameters}
    try:
        text = json.dumps({**content, "keys": keys, "facts": metadata})
    except TypeError as error:
        raise TypeError(
            f"save: expected parameters of numbers, strings, lists and dicts: {error}"
        ) from error
    json_bytes = np.frombuffer(text.encode("utf-8"), dtype=np.uint8)
    named: dict[str, Any] = {"json": json_bytes, **arrays}
    file = io.BytesIO()
    np.savez(file, **named)
    whole_files.write(path, file.getvalue())


def _to_python(value: Any) -> Any:
    """Convert numpy arrays and scalars to lists and Python numbers."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Read an uncompressed npy member; raise ValueError if its size is inconsistent.

    numpy would allocate the shape of the header first, even if it is damaged.
    """
    # stored members only: their size is known before anything is allocated
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{member.filename} is compressed")
    content = io.BytesIO(archive.read(member))
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    shape, _, dtype = read_header[np.lib.format.read_magic(content)](content)
    num_bytes = member.file_size - content.tell()
    # object arrays contain pickles, which run code
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != num_bytes:
        raise ValueError(f"{member.filename} of {num_bytes} bytes is {shape} {dtype}")
    content.seek(0)
    return np.asarray(np.lib.format.read_array(content, allow_pickle=False))


def load(
    estimator_class: type,
    path: str | os.PathLike[str],
    arrays: Iterable[str],
    metadata_keys: Iterable[str],
) -> tuple[Any, dict[str, NDArray[Any]], dict[str, Any]]:
    """Return an estimator with the saved parameters, its arrays and its metadata.

    Raises
    ------
    ValueError
        If another class wrote the file, or the file is damaged or lacks an entry. Also
        for NaN or infinity in an array.
    """
    error_prefix = f"{path}: expected a file that {estimator_class.__name__}.save wrote"
    # a damaged or edited file can raise any error in the readers
    try:
        with zipfile.ZipFile(Path(path)) as archive:
            stored_arrays = {
                member.filename.removesuffix(".npy"): _read_array(archive, member)
                for member in archive.infolist()
            }
        content = json.loads(stored_arrays.pop("json").tobytes().decode("utf-8"))
        parameters, metadata = dict(content["parameters"]), dict(content["facts"])
        # older files have no keys of dicts
        for name, keys in dict(content.get("keys", {})).items():
            parameters[name] = dict(zip(keys, parameters[name], strict=True))
        class_name = content["kind"]
    except Exception as error:
        raise ValueError(
            f"{error_prefix}, got {type(error).__name__}: {error}"
        ) from error
    if class_name != estimator_class.__name__:
        raise ValueError(f"{error_prefix}, got one of {class_name}")
    missing = [name for name in arrays if name not in stored_arrays]
    missing += [name for name in metadata_keys if name not in metadata]
    if missing:
        raise ValueError(f"{error_prefix}, got one without {', '.join(missing)}")
    for name, array in stored_arrays.items():
        # NaN or infinite weights would decode to arbitrary tags without an error
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            count = array.size - np.count_nonzero(np.isfinite(array))
            raise ValueError(
                f"{error_prefix}, got NaN or infinity in {count} of {array.size} {name}"
            )
    try:
        return estimator_class(**parameters), stored_arrays, metadata
    except TypeError as error:
        raise ValueError(
            f"{error_prefix}, got one of another version: {error}"
        ) from error
