"""A tagger in a folder: what it answers, and what is said of folders that are not."""

import itertools
import json
import math
import os
import pathlib
import re
import signal
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load as from_bytes
from safetensors.torch import save as as_bytes

import smoothsp
from smoothsp.metrics import spans
from smoothsp.models import Tagger, files, load
from smoothsp.models.features import Vocabulary
from smoothsp.models.network import TaggerNetwork, TaggerSizes
from smoothsp.schemes import convert
from tests.sweeps import thinned

LABELS = ["O", *(f"{p}-{kind}" for kind in ("PER", "LOC") for p in "BIES")]
SENTENCES = [
    ["Ada", "met", "Bob", "."],
    ["Lake", "Holm"],
    [],
    ["x"],
    ["Naïve", "日本", "2"],
]
SIZES = TaggerSizes(word=4, hidden=5)


def made(sizes=SIZES, seed=0):
    torch.manual_seed(seed)
    vocabulary = Vocabulary.from_sentences(SENTENCES, [])
    network = TaggerNetwork(vocabulary, LABELS, sizes)
    with torch.no_grad():
        for p in network.parameters():
            if p.requires_grad:
                p.add_(torch.randn_like(p))
    return Tagger(network, vocabulary, LABELS, {"seed": seed})


@pytest.fixture(scope="module")
def tagger():
    return made()


@pytest.fixture
def folder(tagger, tmp_path):
    tagger.save(tmp_path / "model")
    return tmp_path / "model"


# --- what it answers ---


def test_a_loaded_model_answers_as_the_one_that_was_saved(tagger, folder):
    again = smoothsp.models.load(folder, "cpu")
    options = {"nbest": 3, "confidence": True}
    assert again.tag(SENTENCES, **options) == tagger.tag(SENTENCES, **options)
    assert again.about == {"seed": 0}
    assert again.types == ["LOC", "PER"]
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.json", "model.safetensors", "vocabulary.json"}


@pytest.mark.parametrize("batch_size", [1, 2])
def test_batches_change_nothing(tagger, batch_size, monkeypatch):
    whole = tagger.tag(SENTENCES, confidence=True)
    monkeypatch.setattr("smoothsp.models.tagger.MAX_PAIR_MARGINALS", 1)
    parts = tagger.tag(SENTENCES, confidence=True, batch_size=batch_size)
    for ours, theirs in zip(whole, parts, strict=True):
        assert ours.words == theirs.words
        assert ours.tags == theirs.tags
        assert math.isclose(ours.probability, theirs.probability, rel_tol=1e-4)
        for a, b in zip(ours.spans, theirs.spans, strict=True):
            assert math.isclose(a.confidence, b.confidence, rel_tol=1e-4)


@given(st.integers(0, 1000), st.sampled_from(SENTENCES), st.booleans())
def test_confidences_are_those_of_enumeration(seed, sentence, softmax):
    # without a chain, labels may be ill-formed and read as spans all the same
    tagger = made(TaggerSizes(word=4, hidden=5, softmax=softmax), seed)
    [tagged] = tagger.tag([sentence], nbest=3, confidence=True)
    if not sentence:
        assert (tagged.tags, tagged.spans, tagged.probability) == ([], [], 1.0)
        return
    batch = smoothsp.models.features.Corpus(tagger.vocabulary, [sentence]).batch(
        torch.tensor([0])
    )
    with torch.no_grad():
        chain = tagger.network.head.structure(tagger.network(batch))
        paths = list(itertools.product(range(len(LABELS)), repeat=len(sentence)))
        chances = chain.log_prob(torch.tensor(paths)[None])[0].double().exp()
    found = [spans([LABELS[x] for x in path]) for path in paths]
    # several labellings may read as one tagging, which is listed once
    best = {}
    for path, chance in zip(found, chances.tolist(), strict=True):
        best[frozenset(path)] = max(chance, best.get(frozenset(path), 0))
    ranked = sorted((chance for chance in best.values() if chance > 0), reverse=True)
    listed = [tuple(one.tags) for one in (tagged, *tagged.others)]
    assert len(set(listed)) == len(listed) == min(3, len(ranked))
    for rank, one in enumerate((tagged, *tagged.others)):
        assert math.isclose(one.probability, ranked[rank], rel_tol=1e-3, abs_tol=1e-6)
        for span in one.spans:
            key = (span.type, span.first, span.last)
            within = torch.tensor([key in path for path in found])
            exact = chances[within].sum().item()
            assert math.isclose(span.confidence, exact, rel_tol=1e-3, abs_tol=1e-6)
            assert span.text == " ".join(sentence[span.first : span.last + 1])
        assert {(s.type, s.first, s.last) for s in one.spans} == spans(one.tags)
        assert {tag[0] for tag in one.tags} <= set("BIO")


def test_confidences_of_segments_are_marginals_and_list_no_others():
    tagger = made(TaggerSizes(word=4, hidden=5, longest=200))
    words = SENTENCES[0] * 100
    # what is compiled takes memory, too
    [tagged] = tagger.tag([words], confidence=True)
    tracemalloc.start()
    assert tagger.tag([words], confidence=True) == [tagged]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # 240,000 segments could be
    assert most < 4e6
    corpus = smoothsp.models.features.Corpus(tagger.vocabulary, [words])
    batch = corpus.batch(torch.tensor([0]))
    with torch.no_grad():
        head = tagger.network.head
        chances = head.structure(tagger.network(batch), batch.mask).marginals()[0]
    assert tagged.spans
    for span in tagged.spans:
        place = span.first, span.last - span.first, head.states.index(span.type)
        assert math.isclose(span.confidence, chances[place].item(), rel_tol=1e-4)


def test_independent_labels_are_a_softmax(tmp_path):
    tagger = made(TaggerSizes(word=4, hidden=5, softmax=True))
    tagger.save(tmp_path)
    batch = smoothsp.models.features.Corpus(tagger.vocabulary, SENTENCES[:1]).batch(
        torch.tensor([0])
    )
    with torch.no_grad():
        emissions = tagger.network(batch)
        best = emissions.log_softmax(2).max(2)
    [tagged] = load(tmp_path, "cpu").tag(SENTENCES[:1], confidence=True)
    expected = spans([LABELS[x] for x in best.indices[0].tolist()])
    assert {(s.type, s.first, s.last) for s in tagged.spans} == expected
    assert math.isclose(
        tagged.probability, best.values.sum().exp().item(), rel_tol=1e-4
    )
    assert not any(p.requires_grad for p in tagger.network.head.parameters())


def test_texts_are_cut_into_words(tagger):
    pytest.importorskip("nltk")
    texts = ["Ada met Bob.", "It isn't Holm, is it?"]
    found = tagger.tag(texts)
    assert found[0].words == ["Ada", "met", "Bob", "."]
    assert found[1].words == ["It", "is", "n't", "Holm", ",", "is", "it", "?"]
    assert tagger.tag(texts[0]) == found[:1]


def test_what_shows_a_tagging(tagger):
    [tagged] = tagger.tag([["Ada", "met", "Bob"]], nbest=2, confidence=True)
    assert tagged.columns().split("\n")[:3] == [
        f"{w}\t{t}" for w, t in zip(tagged.words, tagged.tags, strict=True)
    ]
    found = json.loads(tagged.json())
    assert found["tags"] == tagged.tags
    assert found["others"][0]["words"] == tagged.words
    for written, span in zip(found["spans"], tagged.spans, strict=True):
        assert written["confidence"] == float(f"{span.confidence:.2g}")
        assert found["text"][written["start"] : written["end"]] == span.text
    plain = tagged.coloured()
    assert plain.count("\x1b[0m") == 2 * len(tagged.spans)
    assert all(f"[{span.type} " in plain for span in tagged.spans)
    assert tagged.spans


TEXTS = [
    "Ada   met\tBob .",
    " Lake\u00a0Holm, ",
    'it isn\'t "Holm", is it?',
    "Holm at Holm",
    "日本 naïve e\u0301 😀 2",
    "Ada met Bob. He can't.",
]


@pytest.mark.parametrize("tokenizer", ["treebank", "blanks"])
def test_offsets_lead_to_the_words_in_the_users_text(tokenizer, tagger, tmp_path):
    pytest.importorskip("nltk")
    tagger = Tagger(tagger.network, tagger.vocabulary, LABELS, tokenizer=tokenizer)
    tagger.save(tmp_path)
    again = load(tmp_path, "cpu")
    found = again.tag(TEXTS, nbest=3, confidence=True)
    assert found == tagger.tag(TEXTS, nbest=3, confidence=True)
    assert (again.tokenizer == tokenizer) and any(tagged.spans for tagged in found)
    for text, tagged in zip(TEXTS, found, strict=True):
        assert tagged.text == text
        # nothing but white space is left out
        assert "".join(tagged.words) == "".join(text.split())
        for one in (tagged, *tagged.others):
            for span in one.spans:
                assert text[span.start : span.end] == span.text
                inside = "".join(one.words[span.first : span.last + 1])
                assert "".join(span.text.split()) == inside
    assert found[0].words == ["Ada", "met", "Bob", "."]
    assert ("n't" in found[2].words) == (tokenizer == "treebank")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_offsets_of_any_text_are_in_order(text):
    cut = pytest.importorskip("smoothsp.data.word_tokenizers").make_tokenizer
    for name in ("treebank", "blanks"):
        found = cut(name)(text)
        ends = [0, *(end for bounds in found.offsets for end in bounds), len(text)]
        assert ends == sorted(ends)
        assert found.words == [text[a:b] for a, b in found.offsets]
        assert "".join(found.words) == "".join(text.split())


def test_answers_are_in_the_scheme_of_the_tagger(tagger, tmp_path):
    whole = tagger.tag(SENTENCES)
    for scheme in ("IOB1", "BILOU", "plain"):
        Tagger(tagger.network, tagger.vocabulary, LABELS, scheme=scheme).save(tmp_path)
        for ours, theirs in zip(
            load(tmp_path, "cpu").tag(SENTENCES), whole, strict=True
        ):
            assert ours.tags == convert(theirs.tags, source="BIO", target=scheme)
            assert ours.spans == theirs.spans


def test_sentences_are_streamed_in_parts(tagger, monkeypatch):
    monkeypatch.setattr("smoothsp.models.tokenisation.BATCHES_PER_CHUNK", 1)
    taken = []

    def sentences():
        for sentence in 3 * SENTENCES:
            taken.append(sentence)
            yield sentence

    found = tagger.stream(sentences(), batch_size=2)
    assert next(found).words == SENTENCES[0]
    assert len(taken) == 2
    assert [tagged.words for tagged in found] == (3 * SENTENCES)[1:]
    assert tagger.tag(sentences()) == tagger.tag(3 * SENTENCES)


def test_threads_share_a_tagger(tagger):
    expected = tagger.tag(SENTENCES, confidence=True)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(tagger.tag, SENTENCES, 1, True) for _ in range(12)]
        assert all(run.result() == expected for run in runs)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (["Ada", "met"], ValueError, "got a list of single words; write .words."),
        ([["Ada"], "met Bob"], TypeError, "all texts, got str at sentence 1"),
        ([["Ada", 3]], TypeError, "expected words, got int at sentence 0, word 1"),
        ([["Ada", ""]], ValueError, "got an empty one at sentence 0, word 1"),
        ([["a"], ["b", "x\ud83d"]], ValueError, "surrogate pair, .*, at sentence 1"),
        ("a \ud83d b", ValueError, "half of a surrogate pair, .*, at sentence 0"),
        (None, TypeError, "lists of words or texts, got NoneType"),
        ({"text": "Ada"}, TypeError, "lists of words or texts, got dict"),
    ],
)
def test_sentences_that_are_none_are_named(tagger, given, error, message):
    with pytest.raises(error, match=f"sentences: .*{message}"):
        tagger.tag(given)


@pytest.mark.parametrize("word", ["a\nb", "a\tb", "a\r"])
def test_columns_hold_no_word_that_would_break_them(word, tagger):
    (found,) = tagger.tag([["Ada", word]])
    with pytest.raises(ValueError, match="columns: expected words without tabs"):
        found.columns()
    assert json.loads(found.json())["words"] == ["Ada", word]


@pytest.mark.parametrize("name", ["nbest", "batch_size"])
def test_numbers_below_one_are_named(tagger, name):
    with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
        tagger.tag(SENTENCES, **{name: 0})
    for wrong in (None, 1.5, "2"):
        with pytest.raises(TypeError, match=f"{name}: expected an int, got"):
            tagger.tag(SENTENCES, **{name: wrong})


def test_text_without_a_tokenizer_says_that_words_are_expected(tagger, monkeypatch):
    monkeypatch.setattr("smoothsp.data.word_tokenizers.find_spec", lambda name: None)
    message = r"sentences: expected lists of words, got text.*smoothsp\[models\]"
    with pytest.raises(ModuleNotFoundError, match=message):
        tagger.tag("Ada met Bob.")


# --- folders that are damaged ---


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_weights(folder, change):
    """Edit weights, checksums and all."""
    config, content = files.read(folder)
    weights = from_bytes(content["model.safetensors"])
    change(weights)
    content["model.safetensors"] = as_bytes(weights)
    files.write(folder, config, content)


def cut(folder, name):
    path = folder / name
    path.write_bytes(path.read_bytes()[:-9])


def spoil(weights):
    weights["emissions.output.bias"][1] = torch.nan


def shrink(weights):
    weights["emissions.output.bias"] = weights["emissions.output.bias"][1:].clone()


def round_off(weights):
    weights["emissions.output.bias"] = weights["emissions.output.bias"].long()


def round_to_eight_bits(weights):
    bias = weights["emissions.output.bias"]
    weights["emissions.output.bias"] = bias.to(torch.float8_e4m3fn)


def overflow(weights):
    weights["emissions.output.bias"] = weights["emissions.output.bias"].double()
    weights["emissions.output.bias"][1] = 1e300


def edit_vocabulary(folder, **changes):
    config, content = files.read(folder)
    found = json.loads(content["vocabulary.json"]) | changes
    files.write(folder, config, content | {"vocabulary.json": files.encode_json(found)})


def repeat(folder, name):
    """Put the second string in the place of the first, too."""
    found = json.loads((folder / "vocabulary.json").read_text())[name]
    edit_vocabulary(folder, **{name: [found[1], *found[1:]]})


DAMAGE = {
    "no weights": (
        lambda f: (f / "model.safetensors").unlink(),
        "expected a file model.safetensors, got none",
    ),
    "short weights": (
        lambda f: cut(f, "model.safetensors"),
        "model.safetensors: expected the checksum in config.json",
    ),
    "short vocabulary": (
        lambda f: cut(f, "vocabulary.json"),
        "vocabulary.json: expected the checksum in config.json",
    ),
    "short config": (lambda f: cut(f, "config.json"), "config.json: expected JSON"),
    "list": (
        lambda f: (f / "config.json").write_text("[]"),
        "config.json: expected a JSON object, got list",
    ),
    "format": (lambda f: edit_config(f, version=9), "version 1, got .* version 9"),
    "version": (lambda f: edit_config(f, version=True), "version 1, got .* True"),
    "sums": (lambda f: edit_config(f, files=3), "expected the checksums of files"),
    "way out": (
        lambda f: edit_config(f, files={"../x": "0"}),
        "expected names of files as keys of 'files', got '../x'",
    ),
    "no sum": (
        lambda f: edit_config(f, files={}),
        "expected the checksum of model.safetensors",
    ),
    "scheme": (
        lambda f: edit_config(f, scheme="X"),
        "expected scheme to be one of BIO",
    ),
    "tokenizer": (
        lambda f: edit_config(f, tokenizer=3),
        "expected tokenizer to be one of treebank",
    ),
    "labels": (lambda f: edit_config(f, labels=["O", "Q-X"]), "ValueError: labels: "),
    "nested": (
        lambda f: (f / "config.json").write_text("[" * 100_000),
        "config.json: expected JSON, got brackets nested too deep",
    ),
    "a label twice": (
        lambda f: edit_config(f, labels=["O", "S-X", "S-X"]),
        "ValueError: labels: expected each once",
    ),
    "no labels": (lambda f: edit_config(f, labels=[]), "expected labels, got"),
    "sizes": (
        lambda f: edit_config(f, sizes={"wide": 3}),
        "got an invalid one .TypeErr",
    ),
    "no width": (lambda f: edit_config(f, sizes={"word": 0}), "ValueError: word: 0"),
    "no number": (
        lambda f: edit_config(f, sizes={"dropout": "x"}),
        "ValueError: dropout: 'x'",
    ),
    "drops more than all": (
        lambda f: edit_config(f, sizes={"word": 4, "hidden": 5, "dropout": 1.5}),
        "ValueError: dropout: 1.5",
    ),
    "no choice": (
        lambda f: edit_config(f, sizes={"word": 4, "hidden": 5, "softmax": "no"}),
        "ValueError: softmax: 'no'",
    ),
    "vast labels": (
        lambda f: edit_config(f, labels=["O", *(f"S-{n}" for n in range(2_000))]),
        "expected the labels that model.safetensors has weights for, got 2001",
    ),
    "about": (
        lambda f: edit_config(f, about=[1]),
        r"about to be a JSON object, got .1",
    ),
    "integers": (
        lambda f: edit_weights(f, round_off),
        "expected torch.float32 for emissions.output.bias, got torch.int64",
    ),
    "eight bits": (
        lambda f: edit_weights(f, round_to_eight_bits),
        "expected torch.float32 for emissions.output.bias, got torch.float8_e4m3fn",
    ),
    "too large": (
        lambda f: edit_weights(f, overflow),
        "got NaN or infinity in 1 of 9 places of emissions.output.bias",
    ),
    "other sizes": (
        lambda f: edit_config(f, sizes={"word": 5, "hidden": 5}),
        r"expected \(\d+, 5\) for emissions.word.weight as .* got \(\d+, 4\)",
    ),
    "vast": (
        lambda f: edit_config(f, sizes={"word": 4, "hidden": 10**6}),
        r"expected \(4000000, \d+\) for emissions.ahead.weight_ih_l0 .* got \(20, ",
    ),
    "vast segments": (
        lambda f: edit_config(f, sizes={"word": 4, "hidden": 5, "longest": 10**13}),
        r"expected \d+ tensors, got 1 missing \(head.durations\)",
    ),
    "vast window": (
        lambda f: edit_vocabulary(f, buckets=10**13),
        r"expected \(10000000000000, 9\) for emissions.window.weight",
    ),
    "nan": (
        lambda f: edit_weights(f, spoil),
        "got NaN or infinity in 1 of 9 places of emissions.output.bias",
    ),
    "missing key": (
        lambda f: edit_weights(f, lambda w: w.pop("head.transitions")),
        r"expected \d+ tensors, got 1 missing \(head.transitions\)",
    ),
    "one more": (
        lambda f: edit_weights(f, lambda w: w.update(x=torch.ones(1))),
        r"got 1 too many \(x\)",
    ),
    "shape": (lambda f: edit_weights(f, shrink), r"expected \(9,\) .* got \(8,\)"),
    "words": (lambda f: edit_vocabulary(f, words="abc"), "expected lists of strings"),
    "a word twice": (
        lambda f: repeat(f, "words"),
        r"vocabulary.json: expected each of words once, got '\w+' 2 times",
    ),
    "a letter twice": (
        lambda f: repeat(f, "characters"),
        "expected each of characters once, got '.' 2 times",
    ),
    "an ending twice": (
        lambda f: edit_vocabulary(f, affixes=[["lm", "lm"], *[[]] * 6]),
        "expected each of affixes 0 once, got 'lm' 2 times",
    ),
    "field": (lambda f: edit_vocabulary(f, colours=[]), "wrong: colours"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_folder_that_is_damaged_is_refused_with_what_is_wrong(damage, folder):
    harm, message = DAMAGE[damage]
    harm(folder)
    with pytest.raises(ValueError, match=message):
        load(folder)


def test_no_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="the folder of a model, got n"):
        load(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"got no config.json there"):
        load(tmp_path)


@pytest.mark.parametrize("below", ["", "x/y"])
def test_a_folder_that_cannot_be_made_is_named(below, tagger, tmp_path):
    (tmp_path / "notes").write_text("mine")
    place = tmp_path / "notes" / below
    message = f"^{re.escape(str(place))}: expected to write a model, got "
    with pytest.raises(OSError, match=message):
        tagger.save(place)
    assert (tmp_path / "notes").read_text() == "mine"


def test_what_was_left_in_a_folder_that_cannot_be_written_is_named(
    tagger, folder, monkeypatch
):
    (folder / "vocabulary.json.new").write_text("junk")

    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(pathlib.Path, "unlink", refuse)
    with pytest.raises(OSError, match="expected to write a model, got Read-only"):
        tagger.save(folder)


@pytest.mark.parametrize("wrong", ["nope", "cpu:x", "", "cuda:99", "meta", 99])
def test_a_device_that_is_not_there_is_named(wrong, folder):
    with pytest.raises(ValueError, match=f"^device: expected .*, got '.*{wrong}'"):
        load(folder, wrong)
    for wrong in (1.5, True, ["cpu"]):
        with pytest.raises(TypeError, match=r"^device: expected .*, got "):
            load(folder, wrong)


# --- saving that is killed ---


@pytest.mark.parametrize("calls", thinned(range(7), 3, 2))
def test_killed_while_saving_the_folder_has_the_old_model_or_the_new(
    calls, tagger, folder, monkeypatch
):
    other = made(seed=1)
    answers = [t.tag(SENTENCES, confidence=True) for t in (tagger, other)]
    replace, count = os.replace, itertools.count()

    def killing(*arguments):
        if next(count) == calls:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*arguments)

    child = os.fork()
    if not child:
        monkeypatch.setattr(os, "replace", killing)
        other.save(folder)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status == (signal.SIGKILL if calls < 5 else 0)
    # two files beside the old ones, then config.json: from then on it is the new one
    assert load(folder, "cpu").tag(SENTENCES, confidence=True) == answers[calls > 2]
    # and a model is saved over what was left
    tagger.save(folder)
    assert load(folder, "cpu").tag(SENTENCES, confidence=True) == answers[0]
    kept = [path.name for path in folder.iterdir() if not path.name.endswith(".part")]
    assert sorted(kept) == ["config.json", "model.safetensors", "vocabulary.json"]
