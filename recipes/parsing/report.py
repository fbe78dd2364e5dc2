"""Tables, figure and numbers of the two parsers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from parsing import baselines
from runs import files
from runs.metrics import write_metrics
from smoothsp.data import ConstituencyTree, DependencyTree
from smoothsp.data.dependencies import replace_tree, to_conllu
from smoothsp.figures import draw
from smoothsp.models import ConstituencyParser, Parsed
from smoothsp.models.projectivity import crossing_arcs
from smoothsp.models.tree_scores import attachment_scores, bracket_scores, entity_scores

SHORTEST, LONGEST = 7, 15
NEIGHBOURS = ("previous", "next")


def report_dependencies(
    folder: Path,
    about: Mapping[str, Any],
    train: Sequence[DependencyTree],
    gold: Sequence[DependencyTree],
    parses_by_structure: Mapping[str, Sequence[Parsed]],
    trained_for: str,
) -> dict[str, float]:
    """Print the table, write figure, parses and numbers; the chief ones come back."""
    usual = Counter(x for tree in train for x in tree.labels).most_common(1)[0][0]
    rows = {
        f"decoded as {name}": parses for name, parses in parses_by_structure.items()
    }
    for side in NEIGHBOURS:
        neighbours = baselines.neighbour_heads(gold, side, usual)
        rows[f"the {side} word"] = neighbours
    compared = {name: attachment_scores(gold, parses) for name, parses in rows.items()}
    table("development sentences", compared)
    parses = parses_by_structure[trained_for]
    crossed = [n for n, tree in enumerate(gold) if crossing_arcs(tree.heads)]
    num_correct = sum(parses[n].heads == gold[n].heads for n in crossed)
    print(
        f"{len(crossed)} of {len(gold)} trees have crossing arcs; {num_correct} of them"
        " are found without a mistake"
    )
    result = {
        **compared[f"decoded as {trained_for}"],
        "crossing": float(len(crossed)),
        "crossing_right": float(num_correct),
        **{f"{side}_uas": compared[f"the {side} word"]["uas"] for side in NEIGHBOURS},
    }
    sample = sorted({*choose_sentences(gold, parses)})
    sheet(folder / "parses.png", [gold[n] for n in sample], [parses[n] for n in sample])
    pairs = zip(gold, parses, strict=True)
    lines = to_conllu(
        [replace_tree(tree, parse.heads, parse.labels) for tree, parse in pairs]
    )
    files.write(folder / "dev.conllu", lambda sink: sink.write(lines.encode()))
    return write_metrics(
        folder / "parses.png", about["settings"], about["history"], "las", compared,
        result,
    )  # fmt: skip


def report_constituents(
    folder: Path,
    parser: ConstituencyParser,
    train: Sequence[ConstituencyTree],
    gold: Sequence[ConstituencyTree],
) -> dict[str, float]:
    """Print the table, write numbers and parses; the chief numbers come back."""
    parses = parser.parse([tree.words for tree in gold])
    nested = parser.levels > 0
    scores = entity_scores if nested else bracket_scores
    name = "look-up" if nested else "right-branching"
    baseline_parses = (
        baselines.majority_entities if nested else baselines.right_branching
    )
    compared = {
        "the parser": scores(gold, parses),
        name: scores(gold, baseline_parses(train, gold)),
    }
    table("held-out sentences", compared)
    lines = "".join(x.columns() if nested else x.brackets() for x in parses).encode()
    files.write(folder / "dev.txt", lambda sink: sink.write(lines))
    baseline = {f"{name.replace('-', '_')}_f1": compared[name]["f1"]}
    result = compared["the parser"] | baseline
    settings, history = parser.about["settings"], parser.about["history"]
    return write_metrics(folder / "dev.txt", settings, history, "f1", compared, result)


def table(title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
    heads = next(iter(rows.values()))
    width = max(map(len, (title, *rows)))
    print(f"\n{title:<{width}}" + "".join(f"{head:>12}" for head in heads))
    for name, row in rows.items():
        numbers = "".join(f"{100 * row[head]:>12.2f}" for head in heads)
        print(f"{name:<{width}}{numbers}")


def choose_sentences(
    gold: Sequence[DependencyTree], parses: Sequence[Parsed]
) -> list[int]:
    """Numbers of sentences for the figure: crossing arcs, none, and a mistake."""
    fits = [n for n, s in enumerate(gold) if SHORTEST <= len(s.words) <= LONGEST]
    fits = fits or [max(range(len(gold)), key=lambda n: len(gold[n].words))]
    crossed = [n for n in fits if crossing_arcs(gold[n].heads)]
    wrong = [n for n in fits if gold[n].heads != parses[n].heads]
    right = [n for n in fits if n not in (*crossed, *wrong)]
    return [n for group in (crossed, right, wrong) for n in group[:1]]


def sheet(path: Path, gold: Sequence[DependencyTree], parses: Sequence[Parsed]) -> None:
    """Parses as arcs over the words: the wrong ones dashed, the true ones below."""
    figure = Figure(figsize=(10, 2.8 * len(gold)), layout="constrained")
    axes = figure.subplots(len(gold), 1, squeeze=False)[:, 0]
    for ax, true, guess in zip(axes, gold, parses, strict=True):
        draw(guess, true=true, ax=ax)
    files.write_figure(path, figure, dpi=130)
