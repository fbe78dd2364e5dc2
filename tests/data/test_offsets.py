"""Character spans of annotation tools: read, and as tags of words."""

import gzip
import json
import time

import numpy as np
import pytest

from smoothsp.data import AnnotatedText, Unaligned, read_spans, read_tagged, tag_words

TEXT = "Orla Wren left Tarnholm."
SPANS = [(0, 9, "PER"), (15, 23, "LOC")]
WORDS = ["Orla", "Wren", "left", "Tarnholm", "."]
TAGS = ["B-PER", "I-PER", "O", "B-LOC", "O"]
TOKENS = [(0, 4), (5, 9), (10, 14), (15, 23), (23, 24)]


def named(start="start", end="end", label="label"):
    return [dict(zip((start, end, label), span, strict=True)) for span in SPANS]


def label_studio(key, text=TEXT, shift=0):
    result = [
        {
            "value": {
                "start": start + shift,
                "end": end + shift,
                "text": TEXT[start:end],
                "labels": [label],
            },
            "type": "labels",
        }
        for start, end, label in SPANS
    ]
    relation = {"type": "relation", "from_id": "a", "to_id": "b", "labels": ["x"]}
    choice = {"type": "choices", "value": {"start": 0, "end": 4, "choices": ["x"]}}
    rating = {"type": "rating", "value": {"rating": 4}}
    cancelled = {"was_cancelled": True, "result": []}
    task = {
        "data": {"text": text},
        key: [cancelled, {"result": [*result, relation, choice, rating]}],
    }
    return json.dumps([task, {"data": {"text": "skipped"}, key: []}])


BRAT = "T1\tPER 0 9\tOrla Wren\nR1\tin Arg1:T1 Arg2:T2\nT2\tLOC 15 23\tTarnholm\n#1 x\n"
LISTS = [list(span) for span in SPANS]
FILES = {
    "doccano.jsonl": json.dumps({"id": 1, "text": TEXT, "label": LISTS}),
    "older.jsonl": json.dumps({"data": TEXT, "labels": LISTS}),
    "relations.jsonl": json.dumps(
        {"text": TEXT, "entities": named("start_offset", "end_offset"), "relations": []}
    ),
    "prodigy.jsonl": json.dumps(
        {
            "text": TEXT,
            "tokens": [{"start": a, "end": b} for a, b in TOKENS],
            "spans": named(),
            "answer": "accept",
        }
    )
    + "\n\n"
    + json.dumps({"text": "no", "spans": [], "answer": "reject"}),
    "label_studio.json": label_studio("annotations"),
    "completions.json": label_studio("completions"),
    "minimal.json": json.dumps([{"text": TEXT, "label": named(label="labels")}]),
    "brat.ann": BRAT,
}


@pytest.fixture
def write(tmp_path):
    def write(content, name):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if path.suffix == ".ann":
            path.with_suffix(".txt").write_text(TEXT)
        return path

    return write


@pytest.mark.parametrize("name", FILES)
def test_files_of_annotation_tools_are_recognised(name, write, capsys):
    path = write(FILES[name], name)
    (text,) = read_spans(path)
    assert (text.text, sorted(text.spans)) == (TEXT, SPANS)
    (sentence,) = read_tagged(path)
    assert (sentence.words, sentence.tags) == (WORDS, TAGS)
    assert "read as 1 texts with 2 spans, of which 0 have" in capsys.readouterr().err


def test_files_may_be_compressed_and_those_of_brat_are_found_by_the_text(write):
    path = write(gzip.compress(FILES["doccano.jsonl"].encode()), "a.jsonl.gz")
    assert read_tagged(path)[0].tags == TAGS
    path = write(BRAT, "a.ann")
    assert read_tagged(path.with_suffix(".txt"))[0].tags == TAGS
    write(BRAT.replace("PER", "X"), "b.ann")
    assert [s.tags[0] for s in read_tagged(path.parent)] == ["B-PER", "B-X"]
    assert [s.document for s in read_tagged(path.parent)] == [0, 1]


def test_places_that_a_browser_counted_are_found_by_their_words(write):
    # a smile is two units of UTF-16
    path = write(label_studio("annotations", f"\U0001f600 {TEXT}", 3), "a.json")
    assert read_tagged(path)[0].tags == ["O", *TAGS]
    # as Python counts
    path = write(label_studio("annotations", f"\U0001f600 {TEXT}", 2), "a.json")
    assert read_tagged(path)[0].tags == ["O", *TAGS]


def test_lines_are_sentences_and_texts_documents():
    texts = [("a b\r\n\r\nc d", [(0, 3, "X"), (7, 8, "Y")]), ("e", [])]
    sentences, unaligned = tag_words(texts, tokenizer="blanks")
    assert [(s.words, s.tags, s.document) for s in sentences] == [
        (["a", "b"], ["B-X", "I-X"], 0),
        (["c", "d"], ["B-Y", "O"], 0),
        (["e"], ["O"], 1),
    ]
    assert unaligned == []


@pytest.mark.parametrize(
    ("span", "reason"),
    [
        ((1, 4, "X"), "cuts a word"),
        ((0, 6, "X"), "cuts a word"),
        ((3, 3, "X"), "is empty"),
        ((4, 5, "X"), "is empty"),
        ((9, 40, "X"), "is outside of the text"),
        ((-4, 4, "X"), "is outside of the text"),
        ((4, 0, "X"), "is outside of the text"),
        ((5, 9, "X"), "overlaps another"),
        ((5, 23, "X"), "overlaps another"),
        ((15, 28, "X"), "reaches over the end of a line"),
    ],
)
def test_spans_without_tags_are_returned_with_the_reason(span, reason):
    text = f"{TEXT}\nBye now"
    # the outer one of two has tags
    other = [(0, 9, "PER")] if "overlaps" in reason else []
    for tokenizer in ("blanks", "treebank"):
        found = tag_words([("", []), (text, [*other, span])], tokenizer=tokenizer)
        assert found[1] == [Unaligned(1, span, reason)]
        tags = [tag for s in found[0] for tag in s.tags if tag != "O"]
        assert tags == ["B-PER", "I-PER"] * len(other)


def test_words_are_cut_where_a_span_parts_them_from_punctuation():
    text = "(Orla) left U.S. Tarnholm, x-ray"
    spans = [(1, 5, "A"), (17, 25, "B"), (27, 28, "C")]
    (sentence,), unaligned = tag_words([(text, spans)], tokenizer="blanks")
    words = ["(", "Orla", ")", "left", "U.S.", "Tarnholm", ",", "x-ray"]
    assert sentence.words == words
    assert sentence.tags == ["O", "B-A", "O", "O", "O", "B-B", "O", "O"]
    assert unaligned == [Unaligned(0, (27, 28, "C"), "cuts a word")]


def test_blanks_at_the_ends_of_spans_and_doubles_do_not_matter():
    texts = [(TEXT, [(0, 10, "PER"), (0, 10, "PER"), (14, 23, "LOC")])]
    (sentence,), unaligned = tag_words(texts)
    assert (sentence.tags, unaligned) == (TAGS, [])


def test_given_words_are_kept():
    text = AnnotatedText("a,b c", [(0, 1, "X"), (2, 5, "Y")], [(0, 3), (4, 5)])
    (sentence,), unaligned = tag_words([text])
    assert sentence.words == ["a,b", "c"]
    assert [one.reason for one in unaligned] == ["cuts a word", "cuts a word"]


def test_what_a_file_does_not_tell_as_one_span_is_named(write, capsys):
    path = write("T1\tX 0 4;10 14\tOrla left\nT2\tY 5 9\tWren\n", "a.ann")
    (sentence,) = read_tagged(path)
    assert sentence.tags == ["O", "B-Y", "O", "O", "O"]
    err = capsys.readouterr().err
    assert f"{path}: no tags for X from 0 to 14" in err
    assert "is discontinuous" in err and "of which 1 have no tags" in err
    value = {"start": 0, "end": 4, "labels": ["A", "B"]}
    task = [{"data": {"x": TEXT}, "annotations": [{"result": [{"value": value}]}]}]
    path = write(json.dumps(task), "a.json")
    assert set(read_tagged(path)[0].tags) == {"O"}
    assert f"{path}, text 1: no tags for A from 0 to 4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.ann", "T1\tPER 0 9\tOrla Wren\nT2\tLOC 10 14\tTarn\n"),
        (
            "a.jsonl",
            json.dumps(
                {
                    "text": TEXT,
                    "spans": [
                        {"start": 0, "end": 9, "label": "PER", "text": "Orla\nWren"},
                        {"start": 10, "end": 14, "label": "LOC", "text": "Tarn"},
                    ],
                }
            ),
        ),
        ("a.json", label_studio("annotations", TEXT.replace("Tarnholm", "there on"))),
    ],
)
def test_spans_of_other_words_than_the_file_says_have_no_tags(
    name, content, write, capsys
):
    (sentence,) = read_tagged(write(content, name))
    assert set(sentence.tags) == {"B-PER", "I-PER", "O"}
    assert "which differs from its words in the file, 'Tarn" in capsys.readouterr().err


def test_white_space_in_labels_of_files_is_written_as_a_line(write):
    path = write(json.dumps({"text": TEXT, "label": [[0, 4, "first name"]]}), "a.jsonl")
    assert read_tagged(path)[0].tags[0] == "B-first_name"


@pytest.mark.parametrize("places", ["words", "lines", "pieces"])
def test_many_spans_of_one_text_take_no_quadratic_time(places):
    between = {"words": " ", "lines": "\n", "pieces": "-"}[places]
    count = 8_000
    spans = [(2 * n, 2 * n + 1, "X") for n in range(count)]
    begin = time.process_time()
    texts = [(between.join("a" * count), spans)]
    sentences, unaligned = tag_words(texts, tokenizer="blanks")
    # 20 s if it did
    assert time.process_time() - begin < 5
    tags = [tag for one in sentences for tag in one.tags if tag != "O"]
    assert tags == ["B-X"] * count and not unaligned


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a b", "texts: expected texts with their spans, got str"),
        (3, "texts: expected texts with their spans, got int"),
        (["ab"], r"texts\[0\]: expected a text and its spans, got 'ab'"),
        ([("a", []), ("a",)], r"texts\[1\]: expected a text and its spans, got"),
        ([(3, [])], r"texts\[0\]: expected text, got int"),
        ([("a\ud800", [])], r"texts\[0\]: expected text, got half of a surrogate pair"),
        ([("a", 3)], r"texts\[0\], spans: expected a list, got int"),
        ([("a", ["X"])], r"texts\[0\], spans: expected start, end and label, got X"),
        ([("a", [(0, 1.0, "X")])], r"texts\[0\], spans: expected whole numbers as st"),
        ([("a", [(False, 1, "X")])], r"texts\[0\], spans: expected whole numbers as"),
        (
            [AnnotatedText("a", [(0, 1, "O")], name="f, line 3")],
            "f, line 3, spans: exp",
        ),
        *(
            ([("a", [(0, 1, label)])], r"texts\[0\], spans: expected labels other than")
            for label in (None, "", "O", "a b", "a\n", 3, "\ud800")
        ),
    ],
)
def test_what_is_wrong_with_texts_and_spans_is_named(texts, message):
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        tag_words(texts, tokenizer="blanks")
    str(caught.value).encode()
    assert "\n" not in str(caught.value)


def test_numbers_of_spans_may_be_those_of_numpy():
    (sentence,), _ = tag_words([(TEXT, [(np.int64(0), np.int64(4), "X")])])
    assert sentence.tags[0] == "B-X"


@pytest.mark.parametrize("read", [tag_words, read_tagged])
def test_a_tokenizer_that_there_is_not_is_refused(read, tmp_path):
    (tmp_path / "a.txt").write_text("a B-X\n")
    with pytest.raises(ValueError, match="tokenizer: expected treebank or blanks, got"):
        read(tmp_path / "a.txt" if read is read_tagged else [], tokenizer="x")


GOOD = FILES["doccano.jsonl"] + "\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", GOOD + "{", "line 2: expected JSON, got Expecting"),
        ("a.jsonl", GOOD + "\n3", "line 3: expected an object with a text and its sp"),
        (
            "a.jsonl",
            GOOD + '{"text": "a"}',
            "line 2: expected spans, entities, label o",
        ),
        ("a.jsonl", '{"text": 3, "label": []}', "line 1: expected a string as text, g"),
        (
            "a.jsonl",
            '{"text": "a", "label": 3}',
            "line 1: expected a list of spans, go",
        ),
        ("a.jsonl", '{"text": "a", "label": [3]}', "line 1: expected start, end and l"),
        (
            "a.jsonl",
            '{"text": "a", "label": [["0", 1, "X"]]}',
            "line 1: expected numbers as start and end, got",
        ),
        (
            "a.jsonl",
            '{"text": "a", "label": [[0, 1, ""]]}',
            "line 1: expected a label of a span, got",
        ),
        (
            "a.jsonl",
            '{"text": "ab", "spans": [], "tokens": [{"start": 1, "end": 3}]}',
            "line 1: expected tokens one after another within the text",
        ),
        ("a.json", "[" * 10**5, "a.json: expected JSON, got maximum recursion"),
        ("a.json", "[]", "a.json: expected at least one annotated text, got none"),
        (
            "a.json",
            '[{"data": {}, "annotations": [3]}]',
            "text 1: expected objects as of L",
        ),
        (
            "a.json",
            '[{"data": {"a": "", "b": ""}, "annotations": [{"result": []}]}]',
            "text 1: expected a string as text, got",
        ),
        ("a.ann", "T1\tX 0\ta\n", "a.ann, line 1: expected T1, a tab, label, start an"),
    ],
)
def test_a_bad_record_is_named_with_file_and_line(name, content, message, write):
    path = write(content, name)
    with pytest.raises(ValueError, match=message) as caught:
        read_tagged(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_the_text_of_a_file_of_brat_must_be_there(write):
    path = write(BRAT, "a.ann")
    path.with_suffix(".txt").write_bytes(b"\xe9")
    with pytest.raises(ValueError, match=r"a\.txt: expected UTF-8, got"):
        read_tagged(path)
    path.with_suffix(".txt").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"a\.txt: expected the text of .*a\.ann"
    ):
        read_tagged(path)
