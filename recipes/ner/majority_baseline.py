"""Tagging by look-up: the baseline that a tagger has to beat."""

from collections import Counter, defaultdict

from smoothsp.data import TaggedSentence as Sentence
from smoothsp.schemes import convert, detect


def majority_tags(train: list[Sentence], test: list[Sentence]) -> list[list[str]]:
    """Tags for ``test``: of each word the tag that ``train`` gives it most often.

    Words that ``train`` lacks get ``O``. Of equally frequent tags the first seen is
    taken. The result is made well formed in BIOES.
    """
    scheme = detect(s.tags for s in train)
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in train:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            if tag is not None:
                seen[word][tag] += 1
    best = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
    tags = [[best.get(word, "O") for word in sentence.words] for sentence in test]
    return [convert(row, source=scheme, target="BIOES", strict=False) for row in tags]
