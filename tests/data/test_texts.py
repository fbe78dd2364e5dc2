"""Texts to parse, as the two parsers read them: compressed, cut, or no text at all."""

import gzip

import pytest

from smoothsp.data import dependencies, trees
from smoothsp.data.text_files import print_stderr

TREE = "( (S (NN dogs) (VB sleep)) )\n"
COLUMNS = "1\tdogs\t_\t_\t_\t_\t_\t_\t_\t_\n2\tsleep\t_\t_\t_\t_\t_\t_\t_\t_\n"
READERS = {
    "constituency": lambda path: [
        s.split() if isinstance(s, str) else s
        for s in trees.read_sentences(path, print_stderr)
    ],
    "ud_parser": lambda path: [
        s.split() if isinstance(s, str) else s.words
        for s in dependencies.read_sentences(path, print_stderr)
    ],
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
        ("a b\n".encode("utf-16-le"), r"x, line 1: expected text, got the byte 0x00"),
        (
            gzip.compress(b"a b\n" * 99, mtime=0)[:-9],
            "x: expected a whole gzip file, got ",
        ),
    ],
)
def test_what_is_no_text_is_told(name, content, message, tmp_path):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        READERS[name](tmp_path / "x")
    # an option that these recipes have not
    assert "--encoding" not in str(caught.value)


def test_a_malformed_tree_does_not_take_others_with_it(tmp_path, capsys):
    path = tmp_path / "x"
    path.write_text(f"{TREE}( (S (NN a) b) )\n{TREE}( (S (NN c)\n")
    assert READERS["constituency"](path) == 2 * [["dogs", "sleep"]]
    output = capsys.readouterr().err.splitlines()
    assert "x, line 2: expected (LABEL (..) ..) or (TAG word)" in output[0]
    assert "x, line 4: expected a ) to this (" in output[1]


@pytest.mark.parametrize("name", READERS)
def test_a_line_that_is_no_utf_8_does_not_take_others_with_it(name, tmp_path, capsys):
    (tmp_path / "x").write_bytes("é b\n".encode() + b"\xe9\n" + b"c d\n")
    assert READERS[name](tmp_path / "x") == [["é", "b"], ["c", "d"]]
    assert (
        "x, line 2: expected UTF-8, got the byte 0xe9. Save" in capsys.readouterr().err
    )
    (tmp_path / "x").write_bytes("é b\n".encode("latin-1"))
    assert READERS[name](tmp_path / "x") == [["é", "b"]]
    assert "x: not UTF-8, read as latin-1" in capsys.readouterr().err
