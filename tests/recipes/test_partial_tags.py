"""What words without a tag may be, against all taggings that fit."""

import itertools

import pytest

from conll_ner import Config, main
from smoothsp.data import TaggedSentence
from smoothsp.data.columns import read
from smoothsp.models import load
from smoothsp.models.partial_labels import allowed_labels, longest_segment
from smoothsp.schemes import convert
from tests.recipes.runs import numbers


def every_tagging(n, scheme):
    """Well-formed taggings of n words with two types, in the scheme and in BIOES."""
    labels = ["O", *(f"{p}-{kind}" for kind in "XY" for p in "BIES")]
    seen = set()
    for tags in itertools.product(labels, repeat=n):
        whole = convert(list(tags), source="BIOES", target="BIOES", strict=False)
        if tuple(whole) not in seen:
            seen.add(tuple(whole))
            yield convert(whole, source="BIOES", target=scheme), whole


@pytest.mark.parametrize("scheme", ["IOB1", "BIO", "BIOES", "BILOU", "BMEWO"])
def test_a_word_may_be_what_fits_its_neighbours(scheme):
    known = list(every_tagging(3, scheme))
    labels = {label for _, whole in known for label in whole}
    for hidden in [(1,), (0, 2), (2,), (0,)]:
        for tags, _ in known:
            given = [None if n in hidden else tag for n, tag in enumerate(tags)]
            found = allowed_labels(given, scheme)
            fitting = [
                whole
                for others, whole in known
                if all(a in (None, b) for a, b in zip(given, others, strict=True))
            ]
            listed = [
                whole
                for _, whole in known
                if all(
                    not a or b in a.split("\t")
                    for a, b in zip(found, whole, strict=True)
                )
            ]
            if scheme == "IOB1":
                # I- after an unknown word depends on which it is
                assert all(whole in listed for whole in fitting), given
            else:
                assert sorted(listed) == sorted(fitting), given
            assert all(not a or set(a.split("\t")) <= labels for a in found)


def test_the_longest_segment_has_room_for_what_must_be_one():
    for tags, most in (
        (["B-X", "I-X", "E-X", "S-X", "O"], 3),
        (["O", "B-X", "", "", "E-X", "O"], 4),
        (["", "", "O"], 1),
    ):
        sentence = TaggedSentence([str(n) for n in range(len(tags))], tags)
        assert longest_segment([sentence.tags]) >= most
    whole = TaggedSentence(list("abcd"), ["B-X", "E-X", "S-X", "O"])
    assert longest_segment([whole.tags]) == 2


@pytest.fixture(scope="module")
def halved(data, tmp_path_factory):
    """The corpus, each third word of training without its tag."""
    folder = tmp_path_factory.mktemp("halved")
    for name in ("train", "dev"):
        lines = []
        for number, sentence in enumerate(read(f"{data}/{name}.txt").sentences):
            pairs = zip(sentence.words, sentence.tags, strict=True)
            for place, (word, tag) in enumerate(pairs):
                hide = name == "train" and (number + place) % 3 == 0
                lines.append(f"{word} {'?' if hide else tag}")
            lines.append("")
        (folder / f"{name}.txt").write_text("\n".join(lines))
    return folder


@pytest.mark.parametrize(
    ("structure", "loss"),
    [pytest.param("chain", "hinge", marks=pytest.mark.long), ("semi-markov", "crf")],
)
def test_training_learns_from_words_that_are_tagged(halved, tmp_path, structure, loss):
    config = Config(
        str(halved),
        epochs=4,
        out=tmp_path,
        unknown="?",
        loss=loss,
        structure=structure,
    )
    result = main(config)
    history = numbers(tmp_path)["history"]
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]
    assert result["dev_f1"] > result["dev_look_up_f1"] - 0.2
    sentence = read(halved / "dev.txt").sentences[0].words
    for tagged in load(tmp_path / "model").tag([sentence], nbest=30, confidence=True):
        every = [tagged, *tagged.others]
        assert sum(one.probability for one in every) <= 1 + 1e-6
        for span in tagged.spans:
            # the taggings that hold the span are among all that do
            holding = [one.probability for one in every if _holds(one, span)]
            assert sum(holding) <= span.confidence + 1e-6
            assert (
                span.confidence
                <= 1
                - sum(one.probability for one in every if not _holds(one, span))
                + 1e-6
            )


def _holds(tagged, span):
    places = [(one.type, one.first, one.last) for one in tagged.spans]
    return (span.type, span.first, span.last) in places


def test_what_does_not_fit_is_named(halved, tmp_path):
    with pytest.raises(ValueError, match=r"train.txt, line 1: expected a tag of"):
        main(Config(str(halved), epochs=1, out=tmp_path))
    files = {"train": str(halved / "dev.txt"), "dev": str(halved / "train.txt")}
    with pytest.raises(ValueError, match=r"train.txt, line 1: expected a tag of"):
        main(Config(**files, epochs=1, out=tmp_path, unknown="?"))
