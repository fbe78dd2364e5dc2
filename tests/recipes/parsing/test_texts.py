"""Texts to parse, as the two parsers read them: compressed, cut, or no text at all."""

import gzip

import pytest

from parsing import brackets, conllu

TREE = "( (S (NN dogs) (VB sleep)) )\n"
COLUMNS = "1\tdogs\t_\t_\t_\t_\t_\t_\t_\t_\n2\tsleep\t_\t_\t_\t_\t_\t_\t_\t_\n"
READERS = {
    "constituency": brackets.read_words,
    "ud_parser": lambda path: [s.words for s in conllu.read_words(path)],
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("constituency", "dogs sleep\n"),
        ("constituency", TREE),
        ("ud_parser", "dogs sleep\n"),
        ("ud_parser", COLUMNS),
    ],
)
def test_texts_may_be_compressed_and_have_line_ends_of_any_system(name, text, tmp_path):
    (tmp_path / "text").write_bytes(gzip.compress(text.encode()))
    assert READERS[name](tmp_path / "text") == [["dogs", "sleep"]]
    for end in ("\r\n", "\r"):
        (tmp_path / "text").write_bytes(text.replace("\n", end).encode("utf-8-sig"))
        assert READERS[name](tmp_path / "text") == [["dogs", "sleep"]]


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"a b\ndo\0gs sleep\n",
            r"x, line 2: expected text, got the byte 0x00\. Is it",
        ),
        ("a b\n".encode("utf-16"), r"x, line 1: expected text, got the byte 0x00\. "),
        (gzip.compress(b"a b\n" * 99)[:-9], "x: expected a whole gzip file, got "),
        (
            b"a b\n\xe9\n",
            r"line 2: expected UTF-8, got .* 0xe9\. Save the file as UTF-8$",
        ),
    ],
)
def test_what_is_no_text_is_told(name, content, message, tmp_path):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        READERS[name](tmp_path / "x")
    # an option that these recipes have not
    assert "--encoding" not in str(caught.value)
