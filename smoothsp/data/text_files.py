"""Text files: decompression, decoding and line splitting, with size limits."""

import codecs
import gzip
import io
import os
import re
import sys
import zlib
from pathlib import Path
from typing import BinaryIO

__all__ = [
    "as_path",
    "decode_lines",
    "decompress",
    "describe_bad_byte",
    "display_name",
    "find_lone_surrogate",
    "is_blank",
    "print_stderr",
    "read_content",
]

# UTF-32 comes first, since its little-endian mark begins with that of UTF-16.
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
GZIP_MAGIC = b"\x1f\x8b"
# Code points by which surrogateescape represents bytes that are not UTF-8.
INVALID_UTF_8 = re.compile("[\udc80-\udcff]")
BEYOND_ASCII = re.compile("[\x80-\ud7ff\ue000-\U0010ffff]")
SURROGATE = re.compile("[\ud800-\udfff]")
# First line of a spreadsheet export that names its separator.
SEPARATOR_LINE = re.compile('"?sep=."?', re.IGNORECASE)
LINE_END = re.compile(rb"[\r\n]")
# Size limits in bytes, far above real files: of a line, of a JSON line, of a text.
MAX_LINE_BYTES, MAX_JSON_LINE_BYTES, MAX_TEXT_BYTES = 2**20, 2**28, 2**30
# Real text compresses by less than this ratio. Above MIN_RATIO_BYTES, a higher ratio
# means a decompression bomb.
MAX_GZIP_RATIO, MIN_RATIO_BYTES = 200, 2**26


def read_content(source: str | Path, description: str, *, stdin: bool = False) -> bytes:
    """Read the bytes of a file, or with ``stdin`` also of standard input (``-``).

    ``description`` names the expected file in errors. Reading stops with an error as
    soon as a line exceeds the limit.
    """
    if stdin and str(source) == "-":
        return _read_stream(sys.stdin.buffer, display_name(source))
    path = as_path(source)
    # Only folders are refused: the shell's <(...) is a pipe, not a regular file.
    if not path.exists() or path.is_dir():
        state = "a folder" if path.is_dir() else "nothing"
        remedy = ". Give a file, or - for standard input" if stdin else ""
        raise FileNotFoundError(f"{path}: expected {description}, got {state}{remedy}")
    # Open without blocking: a named pipe without a writer reads as empty.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        os.set_blocking(file.fileno(), True)
        return _read_stream(file, str(path))


def _read_stream(file: BinaryIO, name: str) -> bytes:
    first_block = file.read(MAX_LINE_BYTES)
    max_line = (
        MAX_TEXT_BYTES
        if first_block.startswith(GZIP_MAGIC)
        else _choose_max_line_bytes(first_block)
    )
    return _read_bounded(first_block, file, name, max_line)


def _choose_max_line_bytes(first_block: bytes) -> int:
    is_json = first_block.lstrip().startswith((b"{", b"["))
    return MAX_JSON_LINE_BYTES if is_json else MAX_LINE_BYTES


def decompress(
    content: bytes, name: str | Path, max_line_bytes: int = MAX_TEXT_BYTES
) -> bytes:
    """Decompress the content of a file if gzip compressed it.

    Raises
    ------
    ValueError
        For a damaged file, a line above the limit, or a decompression bomb.
    """
    if not content.startswith(GZIP_MAGIC):
        return content
    file = gzip.GzipFile(fileobj=io.BytesIO(content))
    max_bytes = min(MAX_TEXT_BYTES, max(MIN_RATIO_BYTES, MAX_GZIP_RATIO * len(content)))
    try:
        begin = file.read(MAX_LINE_BYTES)
        max_line = min(max_line_bytes, _choose_max_line_bytes(begin))
        return _read_bounded(begin, file, name, max_line, max_bytes)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{name}: expected a whole gzip file, got {error}") from error


def _read_bounded(
    first_block: bytes,
    file: BinaryIO | gzip.GzipFile,
    name: str | Path,
    max_line_bytes: int,
    max_bytes: int = MAX_TEXT_BYTES,
) -> bytes:
    """Return ``first_block`` and the rest of a file, in which no line is too long."""
    blocks, size, line, length, block = [first_block], 0, 1, 0, first_block
    while block:
        size += len(block)
        line_end = LINE_END.search(block)
        length += line_end.start() if line_end else len(block)
        if length > max_line_bytes:
            raise ValueError(
                f"{name}, line {line}: expected at most {max_line_bytes:,} bytes in a"
                " line, got more. Is it another kind of file?"
            )
        if line_end:
            line += block.count(b"\n") or block.count(b"\r")
            # The last line of the block may continue in the next one.
            length = len(block) - 1 - max(block.rfind(b"\n"), block.rfind(b"\r"))
        if size > max_bytes:
            raise ValueError(
                f"{name}: expected at most {max_bytes:,} bytes of text, got more. Split"
                " the file"
            )
        block = file.read(MAX_LINE_BYTES)
        blocks.append(block)
    return b"".join(blocks)


def as_path(value: object, argument: str = "path") -> Path:
    """Return a ``Path``; ``TypeError`` names the argument."""
    if not isinstance(value, str | os.PathLike) or isinstance(os.fspath(value), bytes):
        raise TypeError(f"{argument}: expected a path, got {type(value).__name__}")
    return Path(value)


def find_lone_surrogate(text: str) -> str | None:
    """Return the first lone surrogate of a text, or None; files cannot hold them."""
    match = SURROGATE.search(text)
    return match and match[0]


def print_stderr(line: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(f"{line}\n")


def display_name(source: str | Path) -> str:
    """Return the name of a source in messages: a path, or standard input."""
    return "standard input" if str(source) == "-" else str(source)


def decode_lines(
    content: bytes, name: str | Path, encoding: str | None = None, strict: bool = True
) -> list[str]:
    """Decode a text, decompress it if needed, and split it into lines.

    Without ``encoding``, a byte order mark decides between UTF-8, UTF-16 and UTF-32.
    Without a mark the text is UTF-8, or latin-1 if most bytes above 127 are not UTF-8.
    Single invalid bytes are an error; with ``strict=False`` they become surrogates,
    which ``describe_bad_byte`` finds.
    """
    content = decompress(content, name)
    if encoding is None:
        encoding = next(
            (x for mark, x in BYTE_ORDER_MARKS.items() if content.startswith(mark)),
            None,
        )
    if encoding is not None:
        try:
            text = content.decode(encoding).removeprefix("\ufeff")
        except UnicodeError as error:
            raise ValueError(
                f"{name}: expected text in {encoding}, got {error}"
            ) from error
    else:
        text = _decode_utf_8_or_latin_1(content, name)
    # str.splitlines would also split at U+2028 and others, which words may contain.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if str(name).removesuffix(".gz").endswith(".csv") and SEPARATOR_LINE.fullmatch(
        lines[0]
    ):
        lines[0] = ""
    if "\0" in text:
        number = next(n for n, line in enumerate(lines, 1) if "\0" in line)
        raise ValueError(
            f"{name}, line {number}: expected text, got the byte 0x00. Is it another"
            " kind of file?"
        )
    if strict and INVALID_UTF_8.search(text):
        number, wrong = next(
            (n, bad)
            for n, line in enumerate(lines, 1)
            if (bad := describe_bad_byte(line))
        )
        raise ValueError(f"{name}, line {number}: {wrong}")
    return lines


def _decode_utf_8_or_latin_1(content: bytes, name: str | Path) -> str:
    text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    num_invalid = len(INVALID_UTF_8.findall(text))
    # Text in latin-1 rarely has valid UTF-8 sequences, so the majority decides.
    if len(BEYOND_ASCII.findall(text)) >= num_invalid:
        return text
    try:
        # cp1252 is latin-1 with the quotes and dashes of Windows.
        text = content.decode("cp1252")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    print_stderr(f"{name}: not UTF-8, read as latin-1")
    return text


def describe_bad_byte(line: str) -> str | None:
    """Return the encoding error of a line, or None."""
    if match := INVALID_UTF_8.search(line):
        byte = ord(match[0]) - 0xDC00
        return f"expected UTF-8, got the byte 0x{byte:02x}. Save the file as UTF-8"
    return None


def is_blank(line: str) -> bool:
    """Return whether a line has only blanks and tabs, and so ends a sentence.

    Other white space, such as U+00A0, belongs to words in all readers.
    """
    return not line.strip(" \t")
