"""Table, figure and numbers of ``ud_parser.py``."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from parsing import trees
from parsing.grammar import Treebank
from runs import files
from runs.trainer import finish
from smoothsp.data import DependencyTree as Sentence
from smoothsp.data import dependencies
from smoothsp.figures import draw

SHORTEST, LONGEST = 7, 15
WAYS = ("previous", "next")


def write(
    folder: Path,
    settings: dict[str, Any],
    bank: Treebank,
    history: list[dict[str, Any]],
    found: Mapping[str, list[Sentence]],
    trained_for: str,
) -> dict[str, float]:
    """Print the table, write figure, parses and numbers; the chief ones come back."""
    gold = bank.dev
    usual = Counter(x for s in bank.train for x in s.labels).most_common(1)[0][0]
    rows = {f"decoded as {name}": parses for name, parses in found.items()}
    compared = scores(gold, rows, usual)
    table("development sentences", compared)
    parses = found[trained_for]
    crossed = [n for n, s in enumerate(gold) if trees.crossing(s.heads)]
    wholly = sum(parses[n].heads == gold[n].heads for n in crossed)
    print(
        f"{len(crossed)} of {len(gold)} trees have crossing arcs; {wholly} of them are"
        " found without a mistake"
    )
    result = {
        **compared[f"decoded as {trained_for}"],
        "crossing": float(len(crossed)),
        "crossing_right": float(wholly),
        **{f"{way}_uas": compared[f"the {way} word"]["uas"] for way in WAYS},
    }
    sample = sorted({*drawn(gold, parses)})
    sheet(folder / "parses.png", [gold[n] for n in sample], [parses[n] for n in sample])
    lines = dependencies.text(parses).encode()
    files.write(folder / "dev.conllu", lambda sink: sink.write(lines))
    return finish(folder / "parses.png", settings, history, "las", compared, result)


def scores(
    gold: Sequence[Sentence], found: Mapping[str, Sequence[Sentence]], usual: str
) -> dict[str, dict[str, float]]:
    """UAS and LAS of parses, and of words attached to neighbours by a usual label."""
    rows = dict(found)
    for way in WAYS:
        rows[f"the {way} word"] = trees.attached_to_neighbours(gold, way, usual)
    return {name: trees.attachment(gold, parses) for name, parses in rows.items()}


def table(title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
    print(f"\n{title:<26}{'UAS':>8}{'LAS':>8}")
    for name, row in rows.items():
        print(f"{name:<26}{100 * row['uas']:>8.2f}{100 * row['las']:>8.2f}")


def drawn(gold: Sequence[Sentence], found: Sequence[Sentence]) -> list[int]:
    """Numbers of sentences for the figure: crossing arcs, none, and a mistake."""
    fits = [n for n, s in enumerate(gold) if SHORTEST <= len(s.words) <= LONGEST]
    fits = fits or [max(range(len(gold)), key=lambda n: len(gold[n].words))]
    crossed = [n for n in fits if trees.crossing(gold[n].heads)]
    wrong = [n for n in fits if gold[n].heads != found[n].heads]
    right = [n for n in fits if n not in (*crossed, *wrong)]
    return [n for group in (crossed, right, wrong) for n in group[:1]]


def sheet(path: Path, gold: Sequence[Sentence], found: Sequence[Sentence]) -> None:
    """Parses as arcs over the words: the wrong ones dashed, the true ones below."""
    figure = Figure(figsize=(10, 2.8 * len(gold)), layout="constrained")
    axes = figure.subplots(len(gold), 1, squeeze=False)[:, 0]
    for ax, true, guess in zip(axes, gold, found, strict=True):
        draw(guess, true=true, ax=ax)
    files.write_figure(path, figure, dpi=130)
