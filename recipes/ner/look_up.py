"""Tagging by look-up: the baseline that a tagger has to beat."""

from collections import Counter, defaultdict

from smoothsp.data import TaggedSentence as Sentence
from smoothsp.models.partial import is_known
from smoothsp.schemes import convert, detect


def look_up_baseline(
    train: list[Sentence], test: list[Sentence], scheme: str | None = None
) -> list[list[str]]:
    """Tags for ``test``: of each word the tag that ``train`` gives it most often.

    Words that ``train`` lacks get ``O``. Of equally frequent tags the first seen is
    taken. The result is made well formed in the scheme of ``train``, found if absent.
    """
    scheme = scheme or detect(s.tags for s in train)
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in train:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            if is_known(tag):
                seen[word][tag] += 1
    best = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
    tags = [[best.get(word, "O") for word in sentence.words] for sentence in test]
    return [convert(row, source=scheme, target=scheme, strict=False) for row in tags]
