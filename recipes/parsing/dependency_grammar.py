"""Dependency trees drawn from a small grammar, some of whose arcs cross.

What makes them hard: whether a phrase with a preposition belongs to the verb or to the
noun before it depends on the preposition, or by the kind of its noun; which noun a
relative clause describes depends on its verb, for people and animals do different
things; a tenth of the nouns are coined on the spot. Arcs cross where a relative clause
has moved behind the verb ("a man came that wore a hat"), and where a question asks for
the object of a clause within it ("what did she say that he saw?").
"""

import random
from dataclasses import dataclass, field

from smoothsp.data import DependencyTree
from smoothsp.data.dependencies import make_tree

LEXICON = """
people: man woman child baker sailor clerk judge painter nurse farmer
animals: dog horse crow goat heron fox otter mule
things: boat letter table clock lamp song fence bridge loaf map
instruments: telescope hammer rope brush ladder spade
attributes: hat beard scar limp stripe collar
times: winter storm night harvest war feast
names: Ada Bruno Clara Dov Edda Finn Greta Hugo
adjectives: old small red quiet proud wet tired strange
adverbs: yesterday slowly often again today quickly
transitive: saw found painted moved carried broke watched hid
intransitive: came slept waited left fell laughed
saying: said thought knew claimed believed
of_people: wore wrote read sold bought
of_animals: chewed chased licked bit sniffed
determiners: the a every this
syllables: bor tel gan mur fil dra vos pel nim ket
"""
VOCABULARY = {
    name: words.split()
    for name, words in (line.split(": ") for line in LEXICON.strip().split("\n"))
}
INVENTED_FRACTION, EXTRAPOSED_FRACTION, WH_FRACTION = 0.1, 0.5, 0.1


@dataclass
class Node:
    """A word with what hangs from it, on its left and on its right."""

    word: str
    label: str
    left: list["Node"] = field(default_factory=list)
    right: list["Node"] = field(default_factory=list)
    displaced: str = ""
    """``front`` or ``end`` if it stands there with all below it, not by its head."""


def make(
    seed: int = 1, train: int = 500, dev: int = 200
) -> tuple[list[DependencyTree], ...]:
    """Sentences that depend on the seed, the part and their number only."""
    sizes = {"train": train, "dev": dev}
    return tuple(
        [draw(random.Random(f"{seed} {name} {i}")) for i in range(size)]
        for name, size in sizes.items()
    )


def draw(rng: random.Random) -> DependencyTree:
    top = _wh_clause(rng) if rng.random() < WH_FRACTION else _declarative(rng)
    zones: dict[str, list[Node]] = {"front": [], "": [], "end": []}
    heads: dict[int, Node] = {}
    _linearise(top, "", zones, heads)
    order = [node for nodes in zones.values() for node in nodes]
    numbers = {id(node): number for number, node in enumerate(order, start=1)}
    words = [node.word for node in order]
    words[0] = words[0][0].upper() + words[0][1:]
    head_numbers = [numbers[id(heads[id(n)])] if id(n) in heads else 0 for n in order]
    return make_tree(words, head_numbers, [node.label for node in order])


def _linearise(
    node: Node, zone: str, zones: dict[str, list[Node]], heads: dict[int, Node]
) -> None:
    for child in node.left:
        heads[id(child)] = node
        _linearise(child, child.displaced or zone, zones, heads)
    zones[zone].append(node)
    for child in node.right:
        heads[id(child)] = node
        _linearise(child, child.displaced or zone, zones, heads)


def _declarative(rng: random.Random) -> Node:
    verb = _clause(rng, "root", 0)
    nouns = [n for n in (*verb.left, *verb.right) if n.label in ("nsubj", "obj")]
    clauses = [x for n in nouns for x in n.right if x.label == "acl:relcl"]
    if clauses and rng.random() < EXTRAPOSED_FRACTION:
        rng.choice(clauses).displaced = "end"
    verb.right.append(Node(".", "punct", displaced="end"))
    return verb


def _wh_clause(rng: random.Random) -> Node:
    """``what did S say that S saw?``: the inner verb's object stands in front."""
    wh_word = Node(rng.choice(["what", "whom"]), "obj", displaced="front")
    inner = Node(
        rng.choice(VOCABULARY["transitive"]), "ccomp", [wh_word, Node("that", "mark")]
    )
    inner.left.append(_noun_phrase(rng, "nsubj", 2))
    if rng.random() < 0.5:
        inner.right.append(Node(rng.choice(VOCABULARY["adverbs"]), "advmod"))
    verb = Node(rng.choice(["say", "think", "know"]), "root", [Node("did", "aux")])
    verb.left.append(_noun_phrase(rng, "nsubj", 2))
    verb.right = [inner, Node("?", "punct")]
    return verb


def _clause(rng: random.Random, label: str, depth: int) -> Node:
    kind = rng.random()
    if kind < 0.2 and depth < 2:
        verb = Node(rng.choice(VOCABULARY["saying"]), label)
        inner = _clause(rng, "ccomp", depth + 1)
        inner.left.insert(0, Node("that", "mark"))
        verb.right = [inner]
    else:
        verb = Node(
            rng.choice(
                VOCABULARY["intransitive"] if kind < 0.5 else VOCABULARY["transitive"]
            ),
            label,
        )
        if kind >= 0.5:
            verb.right = [_noun_phrase(rng, "obj", depth)]
        if rng.random() < 0.4:
            case, kinds = rng.choice(
                [("with", VOCABULARY["instruments"]), ("during", VOCABULARY["times"])]
            )
            verb.right.append(_prepositional_phrase(rng, case, kinds, "obl"))
        if rng.random() < 0.3:
            verb.right.append(Node(rng.choice(VOCABULARY["adverbs"]), "advmod"))
    verb.left = [_noun_phrase(rng, "nsubj", depth)]
    return verb


def _noun_phrase(rng: random.Random, label: str, depth: int) -> Node:
    if rng.random() < 0.2:
        return Node(rng.choice(VOCABULARY["names"]), label)
    kinds = [
        (VOCABULARY["people"], VOCABULARY["of_people"]),
        (VOCABULARY["animals"], VOCABULARY["of_animals"]),
        (VOCABULARY["things"], []),
    ]
    kind, verbs = rng.choice(kinds[: 2 if label == "nsubj" else 3])
    noun = _common_noun(rng, kind, label)
    if rng.random() < 0.15:
        noun.right.append(
            _prepositional_phrase(rng, "with", VOCABULARY["attributes"], "nmod")
        )
    elif rng.random() < 0.15:
        noun.right.append(
            _prepositional_phrase(rng, "of", VOCABULARY["people"], "nmod")
        )
    if rng.random() < 0.15:
        other = _common_noun(rng, kind, "conj")
        other.left.insert(0, Node("and", "cc"))
        noun.right.append(other)
    elif verbs and depth < 2 and rng.random() < 0.35:
        verb = Node(rng.choice(verbs), "acl:relcl", [Node("that", "nsubj")])
        verb.right.append(_common_noun(rng, VOCABULARY["things"], "obj"))
        noun.right.append(verb)
    return noun


def _prepositional_phrase(
    rng: random.Random, case: str, kinds: list[str], label: str
) -> Node:
    noun = _common_noun(rng, kinds, label)
    noun.left.insert(0, Node(case, "case"))
    return noun


def _common_noun(rng: random.Random, kind: list[str], label: str) -> Node:
    word = rng.choice(kind)
    if rng.random() < INVENTED_FRACTION:
        word = rng.choice(VOCABULARY["syllables"]) + rng.choice(VOCABULARY["syllables"])
    noun = Node(word, label, [Node(rng.choice(VOCABULARY["determiners"]), "det")])
    if rng.random() < 0.25:
        noun.left.append(Node(rng.choice(VOCABULARY["adjectives"]), "amod"))
    return noun
