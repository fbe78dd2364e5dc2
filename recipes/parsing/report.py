"""Table, figure and numbers of ``ud_parser.py``."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc

from parsing import conllu, trees
from parsing.conllu import Sentence, Treebank
from runs import checkpoint

BLUE, ORANGE, GREY = "#2a6f97", "#d1661f", "#999999"
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
    for way in WAYS:
        rows[f"the {way} word"] = trees.attached_to_neighbours(gold, way, usual)
    scores = {name: trees.attachment(gold, parses) for name, parses in rows.items()}
    print(f"\n{'development sentences':<26}{'UAS':>8}{'LAS':>8}")
    for name, row in scores.items():
        print(f"{name:<26}{100 * row['uas']:>8.2f}{100 * row['las']:>8.2f}")
    parses = found[trained_for]
    crossed = [n for n, s in enumerate(gold) if trees.crossing(s.heads)]
    wholly = sum(parses[n].heads == gold[n].heads for n in crossed)
    print(
        f"{len(crossed)} of {len(gold)} trees have crossing arcs; {wholly} of them are"
        " found without a mistake"
    )
    best = max(history, key=lambda row: row["las"])
    cpu = sum(row["cpu_seconds"] for row in history)
    result = {
        "best_epoch": float(best["epoch"]),
        "loss": history[-1]["loss"],
        **scores[f"decoded as {trained_for}"],
        "crossing": float(len(crossed)),
        "crossing_right": float(wholly),
        **{f"{way}_uas": scores[f"the {way} word"]["uas"] for way in WAYS},
    }
    sample = sorted({*drawn(gold, parses)})
    sheet(folder / "parses.png", [gold[n] for n in sample], [parses[n] for n in sample])
    content = {"settings": settings, "history": history, "result": result}
    content["scores"] = scores
    text = f"{json.dumps(content, indent=2)}\n".encode()
    checkpoint.write(folder / "metrics.json", lambda sink: sink.write(text))
    lines = conllu.text(parses).encode()
    checkpoint.write(folder / "dev.conllu", lambda sink: sink.write(lines))
    print(
        f"\nbest epoch {best['epoch']}, {cpu:.0f} s of CPU time for all; see"
        f" {folder / 'parses.png'}, dev.conllu and metrics.json beside it"
    )
    return result


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
    figure = Figure(figsize=(10, 2.4 * len(gold)), layout="constrained")
    axes = figure.subplots(len(gold), 1, squeeze=False)[:, 0]
    for ax, true, guess in zip(axes, gold, found, strict=True):
        draw(ax, true, guess)
    checkpoint.write(path, lambda sink: figure.savefig(sink, format="png", dpi=130))


def draw(ax: Axes, true: Sentence, guess: Sentence) -> None:
    n = len(true.words)
    highest, lowest = 0.6, 0.0
    for word in range(1, n + 1):
        head, gold = guess.heads[word - 1], true.heads[word - 1]
        right = head == gold
        label, name = guess.labels[word - 1], true.labels[word - 1]
        color = BLUE if right else ORANGE
        says = label if not right or label == name else f"{label} (true: {name})"
        highest = max(highest, _arc(ax, head, word, says, color, 1))
        if not right:
            lowest = min(lowest, _arc(ax, gold, word, name, GREY, -1))
    for place, word in enumerate(["root", *true.words]):
        ax.text(place, -0.16, word, ha="center", va="top", fontsize=9)
    ax.set(
        xlim=(-0.6, n + 0.6), ylim=(lowest - (0.5 if lowest else 0.6), highest + 0.25)
    )
    ax.axis("off")


def _arc(ax: Axes, head: int, word: int, label: str, color: str, side: int) -> float:
    """An arc above the words, or below them; how far it reaches."""
    base = 0.0 if side > 0 else -0.5
    # ends at the middle of the word, begins a little beside that of the head
    begin = head + (0.15 if word > head else -0.15)
    middle, width = (begin + word) / 2, abs(begin - word)
    height = side * (0.25 + 0.3 * abs(head - word) ** 0.8)
    place, style = (middle, base), "-" if color == BLUE else "--"
    angles = (0, 180) if side > 0 else (180, 360)
    arc = Arc(place, width, 2 * abs(height), color=color, lw=1.2, ls=style)
    arc.theta1, arc.theta2 = angles
    ax.add_patch(arc)
    ax.plot(word, base, marker="v" if side > 0 else "^", ms=5, color=color)
    box = {"fc": "white", "ec": "none", "pad": 0.6}
    top = base + height
    ax.text(middle, top, label, size=7, color=color, ha="center", va="center", bbox=box)
    return top
