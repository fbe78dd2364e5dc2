"""Data sets of ``multiclass_svm.py``: LIBSVM files, MNIST, digits."""

import codecs
import io
import math
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.datasets import load_digits, load_svmlight_file, load_svmlight_files

from smoothsp.data.text_files import decompress

IDX = {"images-idx3-ubyte": 3, "labels-idx1-ubyte": 1}
# Of a set without test samples, this share is held out.
TEST_FRACTION = 0.2


@dataclass(frozen=True)
class Samples:
    """Samples to train on and to test with; the matrices are CSR."""

    name: str
    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray

    @property
    def classes(self) -> int:
        return len(np.unique(self.y))

    @cached_property
    def checksum(self) -> str:
        parts = [self.y, self.y_test]
        for X in (self.X, self.X_test):
            parts += [X.data, X.indices, X.indptr]
        value = 0
        for part in parts:
            value = zlib.crc32(np.ascontiguousarray(part), value)
        return f"{value:08x}"

    def score_key(self, log2_c: int, tolerance: float) -> str:
        """Names the fit to one tolerance."""
        return f"{self.name} C=2^{log2_c} tolerance={tolerance:.15g}"

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.classes} classes, {self.X.shape[1]:,} features,"
            f" {len(self.y):,} samples to train on, {len(self.y_test):,} to test with"
        )


def load(path: Path) -> Samples:
    """A LIBSVM file with the test file beside it, or a folder of MNIST's idx files."""
    if path.is_dir():
        return mnist(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"data: expected a LIBSVM file or a folder of idx files, found no {path}"
        )
    name = path.name.split(".")[0]
    test = test_file(path)
    if test is None:
        samples = hold_out(name, *read(path))
    else:
        samples = Samples(name, *read(path, test))
    if samples.classes < 2:
        raise ValueError(
            f"data: expected at least two classes to train on, got {samples.classes} in"
            f" {len(samples.y)} samples of {path}"
        )
    return samples


def read(*paths: Path) -> list[Any]:
    """Matrices and labels of files that share their features."""
    contents = [_read_content(path) for path in paths]
    try:
        arrays = load_svmlight_files([io.BytesIO(content) for content in contents])
    except (ValueError, OverflowError) as error:
        location, problem = str(paths[0]), error
        for path, content in zip(paths, contents, strict=True):
            if fault := _first_fault(content):
                location, problem = f"{path}, line {fault[0]}", fault[1]
                break
        raise ValueError(
            f"{location}: expected a label and index:value pairs, as LIBSVM writes"
            f" them, got {problem}"
        ) from error
    for path, content, X, y in zip(
        paths, contents, arrays[::2], arrays[1::2], strict=True
    ):
        if X.shape[0] == 0:
            raise ValueError(f"{path}: expected samples, found none")
        finite = np.ones(len(y), dtype=bool)
        finite[
            np.repeat(np.arange(len(y)), np.diff(X.indptr))[~np.isfinite(X.data)]
        ] = 0
        for expected, is_valid in (
            ("finite numbers", finite & np.isfinite(y)),
            ("whole numbers for classes", y == y.round()),
        ):
            if not is_valid.all():
                number, line = _sample_lines(content)[int(np.argmin(is_valid))]
                raise ValueError(
                    f"{path}, line {number}: expected {expected}, got {line[:60]!r}"
                )
    return arrays


def _read_content(path: Path) -> bytes:
    """A file without a byte order mark, uncompressed, its lines as Unix ends them."""
    content = decompress(path.read_bytes(), path)
    content = content.removeprefix(codecs.BOM_UTF8)
    return content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _sample_lines(content: bytes) -> list[tuple[int, str]]:
    """The line of each sample: neither comments nor blank."""
    lines = enumerate(content.decode(errors="replace").split("\n"), start=1)
    return [(n, line) for n, line in lines if line.partition("#")[0].strip()]


def _first_fault(content: bytes) -> tuple[int, str] | None:
    """The first line that cannot be read, and why."""
    for number, line in _sample_lines(content):
        try:
            load_svmlight_file(io.BytesIO(line.encode()))
        except (ValueError, OverflowError) as error:
            return number, f"{line.strip()[:60]!r} ({error})"
    return None


def test_file(path: Path) -> Path | None:
    """``usps.t.gz`` of ``usps.gz``, or ``news.test`` of ``news.train``."""
    end = ".gz" if path.suffix == ".gz" else ""
    stem = path.name.removesuffix(end)
    names = [f"{stem}.t{end}"]
    if stem.endswith(".train"):
        names.append(f"{stem.removesuffix('train')}test{end}")
    return next((p for n in names if (p := path.with_name(n)).is_file()), None)


def hold_out(name: str, X: Any, y: np.ndarray) -> Samples:
    """A fixed fifth of the samples becomes the test set."""
    order = np.random.default_rng(0).permutation(len(y))
    size = max(1, round(TEST_FRACTION * len(y)))
    test, train = np.sort(order[:size]), np.sort(order[size:])
    return Samples(name, X[train], y[train], X[test], y[test])


def mnist(folder: Path) -> Samples:
    """Grey values over 255, as in the LIBSVM version."""
    parts = []
    for part in ("train", "t10k"):
        images, labels = (read_idx(folder, f"{part}-{kind}", IDX[kind]) for kind in IDX)
        if len(images) != len(labels):
            raise ValueError(
                f"data: expected a label for each image of {part} in {folder}, got"
                f" {len(images)} images and {len(labels)} labels"
            )
        flat = images.reshape(len(images), -1) / 255
        parts += [sparse.csr_matrix(flat), labels]
    sizes = [X.shape[1] for X in parts[::2]]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"data: expected images of one size in {folder}, got {sizes[0]} pixels in"
            f" train and {sizes[1]} in t10k"
        )
    return Samples("mnist", *parts)


def read_idx(folder: Path, name: str, axes: int) -> np.ndarray:
    """Bytes of an idx file: 2 zeros, type, number of axes, their sizes, values."""
    head = b"\0\0\x08" + bytes([axes])
    begin = len(head) + 4 * axes
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            content = decompress(path.read_bytes(), path)
            is_idx = content[: len(head)] == head and len(content) >= begin
            sizes = np.frombuffer(content[len(head) : begin], ">u4") if is_idx else [0]
            shape = [int(size) for size in sizes]
            if not is_idx or len(content) - begin != math.prod(shape):
                raise ValueError(
                    f"data: expected an idx file of bytes with {axes} axes, got {path}."
                    " Was it copied whole?"
                )
            if not math.prod(shape):
                raise ValueError(f"data: expected samples, found none in {path}")
            return np.frombuffer(content, np.uint8, offset=begin).reshape(shape)
    raise FileNotFoundError(
        f"data: expected MNIST's idx files, found no {name} or {name}.gz in {folder}"
    )


def digits() -> Samples:
    """8 x 8 images that come with scikit-learn."""
    X, y = load_digits(return_X_y=True)
    return hold_out("digits", sparse.csr_matrix(X / 16), y)
