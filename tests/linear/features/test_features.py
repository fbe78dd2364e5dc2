"""Templates against a reader that walks every token and joins strings."""

import itertools
import random
import re
import weakref
from collections import Counter

import numpy as np
import pytest
from scipy import sparse

from smoothsp.linear.features import Templates, _token_columns

COLUMNS = ("word", "pos")
TEMPLATES = [
    "word[-2..2]",
    "lower(word)[-1..1]",
    "pos[-2..2]",
    "shape(word)",
    "short_shape(word)[1]",
    "prefix(word, 1..3)",
    "suffix(lower(word), 2)[-1]",
    "pos[-1] & pos",
    "word[-1..0] & pos[0..1]",
    "word[-2] & word[-1] & word & word[1] & word[2]",
    "prefix(word, 2..3) & suffix(word, 2)",
    "bias",
]


HASHES = [11463, 35556, 54873, 9694, 16338, 31431, 3970, 38441, 53647]


def function(name, number, text):
    if name == "lower":
        return text.lower()
    if name == "prefix":
        return text[:number] if len(text) >= number else None
    if name == "suffix":
        return text[len(text) - number :] if len(text) >= number else None
    kinds = "".join(
        "d" if c in "0123456789" else "X" if c.isupper() else "x" if c.isalpha() else c
        for c in text
    )
    if name == "shape":
        return kinds
    return "".join(key for key, _ in itertools.groupby(kinds))


def choices(text):
    """Low to high of ``a..b`` or ``a``."""
    low, _, high = text.partition("..")
    return [str(n) for n in range(int(low), int(high or low) + 1)]


def expanded(template):
    """Templates of single numbers."""
    ranges = re.findall(r"-?\d+\.\.-?\d+", template)
    parts = re.split(r"-?\d+\.\.-?\d+", template)
    for numbers in itertools.product(*map(choices, ranges)):
        yield "".join(a + b for a, b in zip(parts, [*numbers, ""], strict=True))


def value(source, token):
    """What a source such as ``prefix(lower(word), 2)`` makes of a token."""
    nested = re.fullmatch(r"(\w+)\((.*?)(?:, (\d+))?\)", source)
    if nested is None:
        return token[COLUMNS.index(source)]
    inner = value(nested[2], token)
    return None if inner is None else function(nested[1], int(nested[3] or 0), inner)


def slow_features(sentence, position, templates=TEMPLATES):
    """Names of the features of one token."""
    for template in (one for text in templates for one in expanded(text)):
        pieces = []
        for piece in template.split(" & "):
            if piece == "bias":
                pieces.append("bias")
                continue
            source, _, offset = piece.rstrip("]").partition("[")
            at = position + int(offset or 0)
            name = f"{source}[{int(offset or 0)}]"
            if not 0 <= at < len(sentence):
                pieces.append(name)
                continue
            found = value(source, sentence[at])
            pieces.append(None if found is None else f"{name}={found}")
        if None not in pieces:
            yield " & ".join(pieces)


def corpus(seed, sentences=40):
    letters = random.Random(seed)
    words = ["EU", "eu", "Bonn", "1996-08", "x", "naïve", "Ωλ2", "lamb", "lambs", "."]
    return [
        [
            (letters.choice(words), letters.choice(["NN", "DT", "."]))
            for _ in range(letters.randint(1, 9))
        ]
        for _ in range(sentences)
    ]


def tokens(sentences):
    return [(s, p) for s in sentences for p in range(len(s))]


def rows_of(matrix, names):
    matrix = sparse.csr_array(matrix)
    parts = zip(matrix.indptr, matrix.indptr[1:], strict=False)
    return [{names[i] for i in matrix.indices[a:b]} for a, b in parts]


@pytest.mark.parametrize("seed", range(2))
def test_features_are_those_of_a_slow_reader(seed):
    train, other = corpus(seed), corpus(seed + 100)
    templates = Templates(TEMPLATES, COLUMNS)
    matrix = templates.fit_transform(train)
    names = templates.names()
    assert len(set(names)) == len(names) == templates.num_features == matrix.shape[1]
    truth = [set(slow_features(s, p)) for s, p in tokens(train)]
    assert set(names) == set().union(*truth)
    assert rows_of(matrix, names) == truth
    assert (templates.transform(train) != matrix).nnz == 0
    known = set(names)
    unseen = [set(slow_features(s, p)) & known for s, p in tokens(other)]
    assert rows_of(templates.transform(other), names) == unseen
    assert unseen != [set(slow_features(s, p)) for s, p in tokens(other)]


@pytest.mark.parametrize("min_count", [2, 5])
def test_rare_features_are_left_out(min_count):
    train = corpus(0)
    templates = Templates(TEMPLATES, COLUMNS, min_count=min_count)
    matrix = templates.fit_transform(train)
    counts = Counter(name for s, p in tokens(train) for name in slow_features(s, p))
    kept = {name for name, times in counts.items() if times >= min_count}
    assert set(templates.names()) == kept < set(counts)
    truth = [set(slow_features(s, p)) & kept for s, p in tokens(train)]
    assert rows_of(matrix, templates.names()) == truth


@pytest.mark.parametrize("hashing", [None, 50])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_matrices_are_canonical(hashing, dtype):
    matrix = Templates(TEMPLATES, COLUMNS, hashing=hashing, dtype=dtype).fit_transform(
        corpus(1)
    )
    assert matrix.dtype == dtype
    assert matrix.indices.dtype == np.int32
    copy = sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), matrix.shape)
    assert copy.has_canonical_format


def test_hashing_sends_each_feature_to_one_column():
    train = corpus(2)
    # so many columns that no two of these few hundred features meet
    size = 2**31 - 1
    pairs = set()
    for template in TEMPLATES:
        for one in expanded(template):
            matrix = Templates([one], COLUMNS, hashing=size).transform(train)
            names = [list(slow_features(s, p, [one])) for s, p in tokens(train)]
            np.testing.assert_array_equal(np.diff(matrix.indptr), list(map(len, names)))
            flat = [name for row in names for name in row]
            pairs |= set(zip(flat, matrix.indices.tolist(), strict=True))
    names, numbers = zip(*pairs, strict=True)
    assert len(set(names)) == len(set(numbers)) == len(pairs)
    together = Templates(TEMPLATES, COLUMNS, hashing=size).transform(train)
    name_of = dict(zip(numbers, names, strict=True))
    truth = [set(slow_features(s, p)) for s, p in tokens(train)]
    assert rows_of(together, name_of) == truth


def test_features_that_collide_add_up():
    train = corpus(3)
    everything = Templates(TEMPLATES, COLUMNS).fit_transform(train)
    matrix = Templates(TEMPLATES, COLUMNS, hashing=7).transform(train)
    assert matrix.data.max() > 1
    np.testing.assert_array_equal(matrix.sum(axis=1), everything.sum(axis=1))


def test_hashes_are_those_of_every_process():
    # Python's own differ from run to run
    found = Templates(["lower(word)[-1..1] & word"], hashing=2**16 - 1)
    # as first computed: a change here would break every saved model
    assert found.transform([["Ex", "ré", "x"]]).indices.tolist() == HASHES


@pytest.mark.parametrize("options", [{"min_count": 2}, {"hashing": 99}])
def test_saved_templates_do_the_same(options, tmp_path):
    templates = Templates(TEMPLATES, COLUMNS, dtype="float32", **options)
    templates.fit(corpus(4))
    templates.save(tmp_path / "templates.json")
    loaded = Templates.load(tmp_path / "templates.json")
    one, other = (t.transform(corpus(5)) for t in (templates, loaded))
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    assert (one != other).nnz == 0
    assert [path.name for path in tmp_path.iterdir()] == ["templates.json"]


def test_a_failed_fit_keeps_the_last_one():
    templates = Templates(["word"]).fit([["a", "b"]])
    with pytest.raises(ValueError, match="one a column"):
        templates.fit([["c"], [("d", "e")]])
    with pytest.raises(ValueError, match="at least one to fit"):
        templates.fit([])
    assert templates.names() == ["word[0]=a", "word[0]=b"]


def test_names_of_strange_words_stay_apart():
    templates = Templates(["word & word[1]", "word[1]"])
    templates.fit([["a & word[1]=b"], ["a", "b"], ["a\\", "\\&"]])
    names = templates.names()
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("", r"expected a column \(word, pos\) in template '', got the end"),
        ("word[1..]", "expected an integer"),
        ("word[2..1]", "from low to high"),
        ("word[1", "expected ]"),
        ("word &", "expected a column"),
        ("upper(word)", "expected a function"),
        ("prefix(word)", "expected , in"),
    ],
)
def test_templates_that_cannot_be_read(template, message):
    with pytest.raises(ValueError, match=message):
        Templates([template], COLUMNS)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"templates": []}, ValueError, "at least one, got none"),
        ({"templates": "word"}, TypeError, "several strings, got one"),
        ({"templates": ["word[-1..1]", "word"]}, ValueError, r"got word\[0\] twice"),
        ({"columns": ["lower"]}, ValueError, "got 'lower'"),
        ({"hashing": 0}, ValueError, "from 1 to"),
        ({"min_count": 2, "hashing": 9}, ValueError, "expected 1 with hashing"),
        ({"dtype": "int64"}, ValueError, "float64 or float32"),
    ],
)
def test_wrong_arguments(arguments, kind, message):
    with pytest.raises(kind, match=message):
        Templates(**{"templates": ["word"], **arguments})


@pytest.mark.parametrize(
    ("sentences", "kind", "message"),
    [
        ("a b", TypeError, "got a string"),
        (["a b"], TypeError, "got a string"),
        ([[("a", "NN")], [("b", "NN"), ("c",)]], ValueError, "token 1 of sentence 1"),
        ([[("a", "NN"), 3]], ValueError, "got 3 at token 1 of sentence 0"),
        ([["ab", ("a", "NN")]], ValueError, "got 'ab' at token 0 of sentence 0"),
        ([[("a", "NN")], [("b", 7)]], TypeError, "got 7 as pos of token 0 of .* 1"),
    ],
)
def test_wrong_sentences(sentences, kind, message):
    with pytest.raises(kind, match=message):
        Templates(["word", "pos"], COLUMNS).fit(sentences)


def test_files_that_are_none(tmp_path):
    path = tmp_path / "x.json"
    for content, message in (("{", "expected JSON"), ("[1]", "with format")):
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            Templates.load(path)
    with pytest.raises(ValueError, match="without hashing"):
        Templates(["word"], hashing=9).names()


class Counted:
    """Sentences that are made one by one, and how many of them are alive."""

    def __init__(self, sentences):
        self.sentences, self.alive, self.most = sentences, weakref.WeakSet(), 0

    def __iter__(self):
        for words in self.sentences:
            made = Sentence(words)
            self.alive.add(made)
            self.most = max(self.most, len(self.alive))
            yield made


class Sentence(list):
    __hash__ = object.__hash__


def test_sentences_of_an_iterator_are_read_some_at_a_time(monkeypatch):
    monkeypatch.setattr(_token_columns, "_SENTENCES_PER_BATCH", 4)
    rng = np.random.default_rng(0)
    text = [
        [(str(w), str(w % 3)) for w in rng.integers(9, size=rng.integers(0, 5))]
        for _ in range(50)
    ]
    given = ["word[-1..1]", "pos & word", "bias"]
    whole = Templates(given, ["word", "pos"])
    expected = whole.fit_transform(text)
    for options in ({}, {"hashing": 64}):
        part, counted = Templates(given, ["word", "pos"], **options), Counted(text)
        found = part.fit_transform(iter(counted))
        assert counted.most <= 8
        np.testing.assert_array_equal(found.lengths, expected.lengths)
        other = expected
        if options:
            other = Templates(given, ["word", "pos"], **options).transform(text)
        assert (found != other).nnz == 0
        assert (part.transform(iter(text)) != other).nnz == 0
        wrong = iter([*text, [("a", "b"), ("a",)]])
        with pytest.raises(ValueError, match="at token 1 of sentence 50"):
            part.transform(wrong)
    assert whole.names() == Templates(given, ["word", "pos"]).fit(iter(text)).names()
