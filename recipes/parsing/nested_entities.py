"""Sentences with nested named entities, drawn: people, places and organisations."""

import random

from smoothsp.data import ConstituencyTree
from smoothsp.data.examples import Span
from smoothsp.data.trees import nest_entities

FIRST = ("Ada", "Bruno", "Clara", "Dov", "Edda", "Finn", "Greta", "Hugo")
LAST = ("Arden", "Bell", "Carden", "Dale", "Frost", "Hale", "Mercer", "Wren")
STEMS = ("Ash", "Brad", "Cor", "Dun", "Elm", "Fal", "Grim", "Har", "Kel", "Mar")
ENDS = ("holm", "vale", "stow", "by", "haven", "mere")
ORGANISATIONS = ("University of LOC", "LOC Bank", "PER Foundation", "Friends of PER")
SENTENCES = (
    "PER joined the ORG in LOC .",
    "the ORG was founded by PER .",
    "yesterday PER met PER at the ORG .",
    "a bank in LOC lent money to the ORG .",
    "in LOC the university was closed .",
    "friends of PER left LOC for good .",
    "the museum bought a letter from the ORG .",
    "nobody had heard of it .",
)


def make(
    seed: int = 1, train: int = 300, dev: int = 100
) -> tuple[list[ConstituencyTree], ...]:
    """Trees that depend on the seed, the part and their number only."""
    sizes = {"train": train, "dev": dev}
    return tuple(
        [draw(random.Random(f"{seed} {name} {i}")) for i in range(size)]
        for name, size in sizes.items()
    )


def draw(rng: random.Random) -> ConstituencyTree:
    words, entities = _expand(rng, rng.choice(SENTENCES), 0)
    return nest_entities(words, entities)


def _expand(rng: random.Random, form: str, start: int) -> tuple[list[str], list[Span]]:
    """The words of a form from a place on, and the entities in them, outer first."""
    words: list[str] = []
    entities: list[Span] = []
    for word in form.split():
        if word not in ("PER", "LOC", "ORG"):
            words.append(word)
            continue
        inner = {
            "PER": f"{rng.choice(FIRST)} {rng.choice(LAST)}",
            "LOC": rng.choice(STEMS) + rng.choice(ENDS),
            "ORG": rng.choice(ORGANISATIONS),
        }[word]
        begin = start + len(words)
        inner_words, inner_entities = _expand(rng, inner, begin)
        words += inner_words
        entities += [(word, begin, begin + len(inner_words) - 1), *inner_entities]
    return words, entities
