"""Files that people have: what they are read as, and what is said of bad ones."""

import contextlib
import gzip
import io
import json
import os
import re
import sys
from itertools import chain
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothsp.data import TaggedSentence, dependencies, read_dependencies
from smoothsp.data.columns import DEFAULT_LAYOUT, Layout, read, read_sentences
from tests import programs
from tests.data import conllu_files
from tests.data.conllu_files import row


@pytest.fixture(scope="module")
def write(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")

    def write(content, name="corpus.txt"):
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def words_of(path, layout=DEFAULT_LAYOUT):
    """The words of sentences to be tagged; a text is split at blanks."""
    file = read_sentences(path, layout)
    return [s.words for s in file.sentences] + [text.split() for text in file.texts]


# --- drawn files ---


class Format(NamedTuple):
    """Lines of a drawn file, and what it is read as."""

    row: str
    """A word's line: its number n, its number m from 7, word w, tag t."""
    said: str
    word: int
    tag: int
    names: tuple[str, ...] = ()
    """Names of the columns of the word and the tag."""
    head: str = ""
    """Lines before each sentence."""


SOURCE, TEXT_OF_IT = "#\thttp://a.b [2009-10-17]\n", "# sent_id = 1\n# text = Orla\n"
PLUS, PLAIN_PLUS = "# global.columns = ID FORM NER\n", "# Global.Columns = ner Form\n"
DOCUMENT = "-DOCSTART- -X- -X- O\n\n"
FORMATS = {
    "tabs": Format("{w}\t{t}", "columns", 1, 2),
    "reversed": Format("{t} {w}", "columns", 2, 1),
    "CoNLL-2000": Format("{w} X {t}", "CoNLL-2000", 1, 3, ("Word", "chunk")),
    "CoNLL-2003": Format("{w} X B-NP {t}", "CoNLL-2003", 1, 4, ("word", "NER")),
    "documents": Format("{w} X X {t}", "CoNLL-2003", 1, 4, ("word", "ner"), DOCUMENT),
    "GermEval": Format("{n}\t{w}\t{t}\tO", "GermEval", 2, 3, ("word", "outer"), SOURCE),
    "UNER": Format("{n}\t{w}\t{t}\t-\tme", "columns", 2, 3, (), TEXT_OF_IT),
    "from 7": Format("{m}\t{w}\t{t}", "columns", 2, 3),
    "Plus": Format("{n}\t{w}\t{t}", "CoNLL-U Plus", 2, 3, ("FORM", "NER"), PLUS),
    "plain Plus": Format("{t}\t{w}", "CoNLL-U Plus", 2, 1, ("form", "ner"), PLAIN_PLUS),
}
# A type may begin with any sign.
KINDS = st.sampled_from(["PER", "😀", "$", "_"])
CHUNKS = KINDS.flatmap(
    lambda x: st.sampled_from([["O"], [f"B-{x}"], [f"B-{x}", f"I-{x}"]])
)


@st.composite
def sentences(draw):
    """Draw words that may be signs or in any letters, and tags of a BIO scheme."""
    tags = ["B-PER", "O", *chain(*draw(st.lists(CHUNKS, max_size=3)))]
    word = st.text("aé日#,.-“", min_size=1, max_size=4)
    size = len(tags) - 2
    # The word # may begin a comment, so a format is detected by other words.
    return ["Orla", "left", *draw(st.lists(word, min_size=size, max_size=size))], tags


def to_text(form, drawn, note=""):
    text = ""
    for words, tags in drawn:
        text += form.head + note
        for n, (w, t) in enumerate(zip(words, tags, strict=True), 1):
            text += form.row.format(n=n, m=n + 6, w=w, t=t) + "\n"
        text += "\n"
    return text


def variants(form, drawn):
    """Texts with the same sentences, as other programs and systems write them."""
    text = to_text(form, drawn)
    yield text.replace("\n", "\r\n")
    yield text.replace("\n", "\r")
    yield text.replace("\n\n", "\n\t\n \n")
    yield "\n\n" + text.rstrip("\n")
    yield "\ufeff" + text
    yield gzip.compress(text.encode(), 1, mtime=0)
    yield text.encode("utf-16")
    yield text.encode("utf-32")
    for note in ("# a comment of many words\n", "# id = 1\n"):
        yield to_text(form, drawn, note)
    if "\t" not in form.row:
        yield text.replace(" ", "\t")
        yield text.replace(" ", "   ")
        yield text.replace("\n", " \n")
    if form.head == DOCUMENT:
        yield text.replace("\n\n", "\n")


@pytest.mark.parametrize("name", FORMATS)
@given(drawn=st.lists(sentences(), min_size=1, max_size=2))
def test_a_drawn_file_is_recognised_said_and_read(name, drawn, write):
    form = FORMATS[name]
    path = write(to_text(form, drawn))
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        file = read(path)
    said = f"{form.said}: words from column {form.word}, tags from column {form.tag}"
    assert errors.getvalue() == f"{path}: read as {said}, scheme BIO\n"
    assert not output.getvalue()
    assert [(s.words, s.tags) for s in file.sentences] == drawn
    documents = range(1, len(drawn) + 1) if form.head == DOCUMENT else [0] * len(drawn)
    assert [s.document for s in file.sentences] == list(documents)
    words = [words for words, _ in drawn]
    asked = read_sentences(path)
    assert ([s.words for s in asked.sentences], asked.scheme) == (words, "BIO")


@pytest.mark.parametrize("name", FORMATS)
def test_small_differences_change_nothing(name, write):
    drawn = [
        (["Orla", "left", "Holm"], ["B-PER", "O", "B-LOC"]),
        (["#", "so"], ["O"] * 2),
    ]
    for content in variants(FORMATS[name], drawn):
        path = write(content)
        assert [(s.words, s.tags) for s in read(path).sentences] == drawn
        assert words_of(path) == [words for words, _ in drawn]


@pytest.mark.parametrize("name", FORMATS)
@given(drawn=st.lists(sentences(), min_size=1, max_size=2), more=st.sampled_from("XO-"))
def test_columns_are_asked_for_by_number_or_name(name, drawn, more, write):
    form = FORMATS[name]
    right = [TaggedSentence(*sentence) for sentence in drawn]
    # a column more, of the same tag in each row, where columns have no names
    row = (
        form.row
        if form.names
        else form.row + ("\t" if "\t" in form.row else " ") + more
    )
    path = write(to_text(form._replace(row=row), drawn))
    from_the_end = str(form.tag - len(row.split()) - 1)
    for word, tag in (
        (form.word, form.tag),
        (form.word, from_the_end),
        form.names or (form.word, form.tag),
    ):
        layout = Layout(str(tag), str(word))
        assert read(path, layout).sentences == right
        assert words_of(path, layout) == [sentence.words for sentence in right]


@pytest.mark.parametrize("name", ["corpus.conllu", "corpus.txt"])
@given(
    drawn=st.lists(conllu_files.sentences(), min_size=1, max_size=2),
    column=st.sampled_from(["4", "UPOS", "upos", "-7"]),
)
def test_conllu_has_names_and_keys(name, column, drawn, write):
    words = [s.tree.words for s in drawn]
    path = write("".join(s.text for s in drawn), name)
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        upos = read(path)
    assert [s.words for s in upos.sentences] == words_of(path) == words
    assert ([s.tags for s in upos.sentences], upos.scheme) == (
        [s.pos for s in drawn],
        "plain",
    )
    said = "read as CoNLL-U: words from column 2, tags from column 4, no scheme\n"
    assert errors.getvalue() == f"{path}: {said}"
    assert read(path, Layout(column)) == upos
    names = read(path, Layout("NER")).sentences
    assert [s.tags for s in names] == [s.tags for s in drawn]
    lemmas = read(path, Layout("4", word_column="LEMMA")).sentences
    assert [s.words for s in lemmas] == [
        [str(n + 1) for n in range(len(x))] for x in words
    ]


def test_only_tabs_part_the_columns_of_a_file_that_has_them(write):
    path = write("Lake Orla\tB-LOC\n\u00a0\tO\n\u2028\tO\nété\tO\n\n#a=b\tO\n# \tO\n")
    first, second = read(path).sentences
    assert first.words == ["Lake Orla", "\u00a0", "\u2028", "été"]
    assert second.words == ["#a=b", "#"]


# --- what does not fit ---

TWO, GOOD = "Orla\tB-PER\nleft\tO\n", "a O\nb O\n\n"
CONLL_2003, GERMEVAL, NUMBERED = (
    to_text(FORMATS[name], [(["Orla", "left", "Holm"], ["B-PER", "O", "B-LOC"])])
    for name in ("CoNLL-2003", "GermEval", "Plus")
)
CONLLU = "".join(row(n, misc="NER=O|SpaceAfter=No") for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("content", "layout", "message"),
    [
        (TWO, Layout("3"), "column: expected a column of .*, 1 to 2, got '3'"),
        (TWO, Layout("0"), "column: expected a column of .*, 1 to 2, got '0'"),
        (TWO, Layout("NER"), "column: expected a column of .*, 1 to 2, got 'NER'"),
        (TWO, Layout("1"), "column: expected another column than that of the words"),
        (TWO, Layout("2", "2"), "column: expected another column than that of the"),
        (TWO, Layout(word_column="x"), "word_column: expected a column of .*, 1 to 2"),
        (CONLL_2003, Layout("x"), r"1 \(word\), 2 \(pos\), 3 \(chunk\), 4 \(ner\), g"),
        (GERMEVAL, Layout("x"), r"1 \(number\), 2 \(word\), 3 \(outer\), 4 \(inner\)"),
        (CONLLU, Layout("ENR"), r"10 \(MISC\), NER, SpaceAfter, got 'ENR'"),
        (NUMBERED, Layout("MISC"), r"1 \(ID\), 2 \(FORM\), 3 \(NER\), got 'MISC'"),
    ],
)
def test_columns_that_are_not_there_are_named(content, layout, message, write):
    path = write(content)
    for reader in (read, read_sentences):
        with pytest.raises(ValueError, match=message):
            reader(path, layout)


def fifty_and(tag):
    return "a B-PER\nb I-PER\nc O\n\n" * 50 + f"d {tag}\n"


SCHEME = "expected a tag of the scheme BIO as others in column 2, got"
NO_STRINGS = ", lists of strings of which none is empty or has a character that is no"
# Name, content, message.
FAULTS = [
    ("a.txt", GOOD + "b X O\n", "line 4: expected 2 columns separated by blanks as"),
    ("a.txt", GOOD + "a\nb O\n", r"line 4: expected 2 .* as on line 1, got 1 \('a'\)"),
    ("a.txt", "a\nb O\nc O\n", r"line 1: expected 2 .* as on line 2, got 1 \('a'\)"),
    ("a.txt", "a\tO\nb\tO\nc O\n", "line 3: expected 2 .* separated by tabs .*, got 1"),
    ("a.txt", "a\tO\nb\t\nc\tO\n", r"line 2: expected 2 columns .*, got 1 \('b'\)"),
    ("a.txt", "a\tO\n\tO\n", "line 2: expected a word in column 1, got an empty"),
    ("a.txt", "a\tO\n #\tb\tO\nc\tO\n", "line 2: expected 2 columns"),
    ("a.txt", "a\tO\n\n#tag\n", r"line 3: expected 2 columns .*, got 1 \('#tag'\)"),
    ("a.txt", "a O x\nb O x\n# no comment here\n", "line 3: expected 3 .*, got 4"),
    ("a.txt", "a B-X\nb B\n", f"line 2: {SCHEME} 'B'. Write the tag of the word"),
    ("a.txt", "a B-X\nb B-\n", f"line 2: {SCHEME} 'B-'"),
    ("a.txt", "a B-X\nb b-X\n", f"line 2: {SCHEME} 'b-X'"),
    ("a.txt", "a B-X\nb U-X\nc B-X", "line 2: expected a tag of the .*, got 'U-X'"),
    ("a.txt", "a DET\nb _\nc DET\n", "line 2: expected a tag in column 2, got '_'"),
    ("a.txt", "a _\n", "line 1: expected a tag.*, got '_'"),
    ("a.txt", "a\n", "line 1: expected 2 columns or more, a word and .* got 1"),
    *(
        ("a.txt", fifty_and(odd), f"line 201: {SCHEME} '{odd}'. Write the tag")
        for odd in ("X-PER", "0", "b-PER", "B_PER", "per-B")
    ),
    ("a.txt", GERMEVAL.replace("3\t", "4\t"), "line 4: expected the number 3 of a w"),
    ("a.txt", GERMEVAL.replace("3\t", "x\t"), "line 4: .* number 3 .*, got 'x'"),
    ("a.txt", GERMEVAL.replace("left\tO", "left"), "line 3: expected 4 columns"),
    ("a.txt", GERMEVAL.replace("left", " "), "line 3: expected a word in column 2"),
    ("a.txt", b"a\tO\n\xc3\xa9\tO\n\xe9\tO\n", "line 3: expected UTF-8, got the byte"),
    ("a.txt", "a\tO\n\né\tO\n".encode() + b"\xe9", "line 4: expected UTF-8, got the"),
    ("a.txt", b"a O\n\0 O\n", "line 2: expected text, got the byte 0x00. Is it an"),
    ("a.txt", "a O\n\0 O\n".encode("utf-16"), "line 2: expected text, got the byte"),
    ("a.txt", b"\x1f\x8bno", "expected a whole gzip file"),
    ("a.txt", b"\xff\xfea", "expected text in utf-16"),
    ("a.txt", "", "expected at least one sentence, got none. Is this"),
    ("a.txt", "\n-DOCSTART- -X- O O\n\n", "expected at least one sentence"),
    ("a.txt", "{", "line 1: expected 2 columns or more"),
    ("a.txt", "[CLS] [CLS]\nAda B-PER\nmet O\n", r"got '\[CLS\]'. Delete lines"),
    ("a.txt", "Ada B-PER\n##da X\nmet O\n", "line 2: .* got 'X'. Delete lines of word"),
    ("a.jsonl", "{", "line 1: expected a JSON object, got Expecting"),
    ("a.jsonl", "[" * 10**5, "line 1: expected a JSON object, got maxi"),
    ("a.jsonl", "3", "line 1: expected an object with words or tokens, and tags, ner"),
    ("a.jsonl", '{"words": ["a"], "tags": []}', "line 1: .* for each word, got 1"),
    ("a.jsonl", '{"words": ["a"], "tags": ["_"]}', "line 1: expected a tag.*, got '_'"),
    ("a.jsonl", '{"words": ["", "b"], "tags": ["O", "O"]}', NO_STRINGS),
    ("a.jsonl", '{"words": ["a\\u0000"], "tags": ["O"]}', NO_STRINGS),
    ("a.jsonl", '{"words": ["\\ud83d"], "tags": ["O"]}', NO_STRINGS),
]


@pytest.mark.parametrize(("name", "content", "message"), FAULTS)
def test_what_does_not_fit_is_named_with_file_and_line(name, content, message, write):
    path = write(content, name)
    with pytest.raises(ValueError, match=message) as error:
        read(path)
    assert re.match(rf"{path}(: |, line \d+: )expected ", str(error.value))


# Also read_sentences has no use for these.
OTHER_FORMATS = [
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
]


@pytest.mark.parametrize(("name", "content", "message"), OTHER_FORMATS)
def test_formats_that_are_not_read_are_named(name, content, message, write):
    for reader in (read, read_sentences):
        with pytest.raises(ValueError, match=message):
            reader(write(content, name))


EMPTY_NODE, BEGINS = row("1.1"), "expected a token that begins with word"
CONLLU_FAULTS = [
    ("a number twice", row(1) + row(1), "line 2: expected word 2, got '1'"),
    ("a number left out", row(1) + row(3), "line 2: expected word 2, got '3'"),
    ("begins with 2", row(2), "line 1: expected word 1, got '2'"),
    ("begins with 0", row(0), "line 1: expected word 1, got '0'"),
    ("no number", row("x"), "line 1: expected word 1, got 'x'"),
    ("a number with zeros", row("01"), "line 1: expected word 1, got '01'"),
    ("no columns", row(1) + "no columns\n", "line 2: expected 10 columns separated by"),
    ("nine columns", row(1)[:-3] + "\n", "line 1: expected 10 columns .* got 9"),
    ("eleven columns", row(1, misc="\tx"), "line 1: expected 10 columns .* got 11"),
    ("blanks", row(1).replace("\t", " "), "line 1: expected 10 columns .* by tabs"),
    ("no word", row(1, word=""), "line 1: expected a word, got an empty"),
    ("comments alone", f"# a\n\n{row(1)}", "line 1: expected the words of a sentence"),
    ("an empty node alone", row("0.1"), "line 1: expected the words of a sentence"),
    ("a late comment", row(1) + "# a\n", "line 2: expected comments before the first"),
    ("a comment in a token", row("1-2") + "# a\n", "line 2: expected comments before"),
    ("a token of later words", row("2-3") + row(1), f"line 1: {BEGINS} 1, got 2-3"),
    ("a token of a word", row("1-1") + row(1), f"line 1: {BEGINS} 1, got 1-1"),
    ("a long token", row("1-2") + row(1), "line 2: .* 2 of a token .* 2, got the end"),
    (
        "tokens that overlap",
        row("1-2") + row(1) + row("2-3") + row(2) + row(3),
        f"line 3: {BEGINS} 2, got 2-3",
    ),
    ("an early node", row("1.1") + row(1), "line 1: .* an empty node 0.1, got 1.1"),
    ("a node twice", row(1) + 2 * row("1.1"), "line 3: .* empty node 1.2, got 1.1"),
]


@pytest.mark.parametrize(("name", "content", "message"), CONLLU_FAULTS)
def test_malformed_conllu_is_an_error_in_every_reader(name, content, message, write):
    path = write(content, "a.conllu")
    for reader in (read, read_dependencies):
        with pytest.raises(ValueError, match=f"a.conllu, {message}"):
            reader(path)
    assert re.match(message, read_sentences(path).bad[0])
    faults = []
    dependencies.read_sentences(path, faults.append)
    assert re.search(message, faults[0])
    # the sentences beside it are read
    path = write(f"{CONLLU}\n{content}\n{CONLLU}", "a.conllu")
    count = 2 + (name == "comments alone")
    assert len(read(path, Layout(skip_bad=True)).sentences) == count
    first, *_ = dependencies.read_sentences(path, faults.append)
    assert first.words == ["a", "a", "a"]


def test_bad_sentences_are_left_out_and_counted(write, capsys):
    path = write(f"{TWO}\na\tb\tc\nx\tO\n\n{TWO}\nb\tQ-X\nb\tU-X\n\n")
    good = [TaggedSentence(["Orla", "left"], ["B-PER", "O"])]
    assert read(path, Layout(skip_bad=True)).sentences == 2 * good
    output = capsys.readouterr().err
    assert "left out 2 of 4 sentences" in output
    assert "line 4: expected 2 columns separated by tabs as on line 1, got 3" in output
    lines = write('{"words": ["a"]}\n{"words": ["a"], "tags": ["O"]}', "x.jsonl")
    assert len(read(lines, Layout(skip_bad=True)).sentences) == 1
    with pytest.raises(ValueError, match="expected at least one sentence, got none"):
        read(write("a B-X\nb\n"), Layout(skip_bad=True))


# --- encodings and JSON lines ---


@pytest.mark.parametrize(
    ("encoding", "word"),
    [("latin-1", "Épée"), ("utf-16", "Épée"), ("cp1251", "Орла"), ("gb18030", "日本")],
)
def test_encodings_that_are_named_are_read(write, encoding, word):
    path = write(f"{word} B-LOC\n".encode(encoding))
    assert read(path, Layout(encoding=encoding)).sentences[0].words == [word]


def test_latin_1_is_recognised_with_a_message(write, capsys):
    path = write("Épée B-LOC\n„Ö“ O\n".encode("cp1252"))
    assert read(path).sentences[0].words == ["Épée", "„Ö“"]
    assert f"{path}: not UTF-8, read as latin-1\n" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.jsonl.gz"])
@given(drawn=st.lists(sentences(), min_size=1, max_size=3))
def test_json_lines_are_read(name, drawn, write):
    for keys in (("words", "tags"), ("tokens", "ner_tags"), ("tokens", "labels")):
        lines = [
            json.dumps(dict(zip(keys, sentence, strict=True))) for sentence in drawn
        ]
        content = "\n\n".join(lines).encode()
        path = write(gzip.compress(content) if name.endswith("gz") else content, name)
        assert [(s.words, s.tags) for s in read(path).sentences] == drawn
        assert words_of(path) == [words for words, _ in drawn]


# --- words to be tagged ---


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("Orla left\nTarnholm .\n", "Orla left/Tarnholm ."),
        ("Orla  left\r\n\r\n Tarnholm .", "Orla left/Tarnholm ."),
        ("Orla\nleft\n\n\nTarnholm\n.\n", "Orla left/Tarnholm ."),
        ("Orla\n", "Orla"),
        ("Orla\tleft the\nTarnholm\n", "Orla left the/Tarnholm"),
        ("Orla\tB-PER\nleft\tO\n\nO\tO\n", "Orla left/O"),
        ("take vitamin C\ntake vitamin D\n", "take vitamin C/take vitamin D"),
        ("vitamin O\nis left\n", "vitamin O/is left"),
        ("goals 0\nfouls 0\nis left\n", "goals 0/fouls 0/is left"),
        ("He sent an E-Mail\n", "He sent an E-Mail"),
        ("\n-DOCSTART-\n\nOrla\n-DOCSTART-\nleft\n", "Orla/left"),
        ("1 apple\n2 pears and more\n", "1 apple/2 pears and more"),
        ("#1 fan\nit is\n", "#1 fan/it is"),
        ("1\tOrla\n2\tleft\n\n1\tNo\n", "Orla left/No"),
        ("Orla\tNNP\nleft\tVBD\n", "Orla left"),
        ("Orla,NNP\nleft,VBD\n", "Orla left"),
        ("Orla;B-PER\nleft;O\n", "Orla left"),
        ("Hello,Ada\nYes,Bob\n", "Hello,Ada/Yes,Bob"),
        ("Orla NNP\nleft VBD\n\nno UH\nno UH\n", "Orla left/no no"),
        ("Orla Holm\n\nTarn Wren\n\nAda Orr\n", "Orla Holm/Tarn Wren/Ada Orr"),
        ("7\ta\tX\n8\tb\tX\n\n9\tc\tX\n", "a b/c"),
        ("[CLS] [CLS]\nAda B-PER\n##da X\nmet O\n", "[CLS] Ada ##da met"),
    ],
)
def test_text_words_and_columns_are_told_apart(write, content, words):
    assert words_of(write(content)) == [text.split() for text in words.split("/")]


def test_words_come_from_standard_input(monkeypatch):
    stdin = SimpleNamespace(buffer=io.BytesIO("Orla à Tarnholm\n".encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert words_of("-") == [["Orla", "à", "Tarnholm"]]


COLUMNS = f"{TWO}\na\nb O\n\n{TWO}"
OBJECTS = '{"words": ["a"]}\n{"text": 3}\n{"words": ["b"]}'
ODD = '{"words": ["a"], "tags": ["O", "O"]}'
PARTS = [
    (
        "a.txt",
        b"\xc3\xa9\n\xe9\nso it\n",
        "é/so it",
        "line 2: expected UTF-8, got the b",
    ),
    (
        "a.txt",
        COLUMNS,
        "Orla left/Orla left",
        "line 4: expected 2 columns separated by",
    ),
    ("a.jsonl", OBJECTS, "a/b", f"line 2: expected an object with .*{NO_STRINGS}"),
    (
        "a.jsonl",
        ODD,
        "",
        "line 1: expected a tag for each word, got 1 words and 2 tags",
    ),
]


@pytest.mark.parametrize(("name", "content", "words", "fault"), PARTS)
def test_what_cannot_be_read_leaves_the_other_sentences(
    name, content, words, fault, write
):
    path = write(content, name)
    assert words_of(path) == [text.split() for text in words.split("/") if text]
    (said,) = read_sentences(path).bad
    assert re.match(fault, said)


def test_no_words_are_refused(write, monkeypatch):
    with pytest.raises(ValueError, match=r"corpus\.txt: expected words, got none\. G"):
        read_sentences(write(" \n\t\n"))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    for source, name in (("-", "standard input"), ("/dev/null", "/dev/null")):
        with pytest.raises(ValueError, match=f"{name}: expected words, got none"):
            read_sentences(source)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="a file of tagged words, got nothing"):
        read(tmp_path / "none")
    message = r"expected a file of text, got a folder\. Give a file, or - f"
    with pytest.raises(FileNotFoundError, match=message):
        read_sentences(tmp_path)


# --- evidence of a format ---


@pytest.mark.parametrize(
    ("tags", "written"),
    [
        ("b-per i-per o b-per", "scheme BIO, written as b-type and o"),
        ("PER-B PER-I O PER-B", "scheme BIO, written as TYPE-B and O"),
        ("B_PER I_PER O B_PER", "scheme BIO, written as B_TYPE and O"),
        ("B:PER I:PER 0 B:PER", "scheme BIO, written as B:TYPE and 0"),
        ("PER PER O PER", "scheme IOB1, written as types without prefixes"),
        ("PER PER 0 PER", "scheme IOB1, written as types without prefixes"),
        ("PER PER o PER", "scheme IOB1, written as types without prefixes"),
    ],
)
def test_tags_are_normalised_and_written_back(tags, written, write, capsys):
    path = write("".join(f"a {tag}\n" for tag in tags.split()))
    (sentence,) = read(path).sentences
    first = "I-PER" if "IOB1" in written else "B-PER"
    assert sentence.tags == [first, "I-PER", "O", first]
    assert written in capsys.readouterr().err
    notation = read_sentences(path).notation
    assert [notation.write(tag) for tag in sentence.tags] == tags.split()


TABLES = {
    "kaggle.csv": "Sentence #,Word,POS,Tag\nSentence: 1,Orla,NNP,B-PER\n,left,V,O\n"
    'Sentence: 2,"1,000",CD,O\n,"""",``,O\n',
    "pandas.csv": ",sentence_id,words,labels\n0,4,Orla,B-PER\n1,4,left,O\n"
    '2,5,"1,000",O\n3,5,"""",O\n',
    "semicolons.csv": 'token;ner_tag\nOrla;B-PER\nleft;O\n;\n1,000;O\n";O\n',
    "excel.csv": 'sep=;\ntoken;ner_tag\nOrla;B-PER\nleft;O\n;\n1,000;O\n";O\n',
    "tabs.tsv": 'token\tner\nOrla\tB-PER\nleft\tO\n\n1,000\tO\n""""\tO\n',
    "reversed.tsv": 'LABEL\tToken\nB-PER\tOrla\nO\tleft\n\nO\t1,000\nO\t"\n',
    "cut.tsv": 'token\tner\tlemma\nOrla\tB-PER\tx\nleft\tO\n\n1,000\tO\n"\tO\tx\n',
    "blanks.txt": 'word pos ner\nOrla N B-PER\nleft V O\n\n1,000 N O\n" N O\n',
    "no_header.txt": 'Orla,B-PER\nleft,O\n\n"1,000",O\n"""",O\n',
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_read_by_their_header(name, write):
    path = write(TABLES[name], name)
    words, tags = [["Orla", "left"], ["1,000", '"']], [["B-PER", "O"], ["O", "O"]]
    sentences = read(path).sentences
    assert [s.words for s in sentences] == words_of(path) == words
    assert [s.tags for s in sentences] == tags
    if name == "kaggle.csv":
        assert sentences[0].rows == [("Orla", "NNP"), ("left", "V")]
        assert read(path, Layout("pos")).sentences[0].tags == ["NNP", "V"]
    if name == "pandas.csv":
        assert sentences[0].rows == [("Orla",), ("left",)]


def test_a_comment_of_as_many_columns_is_no_word(write):
    for tags in (["DET", "NOUN"], ["B-PER", "O"]):
        content = f"# doc1\nthe {tags[0]}\nlake {tags[1]}\n\n# doc2\nlake {tags[1]}\n"
        path, words = write(content), [["the", "lake"], ["lake"]]
        assert [s.words for s in read(path).sentences] == words_of(path) == words
    # a tag of words, or the sign's own
    for tag, others in (("O", "B-PER O"), ("B-PER", "B-PER O"), ("#", "NN VB")):
        content = "# {}\nAda {}\n\n# {}\nmet {}\n".format(
            *(tag, others.split()[0], tag, others.split()[1])
        )
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
    path = write(content)
    assert read(path).sentences[0].words[0] == words_of(path)[0][0] == "#"


@pytest.mark.parametrize("tags", ["PER O O LOC LOC", "-LRB- NN VB", "O B-X", "_ NN"])
def test_tables_without_a_header_begin_with_any_tag(tags, write):
    content = "".join(f"a,{tag}\n" for tag in tags.split())
    assert words_of(write(content, "a.csv")) == [["a"] * len(tags.split())]


@pytest.mark.parametrize("space", ["\u00a0", "\u3000", "\u2003"])
def test_other_white_space_is_a_word_in_every_reader(space, write):
    for name, content in {
        "a.txt": f"a\tO\n{space}\tO\n",
        "b.txt": f"a O\n{space} O\n",
        "c.csv": f"word,tag\na,O\n{space},O\n",
        "d.conllu": row(1, pos="X") + row(2, word=space, pos="X"),
        "e.txt": f"a\n{space}\n",
    }.items():
        path = write(content, name)
        assert words_of(path) == [["a", space]]
        if name != "e.txt":
            assert read(path).sentences[0].words == ["a", space]
    (sentence,) = dependencies.read_sentences(path.with_name("d.conllu"), pytest.fail)
    assert sentence.words == ["a", space]


def test_a_type_may_begin_with_a_digit(write):
    path = write("a x B-1st\nb x I-1st\nc x O\n\nd x B-1st\n")
    tags = [["B-1st", "I-1st", "O"], ["B-1st"]]
    assert [s.tags for s in read(path).sentences] == tags


def test_a_field_of_a_table_may_be_long(write):
    long = "x" * 140_000
    path = write(f'word,tag\n"{long},y",B-X\nb,O\n', "a.csv")
    assert read(path).sentences[0].words == [f"{long},y", "b"]


# --- files that are made to fill the memory ---

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
# How each is opened, blocks of bytes, how often the last one comes, what is said.
BOMBS = {
    "sparse": (open, [b""], 0, "line 1: expected at most 1,048,576 bytes in a line"),
    "JSON": (open, [b"{"], 1, "line 1: expected at most 268,435,456 bytes in a line"),
    "line": (open, [b"a O\n", b"x" * 2**20], 100, "line 2: .* most 1,048,576 bytes"),
    "gzip of a line": (
        gzip.open,
        [b"a O\n", b"x" * 2**22],
        1,
        "line 2: expected at most 1,048,576 bytes in a line",
    ),
    "gzip": (gzip.open, [b"a O\n" * 2**18], 65, "at most .* of text, got more. Split"),
}


@pytest.mark.long
def test_bombs_take_little_memory_and_are_one_line_each(tmp_path):
    paths = [tmp_path / f"{name}.txt" for name in BOMBS]
    for path, (opened, blocks, times, _) in zip(paths, BOMBS.values(), strict=True):
        with opened(path, "wb") as file:
            file.writelines([*blocks[:-1], *blocks[-1:] * times])
            if path.stem in ("sparse", "JSON"):
                file.truncate(2**30)
    said = programs.run(sys.executable, "-c", CHILD, *paths).stdout.splitlines()
    for path, (*_, message), line in zip(paths, BOMBS.values(), said, strict=True):
        assert re.match(f"{path}.*{message}", line)


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: expected words, got none"):
        read_sentences(tmp_path / "pipe")
