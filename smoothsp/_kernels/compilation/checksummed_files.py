"""Cache files of compiled code that begin with the SHA-256 of their content."""

import hashlib
import io
import os
import pickle
import warnings
from pickle import UnpicklingError
from typing import Any

from numba.core.caching import IndexDataCacheFile

# Raised when an intact file refers to names that no longer exist.
_OUTDATED = (AttributeError, EOFError, ImportError, TypeError, UnpicklingError)
_DIGEST = hashlib.sha256


class ChecksummedFiles(IndexDataCacheFile):
    """numba's index and data files, with a checksum and the key in each data file.

    numba does not detect damaged files: a flipped bit raises in every later process, or
    changes machine code. Here a damaged file is renamed and its kernel compiled again.
    numba also writes the index before the data, and two processes may write at once. So
    the index may refer to a file of another signature or of older sources; therefore
    the stored key is compared.
    """

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (self._source_stamp, key, data))

    def load(self, key: Any) -> Any:
        stored = super().load(key)
        if stored is not None and stored[:2] == (self._source_stamp, key):
            return stored[2]
        return None

    def _save_index(self, overloads: Any) -> None:
        # a separate pickle for the version: overloads of another numba may not unpickle
        version = self._dump(self._version)
        self._write(
            self._index_path, version + self._dump((self._source_stamp, overloads))
        )

    def _load_index(self) -> Any:
        content = io.BytesIO(self._read(self._index_path))
        try:
            if pickle.load(content) == self._version:
                stamp, overloads = pickle.load(content)
                if stamp == self._source_stamp:
                    return overloads
        except _OUTDATED:
            pass
        return {}

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), self._dump(data))

    def _load_data(self, name: str) -> Any:
        try:
            return pickle.loads(self._read(self._data_path(name)))
        except _OUTDATED:
            return None

    def _write(self, path: str, content: bytes) -> None:
        with self._open_for_write(path) as file:
            file.write(_DIGEST(content).digest() + content)

    def _read(self, path: str) -> bytes:
        """Return the content; empty if the file is missing or damaged."""
        try:
            with open(path, "rb") as file:
                digest, content = file.read(_DIGEST().digest_size), file.read()
                file_stat = os.fstat(file.fileno())
        except OSError:
            return b""
        if digest == _DIGEST(content).digest():
            return content
        rename_damaged_file(path, file_stat)
        return b""


def rename_damaged_file(path: str, damaged: os.stat_result) -> None:
    """Rename a damaged file and warn.

    Does nothing if another process has replaced the file meanwhile.
    """
    try:
        if not os.path.samestat(os.stat(path), damaged):
            return
        os.replace(path, f"{path}.damaged")
        location = f"moved to {path}.damaged"
    except FileNotFoundError:
        return
    except OSError as error:
        location = f"{path}, not moved: {error.strerror}"
    warnings.warn(
        f"smoothsp: a compiled kernel on disk is damaged ({location}): compiled again",
        stacklevel=2,
    )
