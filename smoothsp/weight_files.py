"""Validation of safetensors files before a network loads its weights from them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from smoothsp.json_files import is_file_name, read_json

__all__ = ["WEIGHTS", "require_finite_weight", "require_shapes", "require_weights"]
__all__ += ["build_on_meta", "list_weight_files"]

WEIGHTS = "model.safetensors"
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def list_weight_files(folder: Path) -> list[Path]:
    """Return ``model.safetensors``, or the files in ``model.safetensors.index.json``.

    Reads the header of every part.

    Raises
    ------
    ValueError
        If a file is missing, outside the folder, or not in safetensors format. The
        message names the file.
    """
    index = folder / f"{WEIGHTS}.index.json"
    names: list[Any] = [WEIGHTS]
    if not (folder / WEIGHTS).is_file() and index.is_file():
        listed = read_json(index).get("weight_map")
        if not listed or not isinstance(listed, dict):
            raise ValueError(
                f"{index}: weight_map: expected names of files by tensor, got"
                f" {str(listed)[:60]}"
            )
        names = list(listed.values())
        for name in names:
            if not isinstance(name, str) or not is_file_name(name):
                raise ValueError(
                    f"{index}: weight_map: expected names of files in the folder, got"
                    f" {ascii(name)[:60]}"
                )
    paths = [folder / name for name in sorted(set(names))]
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{folder}: expected a file {path.name!a}, got none")
        _tensor_shapes(path)
    return paths


def require_shapes(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise unless tensors of a folder have these shapes; read headers only."""
    paths = list_weight_files(folder)
    actual: dict[str, tuple[int, ...]] = {}
    for path in paths:
        actual |= _tensor_shapes(path)
    for key, shape in shapes.items():
        if actual.get(key) != shape:
            raise ValueError(
                f"{paths[0]}: expected {shape} for {key} as in config.json, got"
                f" {actual.get(key, 'none')}"
            )


def require_weights(folder: Path, expected: Mapping[str, Tensor]) -> None:
    """Raise unless a folder has exactly these tensors, with these shapes, all finite.

    The expected ones may be on the device ``meta``. Shapes are compared before any
    tensor is read; tensors are read one by one.

    Raises
    ------
    ValueError
        If a tensor is missing, unexpected, of another shape or not finite. The message
        names the tensor.
    """
    require_shapes(folder, {key: tuple(x.shape) for key, x in expected.items()})
    for path in list_weight_files(folder):
        with _open_safetensors(path) as opened:
            for key in opened.keys():  # noqa: SIM118
                if key not in expected:
                    raise ValueError(
                        f"{path}: expected {len(expected)} tensors as in config.json,"
                        f" got {key[:60]}, too"
                    )
                value = opened.get_tensor(key)
                are_floats = expected[key].is_floating_point() and value.dtype in FLOATS
                dtype = value.dtype if are_floats else expected[key].dtype
                require_finite_weight(path, key, value, dtype)


def build_on_meta(make: Callable[[], nn.Module], location: str) -> nn.Module:
    """Build a module on the device ``meta``, which allocates no memory.

    ``location`` is the file and field that describe the module, for messages.
    """
    try:
        with torch.device("meta"):
            return make()
    # transformers raises exceptions of any type for invalid sizes
    except Exception as error:
        message = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{location}: expected an encoder that transformers builds, got"
            f" {type(error).__name__}: {message}"
        ) from error


def require_finite_weight(
    path: Path, name: str, value: Tensor, dtype: torch.dtype
) -> None:
    """Raise unless a tensor can be converted to ``dtype`` with finite values."""
    are_floats = dtype in FLOATS and value.dtype in FLOATS
    if not are_floats and value.dtype != dtype:
        raise ValueError(f"{path}: expected {dtype} for {name}, got {value.dtype}")
    # test after the conversion: float64 values may overflow in dtype
    converted = value.to(dtype)
    if are_floats and not bool(converted.isfinite().all()):
        count = int((~converted.isfinite()).sum())
        raise ValueError(
            f"{path}: expected numbers, got NaN or infinity in {count} of "
            f"{value.numel()} places of {name}; the training diverged, or the file "
            "was edited"
        )


def _tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a file; read the header only."""
    with _open_safetensors(path) as opened:
        names = opened.keys()
        return {name: tuple(opened.get_slice(name).get_shape()) for name in names}


@contextmanager
def _open_safetensors(path: Path) -> Iterator[Any]:
    """Context manager: open a file of tensors; errors name the file."""
    try:
        with safe_open(path, "pt") as opened:
            yield opened
    # LookupError, RuntimeError: dtypes unknown to PyTorch, shapes of 2^64 numbers
    except (LookupError, OSError, RuntimeError, SafetensorError) as error:
        raise ValueError(f"{path}: expected safetensors, got {error}") from error
