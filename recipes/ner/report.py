"""Tables, the figure and the numbers of ``conll_ner.py``."""

from pathlib import Path

from matplotlib.figure import Figure
from seqeval.metrics import classification_report
from seqeval.scheme import IOB2

from ner.majority_baseline import majority_tags
from runs import axes, files
from smoothsp.data import Splits, by_document, unseen_labels
from smoothsp.models import Tagger
from smoothsp.schemes import convert, detect

BLUE, ORANGE, GREY = "#2a6f97", "#d1661f", "#777777"


def write(folder: Path, tagger: Tagger, splits: Splits) -> dict[str, float]:
    """Print the tables, write the figure and all numbers; return the chief ones."""
    settings, history = tagger.about["settings"], tagger.about["history"]
    best = max(history, key=lambda row: row["dev_f1"])
    result = {"best_epoch": float(best["epoch"]), "loss": history[-1]["loss"]}
    tables = {}
    for name, part in (("dev", splits.dev), ("test", splits.test)):
        if not part:
            continue
        gold = convert_to_bioes([s.tags for s in part])
        if name == "test":  # training warns of those of dev
            unseen_labels.warn(name, (t for row in gold for t in row), tagger.labels)
        guess = convert_to_bioes(
            [t.tags for t in tagger.tag(by_document(part)) if t.words], tagger.scheme
        )
        model = scores_by_type(gold, guess)
        baseline = scores_by_type(gold, majority_tags(splits.train, part))
        tables[name] = {"model": model, "look_up": baseline}
        print(f"\n{table(name, model, baseline)}")
        chief = ("precision", "recall", "f1")
        result |= {f"{name}_{key}": model["all"][key] for key in chief}
        result[f"{name}_look_up_f1"] = baseline["all"]["f1"]
    figure = folder / "learning_curve.png"
    learning_curve(figure, history, result["dev_look_up_f1"])
    content = {"settings": settings, "history": history, "result": result} | tables
    files.write_json(folder / "metrics.json", content)
    print(f"\nbest epoch {best['epoch']}; see {figure} and metrics.json beside it")
    return result


def convert_to_bioes(
    tags: list[list[str]], scheme: str | None = None
) -> list[list[str]]:
    """Return tags of sentences in BIOES, from a scheme that is detected if absent."""
    source = scheme or detect(tags)
    return [convert(row, source=source, target="BIOES", strict=False) for row in tags]


def scores_by_type(
    gold: list[list[str]], predicted: list[list[str]]
) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and number of spans, of each type and of ``all``."""
    if all(tag == "O" for side in (gold, predicted) for tags in side for tag in tags):
        # means over no types would warn
        return {"all": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "spans": 0}}
    as_bio = [
        [convert(tags, source="BIOES", target="BIO") for tags in side]
        for side in (gold, predicted)
    ]
    report = classification_report(
        *as_bio, mode="strict", scheme=IOB2, output_dict=True, zero_division=0
    )
    names = [*sorted(name for name in report if not name.endswith(" avg")), "micro avg"]
    return {
        "all" if name == "micro avg" else name: {
            "precision": float(report[name]["precision"]),
            "recall": float(report[name]["recall"]),
            "f1": float(report[name]["f1-score"]),
            "spans": int(report[name]["support"]),
        }
        for name in names
    }


def table(
    title: str,
    scores: dict[str, dict[str, float]],
    baseline: dict[str, dict[str, float]] | None = None,
) -> str:
    heads = ["precision", "recall", "F1", "spans"]
    heads += [] if baseline is None else ["look-up F1"]
    width = 2 + max(map(len, [title, *scores]))
    lines = [f"{title:<{width}}" + "".join(f"{head:>12}" for head in heads)]
    for name, row in scores.items():
        cells = [f"{100 * row[key]:.2f}" for key in ("precision", "recall", "f1")]
        cells.append(str(row["spans"]))
        if baseline is not None:
            cells.append(f"{100 * baseline.get(name, {'f1': 0.0})['f1']:.2f}")
        lines.append(f"{name:<{width}}" + "".join(f"{cell:>12}" for cell in cells))
    return "\n".join(lines)


def learning_curve(
    path: Path, history: list[dict[str, float]], baseline_f1: float
) -> None:
    """Loss and F1 on the development sentences, pass by pass."""
    epochs = [row["epoch"] for row in history]
    scores = [100 * row["dev_f1"] for row in history]
    best = max(range(len(scores)), key=scores.__getitem__)
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    loss, f1 = figure.subplots(1, 2)
    losses = [row["loss"] for row in history]
    loss.plot(epochs, losses, "o-", color=BLUE)
    loss.set(xlabel="epoch", ylabel="training loss per sentence")
    axes.make_logarithmic(loss.yaxis, losses)
    axes.limit_y(loss)
    f1.plot(epochs, scores, "o-", color=BLUE, label="model")
    f1.axhline(100 * baseline_f1, color=GREY, ls="--", label="word look-up")
    ring = {"ls": "", "marker": "o", "ms": 10, "mfc": "none", "color": ORANGE}
    f1.plot(epochs[best], scores[best], label=f"best: {scores[best]:.2f}", **ring)
    f1.set(xlabel="epoch", ylabel="span F1, development set (%)")
    axes.limit_percentages(f1)
    f1.legend(frameon=False)
    for panel in (loss, f1):
        axes.label_integers(panel.xaxis)
        axes.style_axes(panel)
    files.write_figure(path, figure, dpi=150)
