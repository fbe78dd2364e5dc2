"""Parsed sentences with constituents or nested entities, and output formats."""

import json
from dataclasses import dataclass

from smoothsp.data import trees
from smoothsp.data.examples import ConstituencyTree, Span

__all__ = ["Constituents"]


@dataclass(frozen=True)
class Constituents:
    """A sentence and its constituents, or its nested named entities.

    Examples
    --------
    >>> from smoothsp.models import Constituents
    >>> tree = Constituents(["Ada", "left"], [("S", 0, 1), ("NP", 0, 0)], score=1.0)
    >>> print(tree.brackets(), end="")
    ( (S (NP (XX Ada)) (XX left)) )
    """

    words: list[str]
    spans: list[Span]
    """Label, first and last word of each span, outer before inner ones. A chain of
    unary rules is one span, such as ``S+VP``; entities have one label each."""
    score: float
    """Unnormalised score of the tree."""
    text: str = ""
    """Input text, or the input words joined by blanks."""
    places: tuple[tuple[int, int], ...] = ()
    """Character offsets of each word: ``text[start:end]`` is the word."""
    levels: int = 0
    """Number of levels of nested entities; 0 for constituents."""

    def brackets(self) -> str:
        """Return the tree in one line, each word with the tag ``XX``.

        Brackets within words are written as ``-LRB-`` and ``-RRB-``.

        Raises
        ------
        ValueError
            For a word with white space.
        """
        for word in self.words:
            if len(word.split()) != 1 or word != word.strip():
                raise ValueError(
                    f"brackets: expected words without white space, got {word!r}; "
                    "json() takes any"
                )
        words = [bracketless(word) for word in self.words]
        return trees.to_brackets(ConstituencyTree(words, self.spans)) + "\n"

    def columns(self) -> str:
        """Return numbered words with a column of tags for each level of entities.

        The tags are in BIO, the outer entities in the first column, as in GermEval. An
        empty line is at the end.

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
        tree = ConstituencyTree(self.words, self.spans)
        return trees.to_level_columns(tree, max(1, self.levels))

    def json(self) -> str:
        """Return one line of JSON: text, words, character offsets and spans."""
        fields: dict[str, object] = {"text": self.text, "words": self.words}
        fields |= {"places": self.places, "spans": self.spans}
        return json.dumps(fields | {"score": round(self.score, 4)}, ensure_ascii=False)


def bracketless(word: str) -> str:
    """Replace round brackets by -LRB- and -RRB-, as treebanks do."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")
