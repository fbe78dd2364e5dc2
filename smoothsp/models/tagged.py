"""Sentences with what a tagger found in them, and how they are shown."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Span", "Tagged"]

# Foreground colours of terminals, one for each type in turn.
COLOURS = (36, 33, 35, 32, 34, 31, 96, 93, 95, 92)


@dataclass(frozen=True)
class Span:
    """Some words and their type."""

    type: str
    first: int
    """Number of its first word, from 0."""
    last: int
    """Number of its last word."""
    text: str
    confidence: float | None = None
    """The probability that exactly these words are a span of this type, whatever else
    the sentence holds: an exact marginal of the chain. None if not asked for."""


@dataclass(frozen=True)
class Tagged:
    """A sentence, its tags and its spans."""

    words: list[str]
    tags: list[str]
    """In BIO, one for each word."""
    spans: list[Span]
    score: float
    """Of this tagging, before normalisation."""
    probability: float | None = None
    """Of this tagging among all; None if not asked for."""
    others: tuple["Tagged", ...] = ()
    """The next best, best first, if more than one were asked for."""

    def columns(self) -> str:
        """A word, a tab and its tag on each line; in the end an empty line.

        Raises
        ------
        ValueError
            For a word with a tab or a line end.
        """
        for word in self.words:
            if set("\t\n\r") & set(word):
                raise ValueError(
                    "columns: expected words without tabs and line ends, got "
                    f"{word!r}; json() takes any"
                )
        pairs = zip(self.words, self.tags, strict=True)
        return "".join(f"{word}\t{tag}\n" for word, tag in pairs) + "\n"

    def json(self) -> str:
        """One line of JSON: words, tags, spans, score, and what else was asked for."""
        return json.dumps(self._fields(), ensure_ascii=False)

    def _fields(self) -> dict[str, object]:
        spans = [
            {key: value for key, value in vars(span).items() if value is not None}
            for span in self.spans
        ]
        found = {"words": self.words, "tags": self.tags, "spans": spans}
        found |= {"score": self.score}
        if self.probability is not None:
            found |= {"probability": self.probability}
        if self.others:
            found |= {"others": [other._fields() for other in self.others]}
        return found

    def coloured(self, types: Sequence[str] = ()) -> str:
        """The words in one line, spans in colours of the terminal, named behind them.

        ``types`` says which type has the first colour, and so on; if empty, those of
        this sentence do, in alphabetical order.
        """
        order = list(types) or sorted({span.type for span in self.spans})
        begins = {span.first: span for span in self.spans}
        ends = {span.last: span for span in self.spans}
        pieces = []
        for number, word in enumerate(self.words):
            text = word
            if span := begins.get(number):
                rank = order.index(span.type) if span.type in order else 0
                text = f"\x1b[1;{COLOURS[rank % len(COLOURS)]}m{text}"
            if span := ends.get(number):
                sure = "" if span.confidence is None else f" {span.confidence:.0%}"
                text = f"{text}\x1b[0m\x1b[2m[{span.type}{sure}]\x1b[0m"
            pieces.append(text)
        return " ".join(pieces)
