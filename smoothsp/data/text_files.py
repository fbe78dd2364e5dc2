"""Text that people have: compressed or not, in UTF-8 or not, with any line ends."""

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

# That of UTF-32 comes first, since one of UTF-16 is its beginning.
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
GZIP = b"\x1f\x8b"
# What surrogateescape makes of a byte that is no UTF-8, and all else beyond ASCII.
NO_UTF_8 = re.compile("[\udc80-\udcff]")
BEYOND_ASCII = re.compile("[\x80-\ud7ff\ue000-\U0010ffff]")
HALF_OF_PAIR = re.compile("[\ud800-\udfff]")
# First line of a spreadsheet that names the separator of its columns.
SEPARATOR = re.compile('"?sep=."?', re.IGNORECASE)
LINE_END = re.compile(rb"[\r\n]")
# Bytes of a line, far above those of sentences, of a line of JSON, and of a whole text.
LONGEST_LINE, LONGEST_JSON, LARGEST = 2**20, 2**28, 2**30
# Text shrinks by less: what shrinks more, above this size, is made to fill the memory.
SHRINKS, SMALL = 200, 2**26


def read_content(source: str | Path, what: str, *, stdin: bool = False) -> bytes:
    """Bytes of a file, or with ``stdin`` also of standard input (``-``).

    A line that is too long is an error as soon as so much of it is read.
    """
    if stdin and str(source) == "-":
        return _read(sys.stdin.buffer, display_name(source))
    path = as_path(source)
    # what a shell's <(...) makes is no regular file
    if not path.exists() or path.is_dir():
        found = "a folder" if path.is_dir() else "nothing"
        remedy = ". Give a file, or - for standard input" if stdin else ""
        raise FileNotFoundError(f"{path}: expected {what}, got {found}{remedy}")
    # a named pipe that nobody writes to is at its end, and not waited for
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        os.set_blocking(file.fileno(), True)
        return _read(file, str(path))


def _read(file: BinaryIO, name: str) -> bytes:
    begin = file.read(LONGEST_LINE)
    longest = LARGEST if begin.startswith(GZIP) else _longest_line(begin)
    return _bounded(begin, file, name, longest)


def _longest_line(begin: bytes) -> int:
    json = begin.lstrip().startswith((b"{", b"["))
    return LONGEST_JSON if json else LONGEST_LINE


def decompress(content: bytes, name: str | Path, longest_line: int = LARGEST) -> bytes:
    """Content of a file, which gzip may have compressed.

    Raises
    ------
    ValueError
        For a file that is damaged, has a longer line or fills the memory.
    """
    if not content.startswith(GZIP):
        return content
    file = gzip.GzipFile(fileobj=io.BytesIO(content))
    most = min(LARGEST, max(SMALL, SHRINKS * len(content)))
    try:
        begin = file.read(LONGEST_LINE)
        longest = min(longest_line, _longest_line(begin))
        return _bounded(begin, file, name, longest, most)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{name}: expected a whole gzip file, got {error}") from error


def _bounded(
    begin: bytes,
    file: BinaryIO | gzip.GzipFile,
    name: str | Path,
    longest_line: int,
    most: int = LARGEST,
) -> bytes:
    """``begin`` and the rest of a file."""
    blocks, size, line, length, block = [begin], 0, 1, 0, begin
    while block:
        size += len(block)
        first = LINE_END.search(block)
        length += first.start() if first else len(block)
        if length > longest_line:
            raise ValueError(
                f"{name}, line {line}: expected at most {longest_line:,} bytes in a"
                " line, got more. Is it another kind of file?"
            )
        if first:
            line += block.count(b"\n") or block.count(b"\r")
            length = len(block) - 1 - max(block.rfind(b"\n"), block.rfind(b"\r"))
        if size > most:
            raise ValueError(
                f"{name}: expected at most {most:,} bytes of text, got more. Split the"
                " file"
            )
        block = file.read(LONGEST_LINE)
        blocks.append(block)
    return b"".join(blocks)


def as_path(given: object, argument: str = "path") -> Path:
    """Return a path that was given; ``TypeError`` names the argument."""
    if not isinstance(given, str | os.PathLike) or isinstance(os.fspath(given), bytes):
        raise TypeError(f"{argument}: expected a path, got {type(given).__name__}")
    return Path(given)


def find_lone_surrogate(text: str) -> str | None:
    """Return the first half of a surrogate pair in a text, which no file can hold."""
    found = HALF_OF_PAIR.search(text)
    return found and found[0]


def print_stderr(line: str) -> None:
    """Write a line on standard error."""
    sys.stderr.write(f"{line}\n")


def display_name(source: str | Path) -> str:
    """Name of a file, or of standard input."""
    return "standard input" if str(source) == "-" else str(source)


def decode_lines(
    content: bytes, name: str | Path, encoding: str | None = None, strict: bool = True
) -> list[str]:
    """Lines of a text, which gzip may have compressed.

    Without an encoding the text is UTF-8, UTF-16 or UTF-32 if it begins with a byte
    order mark of it, or else latin-1, with a message. Bytes that are no UTF-8 in a text
    that otherwise is are an error; if not ``strict`` they are left as surrogates, which
    ``bad_byte`` finds.
    """
    content = decompress(content, name)
    if encoding is None:
        encoding = next(
            (x for mark, x in MARKS.items() if content.startswith(mark)), None
        )
    if encoding is not None:
        try:
            text = content.decode(encoding).removeprefix("\ufeff")
        except UnicodeError as error:
            raise ValueError(
                f"{name}: expected text in {encoding}, got {error}"
            ) from error
    else:
        text = _utf_8(content, name)
    # Not str.splitlines: words may hold U+2028 and its like.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if str(name).removesuffix(".gz").endswith(".csv") and SEPARATOR.fullmatch(lines[0]):
        lines[0] = ""
    if "\0" in text:
        number = next(n for n, line in enumerate(lines, 1) if "\0" in line)
        raise ValueError(
            f"{name}, line {number}: expected text, got the byte 0x00. Is it another"
            " kind of file?"
        )
    if strict and NO_UTF_8.search(text):
        number, wrong = next(
            (n, bad)
            for n, line in enumerate(lines, 1)
            if (bad := describe_bad_byte(line))
        )
        raise ValueError(f"{name}, line {number}: {wrong}")
    return lines


def _utf_8(content: bytes, name: str | Path) -> str:
    text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    wrong = len(NO_UTF_8.findall(text))
    # letters of latin-1 seldom look like UTF-8
    if len(BEYOND_ASCII.findall(text)) >= wrong:
        return text
    try:
        # latin-1 with the quotes and dashes that Windows adds
        text = content.decode("cp1252")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    print_stderr(f"{name}: not UTF-8, read as latin-1")
    return text


def describe_bad_byte(line: str) -> str | None:
    """Fault in the encoding of a line, if there is one."""
    if wrong := NO_UTF_8.search(line):
        byte = ord(wrong[0]) - 0xDC00
        return f"expected UTF-8, got the byte 0x{byte:02x}. Save the file as UTF-8"
    return None


def is_blank(line: str) -> bool:
    """Return whether a line ends a sentence: only blanks and tabs are nothing.

    All other white space, such as U+00A0, is a letter of a word in every reader.
    """
    return not line.strip(" \t")
