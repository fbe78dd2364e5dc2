"""Predictions per second of spaCy and flair, on sentences from standard input.

    python waits/peers.py spaCy conll_ner < sentences.json

Networks have the libraries' default sizes and their initial weights: no trained models
are on the package index. Needs the library alone; prints JSON.
"""

import json
import sys
import time
from collections.abc import Callable
from itertools import chain
from typing import Any

ROUNDS = 3
Inputs = dict[str, list[Any]]


def spacy(recipe: str, given: Inputs) -> Callable[[], object]:
    """A call that runs spaCy's entity recogniser, or its parser."""
    from spacy import blank
    from spacy.tokens import Doc
    from spacy.training import Example

    nlp = blank("en")
    nlp.add_pipe({"conll_ner": "ner", "ud_parser": "parser"}[recipe])

    def example(n: int) -> Example:
        words = given["words"][n]
        if recipe == "conll_ner":
            gold = {"ents": given["tags"][n]}
        else:
            heads = [h - 1 if h else i for i, h in enumerate(given["heads"][n])]
            gold = {"heads": heads, "deps": given["labels"][n]}
        return Example(Doc(nlp.vocab, words), Doc(nlp.vocab, words, **gold))

    examples = [example(n) for n in range(len(given["words"]))]
    nlp.initialize(lambda: examples)
    return lambda: [*nlp.pipe(Doc(nlp.vocab, words) for words in given["words"])]


def flair(recipe: str, given: Inputs) -> Callable[[], object]:
    """A call that runs flair's tagger, of words and characters, under its CRF."""
    from flair.data import Dictionary, Sentence
    from flair.embeddings import (
        CharacterEmbeddings,
        OneHotEmbeddings,
        StackedEmbeddings,
    )
    from flair.models import SequenceTagger

    assert recipe == "conll_ner"
    words, characters, types = Dictionary(), Dictionary(), Dictionary(add_unk=False)
    for word in chain(*given["words"]):
        words.add_item(word)
        for character in word:
            characters.add_item(character)
    for tag in chain(*given["tags"]):
        types.add_item(tag[2:] or tag)
    parts = [OneHotEmbeddings(words), CharacterEmbeddings(characters)]
    read = StackedEmbeddings(parts)
    tagger = SequenceTagger(read, types, "ner", use_crf=True)
    return lambda: tagger.predict([Sentence(row) for row in given["words"]])


LIBRARIES = {"spaCy": spacy, "flair": flair}
TASKS = {"spaCy": ("conll_ner", "ud_parser"), "flair": ("conll_ner",)}


def per_second(library: str, recipe: str, given: Inputs) -> float:
    """Sentences a second of CPU time: the best of some rounds, after one untimed."""
    call = LIBRARIES[library](recipe, given)
    call()
    least = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        call()
        least = min(least, time.process_time() - began)
    return len(given["words"]) / least


if __name__ == "__main__":
    print(json.dumps(per_second(*sys.argv[1:], json.load(sys.stdin))))
