"""Files that people have: what they are read as, and what is said of bad ones."""

import gzip
import io
import json
import os
import re
import sys
from types import SimpleNamespace

import pytest

from smoothsp.data import TaggedSentence, dependencies, read_dependencies
from smoothsp.data.columns import Layout, read, read_sentences
from tests import programs

WORDS, TAGS = ["Orla", "left", "Holm", "."], ["B-PER", "O", "B-LOC", "O"]
ONE = [TaggedSentence(WORDS, TAGS)]


@pytest.fixture
def write(tmp_path):
    def write(content, name="corpus.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def table(*columns, by="\t"):
    """A sentence of which some columns are given; a string is the same in each row."""
    rows = [
        [c if isinstance(c, str) else str(c[n]) for c in columns]
        for n in range(len(WORDS))
    ]
    return "".join(by.join(row) + "\n" for row in rows)


NUMBERS = range(1, 5)
TWO, CONLL_2000 = table(WORDS, TAGS), table(WORDS, "X", TAGS, by=" ")
CONLL_2003 = "-DOCSTART- -X- -X- O\n\n" + table(WORDS, "X", "B-NP", TAGS, by=" ")
GERMEVAL = "#\thttp://a.b [2009-10-17]\n" + table(NUMBERS, WORDS, TAGS, "O")
UNER = "# sent_id = 1\n# text = Orla left\n" + table(NUMBERS, WORDS, TAGS, "-", "me")
PLUS = "# global.columns = ID FORM NER\n" + table(NUMBERS, WORDS, TAGS)
PLAIN_PLUS = "# global.columns = NER FORM\n" + table(TAGS, WORDS)
MISC = [f"NER={tag}|SpaceAfter=No" for tag in TAGS]
CONLLU_LINES = table(
    NUMBERS,
    WORDS,
    "_",
    ["PROPN", "VERB", "PROPN", "PUNCT"],
    "_",
    "_",
    "0",
    "_",
    "_",
    MISC,
).splitlines()
EMPTY = "\t_" * 8 + "\n"
CONLLU = (
    "# sent_id = 1\n# text = Orla left\n"
    + "\n".join(CONLLU_LINES[:2])
    + f"\n3-4\tHolm.{EMPTY}"
    + "\n".join(CONLLU_LINES[2:])
    + f"\n4.1\tx{EMPTY}4.2\ty{EMPTY}"
)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (TWO, "columns: words from column 1, tags from column 2"),
        (CONLL_2000, "CoNLL-2000: words from column 1, tags from column 3"),
        (CONLL_2003, "CoNLL-2003: words from column 1, tags from column 4"),
        (CONLL_2003[22:], "CoNLL-2003: words from column 1, tags from column 4"),
        (GERMEVAL, "GermEval: words from column 2, tags from column 3"),
        (UNER, "columns: words from column 2, tags from column 3"),
        (PLUS, "CoNLL-U Plus: words from column 2, tags from column 3"),
        (
            table(TAGS, WORDS, by=" "),
            "columns: words from column 2, tags from column 1",
        ),
        (
            table(range(7, 11), WORDS, TAGS),
            "columns: words from column 2, tags from col",
        ),
        (PLAIN_PLUS, "CoNLL-U Plus: words from column 2, tags from column 1"),
        (table(WORDS, TAGS, "X", "Y", by=" "), "columns: words .* tags from column 2"),
    ],
)
def test_the_columns_of_a_file_are_recognised_and_said(content, said, write, capsys):
    path = write(content)
    assert read(path).sentences == ONE
    written = capsys.readouterr()
    assert not written.out
    assert written.err.count("\n") == 1
    assert re.match(
        re.escape(str(path)) + f": read as {said}.*, scheme BIO$", written.err
    )
    if "words .*" not in said:
        found = read_sentences(path)
        assert ([s.words for s in found.sentences], found.scheme) == ([WORDS], "BIO")


CHANGES = {
    "tabs": lambda x: x.replace(" ", "\t"),
    "several blanks": lambda x: x.replace(" ", "   "),
    "CRLF": lambda x: x.replace("\n", "\r\n"),
    "CR": lambda x: x.replace("\n", "\r"),
    "trailing blanks": lambda x: x.replace("\n", " \n"),
    "blank lines of white space": lambda x: x.replace("\n\n", "\n\t\n \n"),
    "only DOCSTART between": lambda x: x.replace("\n\n", "\n"),
    "no last newline": lambda x: x.rstrip("\n"),
    "leading blank lines": lambda x: "\n\n" + x,
    "byte order mark": lambda x: "\ufeff" + x,
    "a comment": lambda x: x.replace("Orla", "# a comment of many words\nOrla"),
    "a pair": lambda x: x.replace("Orla", "# id = 1\nOrla"),
    "compressed": lambda x: gzip.compress(x.encode()),
    "UTF-16": lambda x: x.encode("utf-16"),
    "UTF-32": lambda x: x.encode("utf-32"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("content", [CONLL_2003, CONLL_2000, GERMEVAL, PLUS, UNER])
def test_small_differences_change_nothing(content, change, write):
    numbered = content in (GERMEVAL, PLUS, UNER)
    if numbered and change in ("tabs", "several blanks", "trailing blanks"):
        return
    if numbered and change in ("a comment", "a pair", "leading blank lines"):
        content = content.replace("1\tOrla", "# more = x\n1\tOrla")
        change = "CRLF"
    path = write(CHANGES[change](content))
    assert read(path).sentences == ONE
    assert [s.words for s in read_sentences(path).sentences] == [WORDS]


def test_conllu_has_names_and_keys(write, capsys):
    for name in ("corpus.conllu", "corpus.txt"):
        path = write(CONLLU, name)
        upos = read(path)
        assert upos.scheme == "plain"
        assert upos.sentences[0].tags == ["PROPN", "VERB", "PROPN", "PUNCT"]
        said = "read as CoNLL-U: words from column 2, tags from column 4, no scheme\n"
        assert capsys.readouterr().err.endswith(said)
        for column in ("4", "UPOS", "upos", "-7"):
            assert read(path, Layout(column)) == upos
        assert read(path, Layout("NER")).sentences == ONE
        assert [s.words for s in read_sentences(path).sentences] == [WORDS]
        lemmas = read(path, Layout("4", word_column="LEMMA")).sentences
        assert lemmas[0].words == ["_"] * 4


@pytest.mark.parametrize(
    ("content", "layout"),
    [
        (table(WORDS, "X", TAGS, "Y", by=" "), Layout("3")),
        (table(WORDS, "X", TAGS, "Y"), Layout("-2")),
        (table("B-X", WORDS, TAGS), Layout("3", "2")),
        (GERMEVAL, Layout("outer", "word")),
        (PLUS, Layout("NER", "FORM")),
        (CONLL_2003, Layout("ner", "1")),
    ],
)
def test_columns_are_asked_for_by_number_or_name(content, layout, write):
    path = write(content)
    assert read(path, layout).sentences == ONE
    assert [s.words for s in read_sentences(path, layout).sentences] == [WORDS]


@pytest.mark.parametrize(
    ("content", "layout", "message"),
    [
        (TWO, Layout("3"), "column: expected a column of .*, 1 to 2, got '3'"),
        (TWO, Layout("0"), "column: expected a column of .*, 1 to 2, got '0'"),
        (TWO, Layout("NER"), "column: expected a column of .*, 1 to 2, got 'NER'"),
        (TWO, Layout("1"), "column: expected another column than that of the words"),
        (TWO, Layout("2", "2"), "column: expected another column than that of the"),
        (
            TWO,
            Layout(word_column="x"),
            "word_column: expected a column of .*, 1 to 2",
        ),
        (
            CONLL_2003,
            Layout("x"),
            r"1 \(word\), 2 \(pos\), 3 \(chunk\), 4 \(ner\), got",
        ),
        (GERMEVAL, Layout("x"), r"1 \(number\), 2 \(word\), 3 \(outer\), 4 \(inner\)"),
        (CONLLU, Layout("ENR"), r"10 \(MISC\), NER, SpaceAfter, got 'ENR'"),
        (PLUS, Layout("MISC"), r"1 \(ID\), 2 \(FORM\), 3 \(NER\), got 'MISC'"),
    ],
)
def test_columns_that_are_not_there_are_named(content, layout, message, write):
    path = write(content)
    for reader in (read, read_sentences):
        with pytest.raises(ValueError, match=message):
            reader(path, layout)


def test_only_tabs_part_the_columns_of_a_file_that_has_them(write):
    path = write("Lake Orla\tB-LOC\n\u00a0\tO\n\u2028\tO\nété\tO\n\n#a=b\tO\n# \tO\n")
    first, second = read(path).sentences
    assert first.words == ["Lake Orla", "\u00a0", "\u2028", "été"]
    assert second.words == ["#a=b", "#"]


# --- what does not fit ---

GOOD = "a O\nb O\n\n"
ROWS = [line + "\n" for line in CONLLU_LINES]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            GOOD + "b X O\n",
            "line 4: expected 2 columns separated by blanks as on line 1, got",
        ),
        (GOOD + "a\nb O\n", r"line 4: expected 2 .*, got 1 \('a'\)"),
        ("a\nb O\nc O\n", r"line 1: expected 2 columns .* as on line 2, got 1 \('a'\)"),
        (
            "a\tO\nb\tO\nc O\n",
            r"line 3: expected 2 columns separated by tabs .*, got 1",
        ),
        ("a\tO\nb\t\nc\tO\n", r"line 2: expected 2 columns .*, got 1 \('b'\)"),
        ("a\tO\n\tO\n", "line 2: expected a word in column 1, got an empty one. Write"),
        ("a\tO\n #\tb\tO\nc\tO\n", "line 2: expected 2 columns"),
        ("a\tO\n\n#tag\n", r"line 3: expected 2 columns .*, got 1 \('#tag'\)"),
        ("a O x\nb O x\n# no comment here\n", "line 3: expected 3 columns .*, got 4"),
        (
            "a B-X\nb B\n",
            "line 2: expected a tag of the scheme BIO as .*, got 'B'",
        ),
        ("a B-X\nb B-\n", "line 2: expected a tag of the scheme BIO .*, got 'B-'"),
        ("a B-X\nb b-X\n", "line 2: expected a tag of the scheme BIO .*, got 'b-X'"),
        ("a B-X\nb U-X\nc B-X", "line 2: expected a tag of the scheme .*, got 'U-X'"),
        ("a DET\nb _\nc DET\n", "line 2: expected a tag.*, got '_'"),
        ("a _\n", "line 1: expected a tag.*, got '_'"),
        (
            "a\n",
            "line 1: expected 2 columns or more, a word and its tag at least, got 1",
        ),
        (GERMEVAL.replace("3\t", "4\t"), "line 4: expected the number 3 of a word in"),
        (GERMEVAL.replace("3\t", "x\t"), "line 4: expected the number 3 .*, got 'x'"),
        (GERMEVAL.replace("left\tO\tO", "left\tO"), "line 3: expected 4 columns"),
        (GERMEVAL.replace("left", " "), "line 3: expected a word in column 2"),
        (b"a\tO\n\xc3\xa9\tO\n\xe9\tO\n", "line 3: expected UTF-8, got the byte 0xe9"),
        (b"a O\n\0 O\n", "line 2: expected text, got the byte 0x00. Is it another kin"),
        ("a O\n\0 O\n".encode("utf-16"), "line 2: expected text, got the byte 0x00"),
        (b"\x1f\x8bno", "corpus.txt: expected a whole gzip file"),
        (b"\xff\xfea", "corpus.txt: expected text in utf-16"),
        ("", "corpus.txt: expected at least one sentence, got none. Is this"),
        ("\n-DOCSTART- -X- O O\n\n", "corpus.txt: expected at least one sentence"),
        ("{", "line 1: expected 2 columns or more"),
    ],
)
def test_what_does_not_fit_is_named_with_file_and_line(content, message, write, capsys):
    path = write(content)
    with pytest.raises(ValueError, match=message) as error:
        read(path)
    assert str(error.value).startswith(str(path))


CONLLU_FAULTS = {
    "two words of one number": (ROWS[0] + ROWS[0], "line 2: expected word 2, got '1'"),
    "a number is left out": (ROWS[0] + ROWS[2], "line 2: expected word 2, got '3'"),
    "begins with 2": (ROWS[1], "line 1: expected word 1, got '2'"),
    "begins with 0": ("0" + ROWS[0][1:], "line 1: expected word 1, got '0'"),
    "no number": ("x" + ROWS[0][1:], "line 1: expected word 1, got 'x'"),
    "a number with zeros": ("01" + ROWS[0][1:], "line 1: expected word 1, got '01'"),
    "no columns": (
        ROWS[0] + "no columns\n",
        "line 2: expected 10 columns separated by",
    ),
    "nine columns": (
        ROWS[0].rpartition("\t")[0] + "\n",
        "line 1: expected 10 columns .* got 9",
    ),
    "eleven columns": (
        ROWS[0].replace("\n", "\tx\n"),
        "line 1: expected 10 columns .* got 11",
    ),
    "blanks": (
        ROWS[0].replace("\t", " "),
        "line 1: expected 10 columns separated by tabs",
    ),
    "no word": (ROWS[0].replace("Orla", ""), "line 1: expected a word, got an empty"),
    "comments alone": (f"# a = b\n\n{ROWS[0]}", "line 1: expected the words of a sent"),
    "an empty node alone": (
        f"0.1\tx{EMPTY}",
        "line 1: expected the words of a sentence",
    ),
    "a comment after a word": (
        f"{ROWS[0]}# sent_id = 2\n",
        "line 2: expected comments before the first word only",
    ),
    "a token that begins later": (
        f"2-3\tx{EMPTY}{ROWS[0]}",
        "line 1: expected a token that begins with word 1, got 2-3",
    ),
    "a token backwards": (
        f"1-1\tx{EMPTY}{ROWS[0]}",
        "line 1: expected a token that beg",
    ),
    "a token beyond the end": (
        f"1-2\tx{EMPTY}{ROWS[0]}",
        "line 2: expected word 2 of a token that ends with word 2, got the end of",
    ),
    "tokens that overlap": (
        f"1-2\tx{EMPTY}{ROWS[0]}2-3\tx{EMPTY}{ROWS[1]}{ROWS[2]}",
        "line 3: expected a token that begins with word 2, got 2-3",
    ),
    "an empty node too early": (
        f"1.1\tx{EMPTY}{ROWS[0]}",
        "line 1: expected an empty node 0.1, got 1.1",
    ),
    "an empty node twice": (
        f"{ROWS[0]}1.1\tx{EMPTY}1.1\tx{EMPTY}",
        "line 3: expected an empty node 1.2, got 1.1",
    ),
}


@pytest.mark.parametrize("fault", CONLLU_FAULTS)
def test_malformed_conllu_is_an_error_in_every_reader(fault, write, capsys):
    content, message = CONLLU_FAULTS[fault]
    path = write(content, "a.conllu")
    for reader in (read, read_dependencies):
        with pytest.raises(ValueError, match=f"a.conllu, {message}"):
            reader(path)
    assert re.match(message, read_sentences(path).bad[0])
    faults = []
    dependencies.read_sentences(path, faults.append)
    assert re.search(message, faults[0])
    # the sentences beside it are kept
    path.write_text(f"{''.join(ROWS)}\n{content}\n{''.join(ROWS)}")
    count = 2 + (fault == "comments alone")
    assert len(read(path, Layout(skip_bad=True)).sentences) == count
    assert [s.words for s in dependencies.read_sentences(path, faults.append)][:1] == [
        WORDS
    ]


def test_bad_sentences_are_left_out_and_counted(write, capsys):
    path = write(f"{TWO}\na\tb\tc\nx\tO\n\n{TWO}\nb\tQ-X\nb\tU-X\n\n")
    assert read(path, Layout(skip_bad=True)).sentences == 2 * ONE
    output = capsys.readouterr().err
    assert "left out 2 of 4 sentences" in output
    assert "line 6: expected 2 columns separated by tabs as on line 1, got 3" in output
    lines = write('{"words": ["a"]}\n{"words": ["a"], "tags": ["O"]}', "x.jsonl")
    assert len(read(lines, Layout(skip_bad=True)).sentences) == 1
    with pytest.raises(ValueError, match="expected at least one sentence, got none"):
        read(write("a B-X\nb\n"), Layout(skip_bad=True))


# --- encodings ---


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1251", "gb18030"])
def test_encodings_that_are_named_are_read(write, encoding):
    word = {"cp1251": "Орла", "gb18030": "日本"}.get(encoding, "Épée")
    path = write(f"{word} B-LOC\n".encode(encoding))
    assert read(path, Layout(encoding=encoding)).sentences[0].words == [word]


def test_latin_1_is_recognised_with_a_message(write, capsys):
    path = write("Épée B-LOC\n„Ö“ O\n".encode("cp1252"))
    assert read(path).sentences[0].words == ["Épée", "„Ö“"]
    assert f"{path}: not UTF-8, read as latin-1\n" in capsys.readouterr().err


# --- JSON lines ---


@pytest.mark.parametrize("names", [("words", "tags"), ("tokens", "ner_tags")])
@pytest.mark.parametrize("ending", ["jsonl", "txt", "jsonl.gz"])
def test_json_lines_are_read(write, names, ending):
    line = json.dumps(dict(zip(names, (WORDS, TAGS), strict=True)))
    content = f"{line}\n\n{line}\n".encode()
    content = gzip.compress(content) if ending.endswith("gz") else content
    path = write(content, f"corpus.{ending}")
    assert read(path).sentences == 2 * ONE
    assert [s.words for s in read_sentences(path).sentences] == 2 * [WORDS]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "line 1: expected a JSON object, got Expecting"),
        ("[" * 10**5, "line 1: expected a JSON object, got maxi"),
        ("3", "line 1: expected an object with words or tokens, and tags, ner_tags or"),
        (
            '{"words": ["a"], "tags": []}',
            "line 1: expected a tag for each word, got 1 w",
        ),
        ('{"words": ["a"], "tags": ["_"]}', "line 1: expected a tag.*, got '_'"),
        ('{"words": ["", "b"], "tags": ["O", "O"]}', "strings of which none is empty"),
        (
            '{"words": ["a\\u0000"], "tags": ["O"]}',
            "line 1: .* or has a character that is no text, got",
        ),
        (
            '{"words": ["\\ud83d"], "tags": ["O"]}',
            "line 1: expected an object with word",
        ),
    ],
)
def test_json_that_is_none_is_named(content, message, write):
    with pytest.raises(ValueError, match=f"a.jsonl, .*{message}"):
        read(write(content, "a.jsonl"))


# --- words to be tagged ---


def found(path):
    file = read_sentences(path)
    return [s.words for s in file.sentences] + [text.split() for text in file.texts]


@pytest.mark.parametrize(
    ("content", "sentences"),
    [
        ("Orla left\nTarnholm .\n", [["Orla", "left"], ["Tarnholm", "."]]),
        ("Orla  left\r\n\r\n Tarnholm .", [["Orla", "left"], ["Tarnholm", "."]]),
        ("Orla\nleft\n\n\nTarnholm\n.\n", [["Orla", "left"], ["Tarnholm", "."]]),
        ("Orla\n", [["Orla"]]),
        ("Orla\tleft the\nTarnholm\n", [["Orla", "left", "the"], ["Tarnholm"]]),
        ("Orla\tB-PER\nleft\tO\n\nO\tO\n", [["Orla", "left"], ["O"]]),
        ("take vitamin C\ntake vitamin D\n", [["take", "vitamin", x] for x in "CD"]),
        ("vitamin O\nis left\n", [["vitamin", "O"], ["is", "left"]]),
        (
            "goals 0\nfouls 0\nis left\n",
            [["goals", "0"], ["fouls", "0"], ["is", "left"]],
        ),
        ("He sent an E-Mail\n", [["He", "sent", "an", "E-Mail"]]),
        ("\n-DOCSTART-\n\nOrla\n-DOCSTART-\nleft\n", [["Orla"], ["left"]]),
        (
            "1 apple\n2 pears and more\n",
            [["1", "apple"], ["2", "pears", "and", "more"]],
        ),
        ("#1 fan\nit is\n", [["#1", "fan"], ["it", "is"]]),
        ("1\tOrla\n2\tleft\n\n1\tNo\n", [["Orla", "left"], ["No"]]),
        ("Orla\tNNP\nleft\tVBD\n", [["Orla", "left"]]),
        ("Orla,NNP\nleft,VBD\n", [["Orla", "left"]]),
        ("Orla;B-PER\nleft;O\n", [["Orla", "left"]]),
        ("Hello,Ada\nYes,Bob\n", [["Hello,Ada"], ["Yes,Bob"]]),
        ("Orla NNP\nleft VBD\n\nno UH\nno UH\n", [["Orla", "left"], ["no", "no"]]),
        (
            "Orla Holm\n\nTarn Wren\n\nAda Orr\n",
            [["Orla", "Holm"], ["Tarn", "Wren"], ["Ada", "Orr"]],
        ),
        ("7\ta\tX\n8\tb\tX\n\n9\tc\tX\n", [["a", "b"], ["c"]]),
    ],
)
def test_text_words_and_columns_are_told_apart(write, content, sentences):
    assert found(write(content)) == sentences


def test_words_come_from_standard_input(monkeypatch):
    stdin = SimpleNamespace(buffer=io.BytesIO("Orla à Tarnholm\n".encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert found("-") == [["Orla", "à", "Tarnholm"]]


def test_a_line_that_cannot_be_read_leaves_the_others(write):
    text = read_sentences(write(b"Orla \xc3\xa9 left\n\xe9\nso it goes\n"))
    assert text.texts == ["Orla é left", "so it goes"]
    assert text.bad == [
        "line 2: expected UTF-8, got the byte 0xe9. Save the file as UTF-8"
    ]
    columns = read_sentences(write(f"{TWO}\na\nb O\n\n{TWO}"))
    assert [s.words for s in columns.sentences] == [WORDS, WORDS]
    assert columns.bad[0].startswith("line 6: expected 2 columns")
    lines = read_sentences(
        write('{"words": ["a"]}\n{"text": 3}\n{"words": ["b"]}', "a.jsonl")
    )
    assert [s.words for s in lines.sentences] == [["a"], ["b"]]
    assert lines.bad[0].startswith(
        "line 2: expected an object with words or tokens, li"
    )
    tagged = read_sentences(write('{"words": ["a"], "tags": ["O", "O"]}', "a.jsonl"))
    assert tagged.bad == [
        "line 1: expected a tag for each word, got 1 words and 2 tags"
    ]


def test_no_words_are_refused(write, monkeypatch):
    with pytest.raises(
        ValueError, match=r"corpus\.txt: expected words, got none\. Give"
    ):
        read_sentences(write(" \n\t\n"))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    with pytest.raises(ValueError, match="standard input: expected words"):
        read_sentences("-")
    with pytest.raises(ValueError, match="/dev/null: expected words, got none"):
        read_sentences("/dev/null")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="a file of tagged words, got nothing"):
        read(tmp_path / "none")
    with pytest.raises(
        FileNotFoundError,
        match=r"expected a file of text, got a folder\. Give a file, or - f",
    ):
        read_sentences(tmp_path)


# --- evidence of a format ---

PERSON = [["Ada", "Wren", "met", "Bob"], [["B-PER", "I-PER", "O", "B-PER"]]]


@pytest.mark.parametrize(
    ("tags", "written"),
    [
        (["b-per", "i-per", "o", "b-per"], "scheme BIO, written as b-type and o"),
        (["PER-B", "PER-I", "O", "PER-B"], "scheme BIO, written as TYPE-B and O"),
        (["B_PER", "I_PER", "O", "B_PER"], "scheme BIO, written as B_TYPE and O"),
        (["B:PER", "I:PER", "0", "B:PER"], "scheme BIO, written as B:TYPE and 0"),
        (["PER", "PER", "O", "PER"], "scheme IOB1, written as types without prefixes"),
        (["PER", "PER", "0", "PER"], "scheme IOB1, written as types without prefixes"),
        (["PER", "PER", "o", "PER"], "scheme IOB1, written as types without prefixes"),
    ],
)
def test_tags_are_normalised_and_written_back(tags, written, write, capsys):
    words = PERSON[0]
    path = write("".join(f"{w} {t}\n" for w, t in zip(words, tags, strict=True)))
    (sentence,) = read(path).sentences
    kinds = {"B-PER": "I-PER"} if "IOB1" in written else {}
    right = [kinds.get(tag, tag) for tag in PERSON[1][0]]
    assert sentence.tags == right
    assert written in capsys.readouterr().err
    asked = read_sentences(path)
    assert [asked.notation.write(tag) for tag in right] == tags


@pytest.mark.parametrize("odd", ["X-PER", "0", "b-PER", "B_PER", "per-B"])
def test_a_tag_that_nearly_fits_is_refused(odd, write):
    path = write("a B-PER\nb I-PER\nc O\n\n" * 50 + f"d {odd}\n")
    message = f"line 201: expected a tag of the scheme BIO .*'{odd}'. Write the tag"
    with pytest.raises(ValueError, match=message):
        read(path)


def test_labels_of_word_pieces_are_refused_with_a_remedy(write):
    path = write("[CLS] [CLS]\nAda B-PER\n##da X\nmet O\n[SEP] [SEP]\n")
    with pytest.raises(ValueError, match=r"'\[CLS\]'. Delete lines of word pieces"):
        read(path)
    assert read_sentences(path).sentences[0].words[1] == "Ada"


TABLES = {
    "kaggle.csv": "Sentence #,Word,POS,Tag\nSentence: 1,Orla,NNP,B-PER\n,left,V,O\n"
    'Sentence: 2,"1,000",CD,O\n,"""",``,O\n',
    "pandas.csv": ",sentence_id,words,labels\n0,4,Orla,B-PER\n1,4,left,O\n"
    '2,5,"1,000",O\n3,5,"""",O\n',
    "semicolons.csv": 'token;ner_tag\nOrla;B-PER\nleft;O\n;\n1,000;O\n";O\n',
    "excel.csv": 'sep=;\ntoken;ner_tag\nOrla;B-PER\nleft;O\n;\n1,000;O\n";O\n',
    "tabs.tsv": 'token\tner\nOrla\tB-PER\nleft\tO\n\n1,000\tO\n""""\tO\n',
    "reversed.tsv": 'LABEL\tToken\nB-PER\tOrla\nO\tleft\n\nO\t1,000\nO\t"\n',
    "blanks.txt": 'word pos ner\nOrla N B-PER\nleft V O\n\n1,000 N O\n" N O\n',
    "no_header.txt": 'Orla,B-PER\nleft,O\n\n"1,000",O\n"""",O\n',
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_read_by_their_header(name, write, capsys):
    path = write(TABLES[name], name)
    words, tags = [["Orla", "left"], ["1,000", '"']], [["B-PER", "O"], ["O", "O"]]
    sentences = read(path).sentences
    assert [s.words for s in sentences] == words
    assert [s.tags for s in sentences] == tags
    assert found(path) == words
    if name == "kaggle.csv":
        assert sentences[0].rows == [("Orla", "NNP"), ("left", "V")]
        assert read(path, Layout("pos")).sentences[0].tags == ["NNP", "V"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "#FORMAT=WebAnno TSV 3.2\n\n1-1\t0-3\tAda\n", "got WebAnno TSV,"),
        ("a.txt", "#begin document (a); part 000\na 0 0 Ada -\n", "got CoNLL-2012, w"),
        ("a.txt", "T1\tPER 0 3\tAda\n", "got brat standoff, which"),
        ("a.txt", "<?xml version='1.0'?>\n<a/>\n", "got XML or HTML, which is not r"),
        ("a.csv", "Ada left.\nShe met Bob.\n", "line 1: expected a table with a h"),
        ("a.csv", "foo,bar\nAda,B-PER\n", "line 1: expected a table with .* 'foo,bar'"),
        ("a.csv", "foo,bar\nAda,NNP\n", "line 1: expected a table with .* 'foo,bar'"),
        ("a.csv", "word,tag\n", "a.csv: expected at least one sentence, got none"),
        ("a.txt", "Ada\u00a0B-PER\n", r"line 1: expected col.* U\+00A0 in 'Ada"),
        ("a.csv", 'token,tag\n"Ada met","O O"\n', "line 2: expected one word a line"),
        ("a.tsv", "1\tAda met Bob\n2\tShe left\n", "line 1: expected one word a li"),
    ],
)  # fmt: skip
def test_formats_that_are_not_read_are_named(name, content, message, write):
    path = write(content, name)
    for reader in (read, read_sentences):
        with pytest.raises(ValueError, match=message):
            reader(path)


def test_columns_of_conllu_plus_are_named_in_any_case(write):
    path = write(
        "# newdoc\n# Global.Columns = id form ner\n" + table(NUMBERS, WORDS, TAGS)
    )
    assert read(path).sentences == ONE
    assert found(path) == [WORDS]


def test_a_comment_of_as_many_columns_is_no_word(write):
    for tags in (["DET", "NOUN"], ["B-PER", "O"]):
        content = f"# doc1\nthe {tags[0]}\nlake {tags[1]}\n\n# doc2\nlake {tags[1]}\n"
        assert [s.words for s in read(write(content)).sentences] == [
            ["the", "lake"],
            ["lake"],
        ]
        assert found(write(content)) == [["the", "lake"], ["lake"]]
    # a tag of words, or the sign's own
    for tag in ("O", "B-PER", "#"):
        content = f"# {tag}\nAda B-PER\n\n# {tag}\nmet O\n"
        if tag == "#":
            content = content.replace("B-PER", "NN").replace("O", "VB")
        assert read(write(content)).sentences[1].words == ["#", "met"]


@pytest.mark.parametrize(
    "content",
    [
        "#\tnum\n5\tcd\nkg\tnn\n",
        "# SYM\n1 NUM\nfan NOUN\n",
        "# sym\n1 num\nfan noun\n\nthe num\n# sym\n",
    ],
)
def test_a_sign_that_begins_a_sentence_is_a_word(content, write):
    assert read(write(content)).sentences[0].words[0] == "#"
    assert found(write(content))[0][0] == "#"


@pytest.mark.parametrize("tags", ["PER O O LOC LOC", "-LRB- NN VB", "O B-X", "_ NN"])
def test_tables_without_a_header_begin_with_any_tag(tags, write):
    content = "".join(f"a,{tag}\n" for tag in tags.split())
    assert found(write(content, "a.csv")) == [["a"] * len(tags.split())]


@pytest.mark.parametrize("space", ["\u00a0", "\u3000", "\u2003"])
def test_other_white_space_is_a_word_in_every_reader(space, write):
    for name, content in {
        "a.txt": f"a\tO\n{space}\tO\n",
        "b.txt": f"a O\n{space} O\n",
        "c.csv": f"word,tag\na,O\n{space},O\n",
        "d.conllu": f"1\ta{EMPTY.replace('_', 'X')}2\t{space}{EMPTY.replace('_', 'X')}",
        "e.txt": f"a\n{space}\n",
    }.items():
        path = write(content, name)
        assert read_sentences(path).sentences[0].words == ["a", space]
        if name != "e.txt":
            assert read(path).sentences[0].words == ["a", space]
    (sentence,) = dependencies.read_sentences(path.with_name("d.conllu"), pytest.fail)
    words = sentence.words
    assert words == ["a", space]


# --- files that are made to fill the memory ---


def bomb(folder, kind):
    """Files of a few hundred megabytes, or what becomes so large."""
    path = folder / f"{kind}.txt"
    if kind in ("sparse", "JSON"):
        with path.open("wb") as file:
            file.write(b"{" * (kind == "JSON"))
            file.truncate(2**30)
        return path
    if kind == "line":
        with path.open("wb") as file:
            file.write(b"a O\n")
            for _ in range(100):
                file.write(b"x" * 2**20)
        return path
    if kind == "gzip of a line":
        with gzip.open(path, "wb") as file:
            file.write(b"a O\n")
            file.write(b"x" * 2**22)
        return path
    with gzip.open(path, "wb") as file:
        for _ in range(65):
            file.write(b"a O\n" * 2**18)
    return path


CHILD = """
import resource, sys
from smoothsp.data.text_files import decode_lines, read_content
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, 2 * (used + 600 * 2**20,))
for path in sys.argv[1:]:
    try:
        decode_lines(read_content(path, "text"), path)
    except ValueError as error:
        print(error)
"""


BOMBS = {
    "sparse": "line 1: expected at most 1,048,576 bytes in a line, got",
    "line": "line 2: expected at most 1,048,576 bytes in a line, got",
    "gzip of a line": "line 2: expected at most 1,048,576 bytes in a line",
    "gzip": "expected at most .* bytes of text, got more. Split",
    "JSON": "line 1: expected at most 268,435,456 bytes in a line, got",
}


@pytest.mark.long
def test_bombs_take_little_memory_and_are_one_line_each(tmp_path):
    paths = [bomb(tmp_path, kind) for kind in BOMBS]
    said = programs.run(sys.executable, "-c", CHILD, *paths).stdout.splitlines()
    for path, message, line in zip(paths, BOMBS.values(), said, strict=True):
        assert re.match(f"{path}.*{message}", line)


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: expected words, got none"):
        read_sentences(tmp_path / "pipe")


@pytest.mark.parametrize("kind", ["😀", "$", "1st", "_"])
def test_a_type_may_begin_with_any_sign(kind, write):
    text = f"a x B-{kind}\nb x I-{kind}\nc x O\n\nd x B-{kind}\n"
    first, second = read(write(text)).sentences
    assert first.tags == [f"B-{kind}", f"I-{kind}", "O"]
    assert second.tags == [f"B-{kind}"]


def test_a_field_of_a_table_may_be_long(write):
    long = "x" * 140_000
    path = write(f'word,tag\n"{long},y",B-X\nb,O\n', "a.csv")
    assert read(path).sentences[0].words == [f"{long},y", "b"]
