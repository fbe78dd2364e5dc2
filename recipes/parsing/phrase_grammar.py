"""Bracketed trees drawn from a small phrase structure grammar.

Whether a phrase with a preposition belongs to the verb or to the noun depends on its
noun (tools are used, hats are worn) or its preposition; a relative clause follows the
noun whose kind does what its verb says; a tenth of the nouns are coined.
"""

import random

from parsing.dependency_grammar import INVENTED_FRACTION, VOCABULARY
from smoothsp.data import ConstituencyTree
from smoothsp.data.trees import parse


def make(
    seed: int = 1, train: int = 400, dev: int = 150
) -> tuple[list[ConstituencyTree], ...]:
    """Trees that depend on the seed, the part and their number only."""
    sizes = {"train": train, "dev": dev}
    return tuple(
        [draw(random.Random(f"{seed} {name} {i}")) for i in range(size)]
        for name, size in sizes.items()
    )


def draw(rng: random.Random) -> ConstituencyTree:
    text = f"( (S {_noun_phrase(rng, 'subject', 0)} {_verb_phrase(rng, 0)} (. .) ) )"
    return parse(text.encode(), "drawn")[0]


def _verb_phrase(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if kind < 0.2 and depth < 2:
        subject = _noun_phrase(rng, "subject", depth + 1)
        clause = f"(S {subject} {_verb_phrase(rng, depth + 1)} )"
        return f"(VP {_leaf(rng, 'VBD', 'saying')} (SBAR (IN that) {clause} ) )"
    parts = [_leaf(rng, "VBD", "intransitive" if kind < 0.5 else "transitive")]
    if kind >= 0.5:
        parts.append(_noun_phrase(rng, "object", depth))
    if rng.random() < 0.4:
        parts.append(_prepositional_phrase(rng, *rng.choice(TO_VERBS)))
    if rng.random() < 0.3:
        parts.append(f"(ADVP {_leaf(rng, 'RB', 'adverbs')} )")
    return f"(VP {' '.join(parts)} )"


TO_VERBS = [("with", "instruments"), ("during", "times")]
TO_NOUNS = [("with", "attributes"), ("of", "people")]


def _noun_phrase(rng: random.Random, role: str, depth: int) -> str:
    if rng.random() < 0.2:
        return f"(NP {_leaf(rng, 'NNP', 'names')} )"
    kind = rng.choice(["people", "animals", *(["things"] if role == "object" else [])])
    noun = _simple_noun_phrase(rng, kind)
    if rng.random() < 0.3:
        return f"(NP {noun} {_prepositional_phrase(rng, *rng.choice(TO_NOUNS))} )"
    if rng.random() < 0.15:
        return f"(NP {noun} (CC and) {_simple_noun_phrase(rng, kind)} )"
    if kind != "things" and depth < 2 and rng.random() < 0.35:
        verb = _leaf(rng, "VBD", f"of_{kind}")
        verb = f"(VP {verb} {_simple_noun_phrase(rng, 'things')} )"
        return f"(NP {noun} (SBAR (WHNP (WDT that)) (S {verb} ) ) )"
    return noun


def _prepositional_phrase(rng: random.Random, preposition: str, kind: str) -> str:
    return f"(PP (IN {preposition}) {_simple_noun_phrase(rng, kind)} )"


def _simple_noun_phrase(rng: random.Random, kind: str) -> str:
    parts = [_leaf(rng, "DT", "determiners")]
    if rng.random() < 0.25:
        parts.append(_leaf(rng, "JJ", "adjectives"))
    coined = rng.random() < INVENTED_FRACTION
    if coined:
        parts.append(f"(NN {''.join(rng.choices(VOCABULARY['syllables'], k=2))})")
    else:
        parts.append(_leaf(rng, "NN", kind))
    return f"(NP {' '.join(parts)} )"


def _leaf(rng: random.Random, tag: str, kind: str) -> str:
    return f"({tag} {rng.choice(VOCABULARY[kind])})"
