"""Parsed sentences with dependency trees, and output formats."""

import json
from dataclasses import dataclass

from smoothsp.figures.markup import tree_html

__all__ = ["Parsed"]


@dataclass(frozen=True)
class Parsed:
    """A sentence and its tree.

    Examples
    --------
    >>> from smoothsp.models import Parsed
    >>> tree = Parsed(["Ada", "left"], [2, 0], ["nsubj", "root"], score=1.0)
    >>> tree.conllu().splitlines()[1].split()[:2]
    ['1', 'Ada']
    """

    words: list[str]
    heads: list[int]
    """Number of the head of each word, from 1; 0 is the root."""
    labels: list[str]
    """Label of the arc to each word."""
    score: float
    """Unnormalised score of the tree without labels."""
    text: str = ""
    """Input text, or the input words joined by blanks."""
    places: tuple[tuple[int, int], ...] = ()
    """Character offsets of each word: ``text[start:end]`` is the word."""

    def conllu(self) -> str:
        """Return the sentence in CoNLL-U, with its text, and an empty line at the end.

        Raises
        ------
        ValueError
            For a word with a tab or a line end.
        """
        text = "# text = " + " ".join(self.text.split()) + "\n"
        rows = zip(self.words, self.heads, self.labels, strict=True)
        for number, (word, head, label) in enumerate(rows, start=1):
            if set("\t\n\r") & set(word):
                raise ValueError(
                    "conllu: expected words without tabs and line ends, got "
                    f"{word!r}; json() takes any"
                )
            has_no_space = number < len(self.places) and (
                self.places[number - 1][1] == self.places[number][0]
            )
            fields = [str(number), word, *"____", str(head), label, "_"]
            text += (
                "\t".join([*fields, "SpaceAfter=No" if has_no_space else "_"]) + "\n"
            )
        return text + "\n"

    def json(self) -> str:
        """Return one line of JSON: text, words, character offsets, heads and labels."""
        fields: dict[str, object] = {"text": self.text, "words": self.words}
        fields |= {"places": self.places}
        fields |= {"heads": self.heads, "labels": self.labels}
        return json.dumps(fields | {"score": round(self.score, 4)}, ensure_ascii=False)

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: arcs over the words."""
        return tree_html(self.words, self.heads, self.labels)
