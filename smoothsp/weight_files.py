"""Files of weights in a folder of transformers, checked before a network takes them."""

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
    """``model.safetensors``, or the parts that ``model.safetensors.index.json`` names.

    Reads the header of every part.

    Raises
    ------
    ValueError
        If a file is missing, outside of the folder or no safetensors: names it.
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
    found = [folder / name for name in sorted(set(names))]
    for path in found:
        if not path.is_file():
            raise ValueError(f"{folder}: expected a file {path.name!a}, got none")
        _shapes(path)
    return found


def require_shapes(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise unless tensors of a folder have these shapes; reads headers only."""
    paths = list_weight_files(folder)
    found: dict[str, tuple[int, ...]] = {}
    for path in paths:
        found |= _shapes(path)
    for key, shape in shapes.items():
        if found.get(key) != shape:
            raise ValueError(
                f"{paths[0]}: expected {shape} for {key} as in config.json, got"
                f" {found.get(key, 'none')}"
            )


def require_weights(folder: Path, expected: Mapping[str, Tensor]) -> None:
    """Raise unless a folder holds these tensors, in these shapes, of finite numbers.

    The expected ones may be on the device ``meta``. Shapes are compared before any
    tensor is read; tensors are read one by one.

    Raises
    ------
    ValueError
        If tensors are missing, too many, of wrong shapes or no numbers: names them.
    """
    require_shapes(folder, {key: tuple(x.shape) for key, x in expected.items()})
    for path in list_weight_files(folder):
        with _opened(path) as opened:
            for key in opened.keys():  # noqa: SIM118
                if key not in expected:
                    raise ValueError(
                        f"{path}: expected {len(expected)} tensors as in config.json,"
                        f" got {key[:60]}, too"
                    )
                value = opened.get_tensor(key)
                floats = expected[key].is_floating_point() and value.dtype in FLOATS
                dtype = value.dtype if floats else expected[key].dtype
                require_finite_weight(path, key, value, dtype)


def build_on_meta(make: Callable[[], nn.Module], location: str) -> nn.Module:
    """Return what ``make`` builds, without memory; ``place`` names its description."""
    try:
        with torch.device("meta"):
            return make()
    # transformers raises errors of any kind for wrong numbers
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{location}: expected an encoder that transformers builds, got"
            f" {type(error).__name__}: {said}"
        ) from error


def require_finite_weight(
    path: Path, name: str, value: Tensor, dtype: torch.dtype
) -> None:
    """Raise unless a tensor can be a weight of this dtype, and is finite in it."""
    floats = dtype in FLOATS and value.dtype in FLOATS
    if not floats and value.dtype != dtype:
        raise ValueError(f"{path}: expected {dtype} for {name}, got {value.dtype}")
    # as it will be: what float64 has room for may be too large
    here = value.to(dtype)
    if floats and not bool(here.isfinite().all()):
        count = int((~here.isfinite()).sum())
        raise ValueError(
            f"{path}: expected numbers, got NaN or infinity in {count} of "
            f"{value.numel()} places of {name}; the training diverged, or the file "
            "was edited"
        )


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    with _opened(path) as opened:
        names = opened.keys()
        return {name: tuple(opened.get_slice(name).get_shape()) for name in names}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The tensors of a file, with its name in what goes wrong."""
    try:
        with safe_open(path, "pt") as opened:
            yield opened
    # the others: dtypes that PyTorch lacks, and shapes of 2^64 numbers
    except (LookupError, OSError, RuntimeError, SafetensorError) as error:
        raise ValueError(f"{path}: expected safetensors, got {error}") from error
