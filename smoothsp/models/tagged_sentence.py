"""Tagged sentences with spans, and output formats."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from smoothsp.figures.markup import tagged_html

__all__ = ["Span", "Tagged"]

# ANSI foreground colours, assigned to types in turn.
COLOURS = (36, 33, 35, 32, 34, 31, 96, 93, 95, 92)


@dataclass(frozen=True)
class Span:
    """A span of words with its type.

    Examples
    --------
    >>> from smoothsp.models import Span
    >>> span = Span(type="PER", first=0, last=1, text="Ada Lovelace", start=0, end=12)
    >>> span.type, span.text
    ('PER', 'Ada Lovelace')
    """

    type: str
    first: int
    """Index of its first word, from 0."""
    last: int
    """Index of its last word."""
    text: str
    """``Tagged.text[start:end]``."""
    start: int
    """Position of its first character in ``Tagged.text``."""
    end: int
    """Position after its last character."""
    confidence: float | None = None
    """Probability that exactly these words are a span of this type: an exact marginal
    of the chain. None if not requested."""


@dataclass(frozen=True)
class Tagged:
    """A sentence, its tags and its spans.

    Examples
    --------
    >>> from smoothsp.models import Tagged
    >>> tagged = Tagged(words=["Ada", "left"], tags=["S-PER", "O"], spans=[], score=3.0)
    >>> tagged.columns().split()
    ['Ada', 'S-PER', 'left', 'O']
    """

    words: list[str]
    tags: list[str]
    """Tag of each word, in ``Tagger.scheme``."""
    spans: list[Span]
    score: float
    """Unnormalised score of this tagging."""
    probability: float | None = None
    """Probability of this tagging; None if not requested."""
    others: tuple["Tagged", ...] = ()
    """Further taggings, best first, if ``nbest`` exceeds 1."""
    text: str = ""
    """Input text, or the input words joined by blanks."""

    def columns(self) -> str:
        """Return lines of word, tab and tag, with an empty line at the end.

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
        """Return one line of JSON: text, words, tags, spans, scores, probabilities.

        Probabilities have two significant digits.
        """
        return json.dumps(self._to_dict(), ensure_ascii=False)

    def _to_dict(self) -> dict[str, object]:
        spans = [
            {
                key: float(f"{value:.2g}") if key == "confidence" else value
                for key, value in vars(span).items()
                if value is not None
            }
            for span in self.spans
        ]
        fields: dict[str, object] = {"text": self.text, "words": self.words}
        fields |= {"tags": self.tags, "spans": spans, "score": round(self.score, 4)}
        if self.probability is not None:
            fields |= {"probability": float(f"{self.probability:.2g}")}
        if self.others:
            fields |= {"others": [other._to_dict() for other in self.others]}
        return fields

    def coloured(self, types: Sequence[str] = ()) -> str:
        """Return the text with coloured spans, each followed by its type.

        ``types`` lists the types in the order of colours; if empty, the types of this
        sentence in alphabetical order.
        """
        order = list(types) or sorted({span.type for span in self.spans})
        coloured, end = "", 0
        for span in self.spans:
            rank = order.index(span.type) if span.type in order else 0
            confidence = "" if span.confidence is None else f" {span.confidence:.2f}"
            colour = COLOURS[rank % len(COLOURS)]
            coloured += f"{self.text[end : span.start]}\x1b[1;{colour}m{span.text}"
            coloured += f"\x1b[0m\x1b[2m[{span.type}{confidence}]\x1b[0m"
            end = span.end
        return coloured + self.text[end:]

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the text with coloured, labelled spans."""
        spans = [(span.start, span.end, span.type) for span in self.spans]
        return tagged_html(self.text, spans)
