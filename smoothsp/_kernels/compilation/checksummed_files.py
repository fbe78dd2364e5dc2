"""Files of compiled code that begin with the hash of what follows."""

import hashlib
import io
import os
import pickle
import warnings
from pickle import UnpicklingError
from typing import Any

from numba.core.caching import IndexDataCacheFile

# What reading a sound file raises that names what there is no more.
_OUTDATED = (AttributeError, EOFError, ImportError, TypeError, UnpicklingError)
_DIGEST = hashlib.sha256


class ChecksummedFiles(IndexDataCacheFile):
    """Files that begin with the hash of what follows, and say what they hold.

    numba reads whatever a disk gives back: a flipped bit is an error in every process
    from then on, or other machine code. Here a damaged file is moved aside, and what it
    held is compiled again. numba also writes the index before the data, and two
    processes may write at once: the index may name a file that holds another signature,
    or code of older sources.
    """

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (self._source_stamp, key, data))

    def load(self, key: Any) -> Any:
        found = super().load(key)
        if found is not None and found[:2] == (self._source_stamp, key):
            return found[2]
        return None

    def _save_index(self, overloads: Any) -> None:
        # the version for itself: what another numba wrote may not be readable
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
        """What was written; nothing if there is no such file, or a damaged one."""
        try:
            with open(path, "rb") as file:
                digest, content = file.read(_DIGEST().digest_size), file.read()
                read = os.fstat(file.fileno())
        except OSError:
            return b""
        if digest == _DIGEST(content).digest():
            return content
        rename_damaged_file(path, read)
        return b""


def rename_damaged_file(path: str, damaged: os.stat_result) -> None:
    """Give a damaged file another name, and say so: no later process will.

    Unless another process was first, and maybe has written a sound one in its place.
    """
    try:
        if not os.path.samestat(os.stat(path), damaged):
            return
        os.replace(path, f"{path}.damaged")
        where = f"moved to {path}.damaged"
    except FileNotFoundError:
        return
    except OSError as error:
        where = f"{path}, not moved: {error.strerror}"
    warnings.warn(
        f"smoothsp: a compiled kernel on disk is damaged ({where}): compiled again",
        stacklevel=2,
    )
