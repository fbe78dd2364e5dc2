"""Named entities within each other, as trees: scores, a baseline, invented ones."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from smoothsp.data import ConstituencyTree as Tree
from smoothsp.data import read_trees
from smoothsp.data.examples import Span
from smoothsp.data.splits import find_splits
from smoothsp.data.trees import entities, levels
from smoothsp.data.trees import nested as tree


def load(
    folder: str | Path, columns: Sequence[str], skip_bad: bool = False
) -> tuple[list[Tree], list[Tree]]:
    """The trees of the training and of the development file of a folder."""
    files = find_splits(folder)
    train, dev = (
        read_trees(path, columns=columns, skip_bad=skip_bad)
        for path in (files.train, files.dev)
    )
    return train, dev


def shallow(found: Tree, depth: int) -> Tree:
    """Without the entities below a level, which files have no column for."""
    kept = [span for level, span in levels(found) if level <= depth]
    return tree(found.words, kept)


def uncrossed(tree: Tree) -> Tree:
    """Without the spans that cross one that stands before them."""
    kept: list[Span] = []
    for label, i, j in tree.spans:
        if not any(a < i <= b < j or i < a <= j < b for _, a, b in kept):
            kept.append((label, i, j))
    return Tree(tree.words, kept, tree.tags)


def f1(gold: Sequence[Tree], found: Sequence[Tree]) -> dict[str, float]:
    """F1 of all entities, of the outer ones and of those within others.

    An entity is found if words and type are right, and counts at its level.
    """
    true, guessed, right = Counter(), Counter(), Counter()
    exact = 0
    for one, other in zip(gold, found, strict=True):
        a, b = Counter(levels(one)), Counter(levels(other))
        exact += a == b
        for count, some in ((true, a), (guessed, b), (right, a & b)):
            for (level, _), times in some.items():
                count["outer" if level == 1 else "inner"] += times
        # without their levels
        bare = Counter(entities(one)) & Counter(entities(other))
        right["all"] += bare.total()
    for count in (true, guessed):
        count["all"] = count["outer"] + count["inner"]

    def mean(name: str) -> float:
        return 2 * right[name] / max(1, true[name] + guessed[name])

    return {
        "f1": mean("all"),
        "precision": right["all"] / max(1, guessed["all"]),
        "recall": right["all"] / max(1, true["all"]),
        "outer": mean("outer"),
        "inner": mean("inner"),
        "exact": exact / len(gold),
    }


def looked_up(train: Sequence[Tree], trees: Sequence[Tree]) -> list[Tree]:
    """What costs no learning: names of training, with the type they mostly had."""
    kinds: dict[tuple[str, ...], Counter[str]] = {}
    for one in train:
        for label, i, j in entities(one):
            kinds.setdefault(tuple(one.words[i : j + 1]), Counter())[label] += 1
    longest = max(map(len, kinds), default=0)
    found = []
    for one in trees:
        words, spans = one.words, []
        for size in range(longest, 0, -1):
            for i in range(len(words) - size + 1):
                if seen := kinds.get(tuple(words[i : i + size])):
                    spans.append((seen.most_common(1)[0][0], i, i + size - 1))
        found.append(uncrossed(tree(words, spans)))
    return found


def depth(trees: Sequence[Tree]) -> int:
    """The deepest level there is, at least 2."""
    return max(2, *(level for tree in trees for level, _ in levels(tree)))


# --- invented ones ---

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


def make(seed: int = 1, train: int = 300, dev: int = 100) -> tuple[list[Tree], ...]:
    """Trees that depend on the seed, the part and their number only."""
    sizes = {"train": train, "dev": dev}
    return tuple(
        [draw(random.Random(f"{seed} {name} {i}")) for i in range(size)]
        for name, size in sizes.items()
    )


def draw(rng: random.Random) -> Tree:
    words, found = _filled(rng, rng.choice(SENTENCES), 0)
    return tree(words, found)


def _filled(rng: random.Random, form: str, start: int) -> tuple[list[str], list[Span]]:
    """The words of a form from a place on, and the entities in them, outer first."""
    words: list[str] = []
    found: list[Span] = []
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
        some, below = _filled(rng, inner, begin)
        words += some
        found += [(word, begin, begin + len(some) - 1), *below]
    return words, found
