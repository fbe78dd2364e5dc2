import io
import os
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from corpora import conll
from corpora.conll import Sentence

SCHEMES = ["IOB1", "BIO", "BIOES"]
TYPES = ["PER", "LOC", "creative-work"]

FOUR_COLUMNS = """\
-DOCSTART- -X- -X- O

Tarnholm NNP B-NP I-LOC
sleeps VBZ B-VP O

-DOCSTART- -X- -X- O

Orla NNP B-NP I-PER
Wren NNP I-NP I-PER
Thorne NNP I-NP B-PER
left VBD B-VP O
"""
SENTENCES = [
    Sentence(["Tarnholm", "sleeps"], ["I-LOC", "O"]),
    Sentence(["Orla", "Wren", "Thorne", "left"], ["I-PER", "I-PER", "B-PER", "O"]),
]


@pytest.fixture
def write(tmp_path):
    def write(content, name="corpus.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


# Reading


def test_four_columns_are_read_without_docstart_lines(write):
    assert conll.read(write(FOUR_COLUMNS)) == SENTENCES


@pytest.mark.parametrize(
    "changed",
    [
        FOUR_COLUMNS.replace(" ", "\t"),
        FOUR_COLUMNS.replace(" ", "   "),
        FOUR_COLUMNS.replace("\n", "\r\n"),
        FOUR_COLUMNS.replace("\n", "\r"),
        FOUR_COLUMNS.replace("\n", " \n"),
        FOUR_COLUMNS.replace("\n\n", "\n\t\n \n"),
        FOUR_COLUMNS.replace("\n\n", "\n"),
        FOUR_COLUMNS.rstrip("\n"),
        "\n\n" + FOUR_COLUMNS,
        "\ufeff" + FOUR_COLUMNS,
    ],
    ids=[
        "tabs",
        "several spaces",
        "CRLF",
        "CR",
        "trailing spaces",
        "blank lines with white space",
        "only DOCSTART ends a sentence",
        "no last newline",
        "leading blank lines",
        "byte order mark",
    ],
)
def test_small_differences_of_layout_change_nothing(write, changed):
    assert conll.read(write(changed)) == SENTENCES


def test_two_columns_are_read(write):
    path = write("Tarnholm\tI-LOC\nsleeps\tO\n\n")
    assert conll.read(path) == SENTENCES[:1]


def test_only_tabs_part_the_columns_of_a_line_that_has_one(write):
    path = write("Lake Orla\tB-LOC\n\u00a0\tO\n\u2028\tO\nété\tO\n")
    assert conll.read(path)[0].words == ["Lake Orla", "\u00a0", "\u2028", "été"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "a O\n\nb X O\n",
            r"corpus\.txt, line 3: expected 2 columns as on line 1, got 3",
        ),
        ("a O\nb\n", r"corpus\.txt, line 2: expected 2 .*, got 1 \('b'\)\. Part the"),
        ("a\n", r"line 1: expected 2 columns or more, .*, got 1 \('a'\)"),
        ("a O\n\tO\n", r"line 2: expected a word .*, got an empty one\. Write the"),
        ("a O\nb B\n", r"line 2: expected the tag .*, got 'B'\. Convert the file"),
        ("a B-\n", r"line 1: expected the tag .*, got 'B-'"),
        ("a U-PER\n", r"line 1: expected the tag .*, got 'U-PER'.*BILOU"),
        ("a b-PER\n", r"line 1: expected the tag .*, got 'b-PER'"),
        ("", r"corpus\.txt: expected at least one sentence, got none\. Is this"),
        ("\n-DOCSTART- -X- O O\n\n", r"corpus\.txt: expected at least one sentence"),
        (b"a O\n\0 O\n", r"line 2: expected text, got the byte 0x00\. Is it another"),
        (b"a O\n\xe9t\xe9 O\n", r"line 2: expected UTF-8, got the byte 0xe9\. Save"),
    ],
)
def test_a_bad_file_is_refused_in_words(write, content, message):
    with pytest.raises(ValueError, match=message):
        conll.read(write(content))


# Schemes


@st.composite
def span_lists(draw):
    """Spans (type, first, last) in order, and the length of their sentence."""
    parts = st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from(TYPES))
    spans, position = [], 0
    for gap, length, kind in draw(st.lists(parts, max_size=6)):
        position += gap
        spans.append((kind, position, position + length - 1))
        position += length
    return spans, position + draw(st.integers(0, 2))


def written_out(spans, length, scheme):
    """The tags of some spans by the definition of the scheme, span by span."""
    tags = ["O"] * length
    for kind, first, last in spans:
        touches = any(k == kind and end == first - 1 for k, _, end in spans)
        for t in range(first, last + 1):
            tags[t] = f"I-{kind}"
        if scheme != "IOB1" or touches:
            tags[first] = f"B-{kind}"
        if scheme == "BIOES":
            tags[last] = f"E-{kind}" if last > first else f"S-{kind}"
    return tags


quick = settings(derandomize=True, deadline=None, max_examples=50)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("to", SCHEMES)
@quick
@given(drawn=span_lists())
def test_conversion_keeps_the_spans_and_writes_the_scheme(drawn, scheme, to):
    spans, length = drawn
    tags = written_out(spans, length, scheme)
    converted = conll.convert(tags, to, scheme)
    assert converted == written_out(spans, length, to)
    assert conll.convert(converted, scheme, to) == tags
    assert get_entities(converted) == spans or to == "IOB1"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("to", SCHEMES)
@quick
@given(data=st.data())
def test_any_tags_keep_the_spans_that_seqeval_sees(data, scheme, to):
    prefixes = conll.PREFIXES[scheme]
    possible = ["O", *(f"{p}-{kind}" for p in prefixes for kind in TYPES)]
    tags = data.draw(st.lists(st.sampled_from(possible), max_size=12))
    converted = conll.convert(tags, to, scheme)
    assert get_entities(converted) == get_entities(tags)
    assert converted == written_out(get_entities(tags), len(tags), to)
    assert conll.convert(converted, to, to) == converted


def test_inside_after_outside_or_another_type_begins_a_span():
    tags = ["I-PER", "I-LOC", "O", "I-LOC", "B-LOC"]
    expected = ["B-PER", "B-LOC", "O", "B-LOC", "B-LOC"]
    assert conll.convert(tags, "BIO", "IOB1") == expected
    assert conll.convert(tags, "BIO", "BIO") == expected


def test_conversion_refuses_what_the_scheme_lacks():
    with pytest.raises(
        ValueError, match="to: expected IOB1, BIO or BIOES, got 'IOBES'"
    ):
        conll.convert(["O"], "IOBES", "BIO")
    with pytest.raises(ValueError, match=r"scheme: expected .*, got 'bio'"):
        conll.convert(["O"], "BIO", "bio")
    with pytest.raises(
        ValueError, match=r"tags: .*BIO\), got 'S-PER' at position 1\. F"
    ):
        conll.convert(["O", "S-PER"], "BIOES", "BIO")
    with pytest.raises(ValueError, match=r"tags: expected .*, got '' at position 0"):
        conll.convert([""], "BIOES", "BIO")


@pytest.mark.parametrize("scheme", SCHEMES)
@quick
@given(drawn=st.lists(span_lists(), max_size=4))
def test_the_scheme_of_any_corpus_is_found(drawn, scheme):
    corpus = [([("PER", 0, 1)], 2), *drawn]
    tags = [written_out(spans, length, scheme) for spans, length in corpus]
    assert conll.detect_scheme([Sentence(["w"] * len(t), t) for t in tags]) == scheme


def test_a_slip_does_not_change_the_scheme():
    tags = ["I-PER", "O", "I-LOC", "O", "B-LOC"]
    assert conll.detect_scheme([Sentence(["w"] * 5, tags)]) == "IOB1"
    tags = ["B-PER", "O", "B-LOC", "O", "I-LOC"]
    assert conll.detect_scheme([Sentence(["w"] * 5, tags)]) == "BIO"
    assert conll.detect_scheme([Sentence(["w"], ["O"])]) == "BIO"


# Finding the files of a corpus


@pytest.mark.parametrize(
    "names",
    [
        ("eng.train", "eng.testa", "eng.testb"),
        ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
        ("train", "dev", "test"),
        ("train.txt", "valid.txt", "test.txt"),
        ("train.conll", "dev.conll", "test.conll"),
        ("train.tsv", "dev.tsv", "test.tsv"),
        ("train.iob", "valid.iob", "test.iob"),
        ("train.bio", "dev.bio", "test.bio"),
    ],
)
def test_the_usual_names_are_found_with_and_without_a_test_file(write, tmp_path, names):
    train, dev = (write("a O\n", name) for name in names[:2])
    write("a O\n", "unrelated.txt")
    assert conll.find_splits(tmp_path) == conll.SplitFiles(train, dev, None)
    test = write("a O\n", names[2])
    assert conll.find_splits(str(tmp_path)) == conll.SplitFiles(train, dev, test)


def test_files_of_different_families_are_not_mixed(write, tmp_path):
    write("a O\n", "eng.train")
    write("a O\n", "dev.conll")
    train, dev = write("a O\n", "train.txt"), write("a O\n", "dev.txt")
    write("a O\n", "test.conll")
    assert conll.find_splits(tmp_path) == conll.SplitFiles(train, dev, None)


def test_a_folder_without_a_corpus_is_described(write, tmp_path):
    write("a O\n", "train.txt")
    write("a O\n", "holdout.txt")
    message = r"got holdout.txt, train.txt\. Looked for eng.train with .*Rename"
    with pytest.raises(FileNotFoundError, match=message):
        conll.find_splits(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="got an empty folder"):
        conll.find_splits(tmp_path / "empty")
    with pytest.raises(
        FileNotFoundError, match=r"nowhere: expected a folder.*got nothing"
    ):
        conll.find_splits(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="got a file"):
        conll.find_splits(tmp_path / "train.txt")


def test_all_splits_are_loaded_in_one_scheme(write, tmp_path):
    write(FOUR_COLUMNS, "eng.train")
    write("Orla\tB-PER\nWren\tI-PER\n", "eng.testa")
    write("Orla\tS-PER\nin\tO\nUtopia\tS-CREED\n", "eng.testb")
    splits = conll.load(tmp_path)
    assert splits.scheme == "BIOES"
    assert [s.tags for s in splits.train] == [
        ["S-LOC", "O"],
        ["B-PER", "E-PER", "S-PER", "O"],
    ]
    assert splits.dev[0].tags == ["B-PER", "E-PER"]
    assert splits.test[0].tags == ["S-PER", "O", "S-CREED"]
    assert splits.labels == ["O", *(f"{p}-{t}" for t in ("LOC", "PER") for p in "BIES")]
    bio = conll.load(tmp_path, "BIO")
    assert bio.train[1].tags == ["B-PER", "I-PER", "B-PER", "O"]
    assert bio.labels == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]


def test_a_corpus_without_test_file_is_loaded(write, tmp_path):
    write("a O\n", "train")
    write("a O\n", "dev")
    assert conll.load(tmp_path).test is None


# Words to be tagged


@pytest.mark.parametrize(
    ("content", "sentences"),
    [
        ("Orla left\nTarnholm .\n", [["Orla", "left"], ["Tarnholm", "."]]),
        ("Orla  left\r\n\r\n Tarnholm .", [["Orla", "left"], ["Tarnholm", "."]]),
        ("Orla\nleft\n\n\nTarnholm\n.\n", [["Orla", "left"], ["Tarnholm", "."]]),
        ("Orla\n", [["Orla"]]),
        ("Orla\tleft the\nTarnholm\n", [["Orla", "left", "the"], ["Tarnholm"]]),
        (FOUR_COLUMNS, [s.words for s in SENTENCES]),
        ("Orla\tB-PER\nleft\tO\n\nO\tO\n", [["Orla", "left"], ["O"]]),
        ("take vitamin O\ntake vitamin O\n", 2 * [["take", "vitamin", "O"]]),
        ("vitamin O\nis left\n", [["vitamin", "O"], ["is", "left"]]),
        ("\n-DOCSTART-\n\nOrla\n-DOCSTART-\nleft\n", [["Orla"], ["left"]]),
    ],
)
def test_the_layout_of_words_is_told_from_the_lines(write, content, sentences):
    assert conll.read_words(write(content)) == sentences


def test_words_come_from_standard_input(monkeypatch):
    stdin = SimpleNamespace(buffer=io.BytesIO("Orla à Tarnholm\n".encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert conll.read_words("-") == [["Orla", "à", "Tarnholm"]]


def test_words_come_from_what_a_shell_makes_of_a_command(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("Orla B-PER\n",))
    writer.start()
    assert conll.read_words(pipe) == [["Orla"]]
    writer.join()


def test_no_words_are_refused(write, monkeypatch):
    with pytest.raises(
        ValueError, match=r"corpus\.txt: expected words .*got none\. Give"
    ):
        conll.read_words(write(" \n\t\n"))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    with pytest.raises(ValueError, match="standard input: expected words to tag"):
        conll.read_words("-")
    with pytest.raises(ValueError, match="/dev/null: expected words to tag, got none"):
        conll.read_words("/dev/null")
    with pytest.raises(ValueError, match="line 1: expected UTF-8"):
        conll.read_words(write(b"\xff\xfeO"))
