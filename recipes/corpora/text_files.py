"""Text that people have: compressed or not, in UTF-8 or not, with any line ends."""

import codecs
import gzip
import re
import sys
import zlib
from pathlib import Path

UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# What surrogateescape makes of a byte that is no UTF-8, and all else beyond ASCII.
NO_UTF_8 = re.compile("[\udc80-\udcff]")
BEYOND_ASCII = re.compile("[\x80-\ud7ff\ue000-\U0010ffff]")


def content_of(source: str | Path, what: str, option: str | None = None) -> bytes:
    """The bytes of a file, or with an ``option`` also of standard input (``-``)."""
    if option and str(source) == "-":
        return sys.stdin.buffer.read()
    path = Path(source)
    # what a shell's <(...) makes is no regular file
    if not path.exists() or path.is_dir():
        found = "a folder" if path.is_dir() else "nothing"
        if option is None:
            raise FileNotFoundError(f"{path}: expected {what}, got {found}")
        raise FileNotFoundError(
            f"{option}: expected {what}, got {found} at {path}. Give a file, or - for"
            " standard input"
        )
    return path.read_bytes()


def name_of(source: str | Path) -> str:
    return "standard input" if str(source) == "-" else str(source)


def lines_of(
    content: bytes, name: str | Path, encoding: str | None = None, strict: bool = True
) -> list[str]:
    """Lines of a text, which gzip may have compressed.

    Without an encoding the text is UTF-8, UTF-16 if it begins with a byte order mark of
    it, or else latin-1, with a message. Bytes that are no UTF-8 in a text that
    otherwise is are an error; if not ``strict`` they are left as surrogates, which
    ``bad_byte`` finds.
    """
    if content.startswith(b"\x1f\x8b"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(
                f"{name}: expected a whole gzip file, got {error}"
            ) from error
    if encoding is None and content.startswith(UTF_16):
        encoding = "utf-16"
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
    if strict and NO_UTF_8.search(text):
        number, wrong = next(
            (n, bad) for n, line in enumerate(lines, 1) if (bad := bad_byte(line))
        )
        raise ValueError(f"{name}, line {number}: {wrong}")
    return lines


def _utf_8(content: bytes, name: str | Path) -> str:
    if b"\0" in content:
        number = content[: content.index(b"\0")].count(b"\n") + 1
        raise ValueError(
            f"{name}, line {number}: expected text, got the byte 0x00. Is it another"
            " kind of file?"
        )
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
    print(f"{name}: not UTF-8, read as latin-1", file=sys.stderr)
    return text


def bad_byte(line: str) -> str | None:
    """What is wrong with the encoding of a line, if anything."""
    if wrong := NO_UTF_8.search(line):
        byte = ord(wrong[0]) - 0xDC00
        return f"expected UTF-8, got the byte 0x{byte:02x}. Save the file as UTF-8"
    return None
