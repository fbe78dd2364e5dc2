"""Files of words and tags in other layouts than four columns."""

import gzip
import json

import pytest

from corpora import conll
from corpora.tagged_files import Layout, Sentence, read

WORDS, TAGS = ["Orla", "left", "Holm", "."], ["B-PER", "O", "B-LOC", "O"]
ONE = [Sentence(WORDS, TAGS)]
CHUNKS = "Orla NNP B-NP\nleft VBD B-VP\nHolm NNP B-NP\n. . O\n"
ROWS = [
    f"{n}\t{w}\t_\tX\t_\t_\t0\t_\t_\tNER={t}|SpaceAfter=No"
    for n, (w, t) in enumerate(zip(WORDS, TAGS, strict=True), start=1)
]
CONLLU = "# sent_id = 1\n# text = Orla left\n" + "\n".join(
    [*ROWS[:2], "3-4\tHolm.\t" + "\t".join("_" * 8), *ROWS[2:], "4.1\tx" + "\t_" * 8]
)


@pytest.fixture
def write(tmp_path):
    def write(content, name="corpus.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def columns(*where):
    """Rows of five columns with the tag in some of them."""
    return "".join(
        f"{w} " + " ".join(t if n in where else "x" for n in range(2, 6)) + "\n"
        for w, t in zip(WORDS, TAGS, strict=True)
    )


@pytest.mark.parametrize(
    ("content", "column"),
    [
        (columns(5), None),
        (columns(3), "3"),
        (columns(2), "2"),
        (columns(4), "-2"),
        (columns(4, 5), "4"),
    ],
)
def test_the_tag_is_in_the_column_that_is_asked_for(write, content, column):
    path = write(content)
    assert read(path, Layout(column)) == ONE
    assert conll.read_words(path, Layout(column or "5")) == [WORDS]


def test_three_columns_are_read(write):
    assert read(write(CHUNKS))[0].tags == ["B-NP", "B-VP", "B-NP", "O"]


@pytest.mark.parametrize("name", ["corpus.conllu", "corpus.txt"])
def test_conllu_is_read_by_a_key_of_its_last_column(write, name):
    path = write(CONLLU, name)
    assert read(path, Layout("NER")) == ONE
    assert conll.read_words(path) == [WORDS]
    plain = CONLLU.replace("NER=", "").replace("|SpaceAfter=No", "")
    assert read(write(plain, name)) == ONE


@pytest.mark.parametrize("names", [("words", "tags"), ("tokens", "ner_tags")])
def test_json_lines_are_read(write, names):
    line = json.dumps(dict(zip(names, (WORDS, TAGS), strict=True)))
    path = write(f"{line}\n\n{line}\n", "corpus.jsonl")
    assert read(path) == 2 * ONE
    assert conll.read_words(path) == 2 * [WORDS]


def test_compressed_files_are_read(write):
    path = write(gzip.compress(CONLLU.encode()), "corpus.conllu.gz")
    assert read(path, Layout("NER")) == ONE
    assert conll.read_words(path) == [WORDS]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_other_encodings_are_read(write, encoding):
    path = write("Épée B-LOC\n".encode(encoding))
    assert read(path, Layout(encoding=encoding))[0].words == ["Épée"]


def test_bad_sentences_are_left_out_with_their_number(write, capsys):
    good = "".join(f"{w} {t}\n" for w, t in zip(WORDS, TAGS, strict=True))
    path = write(f"{good}\na b c\nx O\n\n{good}\nb Q-X\nb U-X\n\n")
    assert read(path, Layout(skip_bad=True)) == 2 * ONE
    told = capsys.readouterr().err
    assert "left out 2 of 4 sentences" in told
    assert "line 6: expected 2 columns as on line 1, got 3" in told
    lines = write('{"words": ["a"]}\n{"words": ["a"], "tags": ["O"]}', "x.jsonl")
    assert len(read(lines, Layout(skip_bad=True))) == 1


@pytest.mark.parametrize(
    ("content", "name", "layout", "message"),
    [
        (
            CHUNKS,
            "a",
            Layout("7"),
            "expected a column 7 as --column says, got 3",
        ),
        (CHUNKS, "a", Layout("2"), "got 'NNP'.*--column says which"),
        (CHUNKS, "a", Layout("NER"), "expected the number of a column in --column"),
        ("{", "a.jsonl", Layout(), "line 1: expected a JSON object, got Expecting"),
        ("[" * 10**5, "a.jsonl", Layout(), "line 1: expected a JSON object, got maxi"),
        (
            "3",
            "a.jsonl",
            Layout(),
            "with words or tokens, and tags, ner_tags",
        ),
        (
            '{"words": ["a"], "tags": []}',
            "a.jsonl",
            Layout(),
            "expected a tag for each word, got 1 words and 0 tags",
        ),
        (
            '{"words": ["a"], "tags": ["X"]}',
            "a.jsonl",
            Layout(),
            "line 1: expected the tag .* got 'X'",
        ),
        (b"\x1f\x8bno", "a.gz", Layout(), "a.gz: expected a whole gzip file"),
        (b"\xff\xfea", "a", Layout(encoding="utf-16"), "expected text in utf-16"),
    ],
)
def test_what_is_wrong_is_named(write, content, name, layout, message):
    with pytest.raises(ValueError, match=message):
        read(write(content, name), layout)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="a file of tagged words, got n"):
        read(tmp_path / "none")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"column": "1"}, "column: expected the number of a column from 2"),
        ({"column": "0"}, "column: expected the number of a column from 2"),
        ({"encoding": "klingon"}, "encoding: expected a name that Python knows"),
    ],
)
def test_layouts_that_are_none_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Layout(**options)


@pytest.mark.parametrize(
    "content", ['{"text": "a"}', '{"words": ["a", ""]}', "[" * 10**5]
)
def test_words_in_json_that_are_none_are_named(content, write):
    with pytest.raises(ValueError, match="expected an object with words or tok"):
        conll.read_words(write(content, "a.jsonl"))


@pytest.mark.parametrize("line", ["2", "2\t", "2\t\t_"])
def test_words_in_conllu_that_are_none_are_named(line, write):
    path = write(f"# text = a b\n1\ta\t_\n{line}\n", "a.conllu")
    with pytest.raises(ValueError, match=r"conllu, line 3: expected a word in the sec"):
        conll.read_words(path)
