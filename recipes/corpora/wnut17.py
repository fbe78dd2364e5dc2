"""The WNUT-17 corpus of emerging entities, downloaded once and checked.

Noisy English text from social media, six types of entity, 3,394 sentences to train on:
L. Derczynski, E. Nichols, M. van Erp, N. Limsopatham, "Results of the WNUT2017 Shared
Task on Novel and Emerging Entity Recognition", W-NUT 2017. The authors publish it
under CC-BY 4.0 at github.com/leondz/emerging_entities_17; whoever passes the files on
names them. The files are used as they are there.
"""

import hashlib
import http.client
import os
import secrets
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

COMMIT = "e52a2d2a71ac1a051ca2d532eef28653c5c02603"
BASE_URL = f"https://raw.githubusercontent.com/leondz/emerging_entities_17/{COMMIT}"
SHA256 = {
    "wnut17train.conll": (
        "731820e13f71af324c6b55a1575ec2ce59fbaa2a0806f8f0400b98d56cd6a7a5"
    ),
    "emerging.dev.conll": (
        "e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8"
    ),
    "emerging.test.annotated": (
        "2aa79b764e56ec9264a1b30fdd9b70195bd00ff400b62edd8f399d5f13c178f0"
    ),
}
CHUNK = 1 << 16


def cache_folder() -> Path:
    """``smoothsp/wnut17`` in ``XDG_CACHE_HOME``, or else in ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "smoothsp" / "wnut17"


def fetch(
    folder: str | Path | None = None,
    base_url: str = BASE_URL,
    timeout: float = 30.0,
) -> Path:
    """The folder with the three files, each downloaded unless it is there already.

    ``folder`` defaults to ``cache_folder()``; ``timeout`` is how many seconds the
    server may be silent. A file appears under its name only when it is whole and right;
    a file that is there and wrong is reported, not replaced.
    """
    folder = cache_folder() if folder is None else Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, expected in SHA256.items():
        path = folder / name
        if not path.exists():
            _download(f"{base_url.rstrip('/')}/{name}", path, expected, timeout)
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != expected:
            raise ValueError(
                f"{path}: expected SHA-256 {expected}, got {digest}. Move the file away"
                " to have it downloaded, or train on the folder as it is: --data"
                f" {folder}"
            )
    return folder


def _download(url: str, path: Path, expected: str, timeout: float) -> None:
    # In the same folder, so that the last step is a rename, which is atomic.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    digest = hashlib.sha256()
    try:
        with part.open("xb") as sink:
            for block in _download_blocks(url, path, timeout):
                sink.write(block)
                digest.update(block)
        if digest.hexdigest() != expected:
            raise ValueError(
                f"{url}: expected SHA-256 {expected}, got {digest.hexdigest()}; the"
                " download was not kept. Try again; if it stays so, something on the"
                f" way (a proxy?) changes the file: put a right copy at {path}"
            )
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _download_blocks(url: str, path: Path, timeout: float) -> Iterator[bytes]:
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response:
            size = response.headers["Content-Length"]
            total = int(size) if size else None
            received = 0
            # None: no bar where standard error is not a terminal.
            with tqdm(
                desc=path.name, total=total, unit="B", unit_scale=True, disable=None
            ) as bar:
                while block := response.read(CHUNK):
                    received += len(block)
                    bar.update(len(block))
                    yield block
        # A read of a given size ends quietly where the connection does.
        if total is not None and received < total:
            raise ConnectionError(f"got {received} of {total} bytes")
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise ConnectionError(
            f"{url}: expected to download {path.name}, got {str(error) or repr(error)}."
            " Try again, or on a machine with a network download"
            f" {', '.join(SHA256)} from {BASE_URL} and put them into {path.parent}"
        ) from error
