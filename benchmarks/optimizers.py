"""Train the tagger of lightning_ner.py by each optimizer, at equal gradients.

    pip install -e ".[bench,recipes,lightning]"
    python benchmarks/optimizers.py --data DIR    # CoNLL-2003; without, invented

A run computes --passes gradients of each training sentence: that many epochs of Adam, a
third as many of the others. Writes a CSV with a row for each run, and the table in
docs/optimizers.md. --page only rewrites the table from the CSV.
"""

import argparse
import csv
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from measuring import machine
from report.tables import fill, markdown
from smoothsp.metrics import span_f1
from smoothsp.models.divergence import require_sound
from smoothsp.optim import SVRG, CasimirSVRG
from training import recipe_data

HERE = Path(__file__).parent
PAGE, RESULTS = HERE.parent / "docs/optimizers.md", HERE / "results/optimizers.csv"
RATES, SEEDS = (0.003, 0.01, 0.03), (1, 2, 3)
OPTIMIZERS = {
    "adam": "Adam, linear decay",
    "svrg": "`SVRG`",
    "casimir": "`CasimirSVRG`",
    "prox-linear": "`ProxLinear`",
}
Row = dict[str, Any]
Epoch = Callable[[Any], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", help="folder of CoNLL-2003; none: invented sentences")
    parser.add_argument("--sentences", type=int, default=1000, help="to train on")
    parser.add_argument("--passes", type=int, default=6)
    parser.add_argument("--page", action="store_true", help="only write the table")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    if not options.page:
        torch.set_num_threads(1)
        where = machine.where_measured(0, "cpu")
        kept = {name: where[name] for name in ("commit", "date", "machine", "torch")}
        size = {"sentences": options.sentences, "passes": options.passes}
        rows = []
        for row in measure(options.data, **size):
            print(row, flush=True)
            rows.append(row | size | kept)
            write(options.output, rows)
    with options.output.open(newline="") as file:
        fill(PAGE, {"optimizers": table([*csv.DictReader(file)])})


def write(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def measure(
    data: str | None, sentences: int, passes: int, seeds: tuple[int, ...] = SEEDS
) -> Iterator[Row]:
    """Loss on the training sentences, and F1 on others, of each run."""
    for seed in seeds:
        corpus = recipe_data.lightning_data(data, seed, sentences)
        for optimizer in OPTIMIZERS:
            for rate in RATES:
                row = {"optimizer": optimizer, "rate": rate, "seed": seed}
                yield row | run(corpus, optimizer, rate, seed, passes)


def run(corpus: Any, optimizer: str, rate: float, seed: int, passes: int) -> Row:
    """Train; no loss and an F1 of 0 where training ended with an alarm."""
    tagger = recipe_data.lightning_tagger(corpus, seed)
    loader = corpus.train_dataloader()
    closure = closure_of(tagger)
    if optimizer == "adam":
        epochs, epoch = passes, adam(tagger, loader, rate, passes)
    else:
        # a full gradient, and two gradients a step
        epochs, epoch = (
            passes // 3,
            with_full_gradients(tagger, loader, rate, optimizer),
        )
    try:
        for number in range(epochs):
            loader.sampler.set_epoch(number)
            epoch(closure)
    except (RuntimeError, ValueError):
        return {"loss": "nan", "f1": "0"}
    loss, f1 = evaluate(tagger, corpus)
    return {"loss": f"{loss:.4f}", "f1": f"{f1:.4f}"}


def closure_of(tagger: Any) -> Epoch:
    def closure(batch: Any) -> torch.Tensor:
        loss = tagger.loss(batch)
        loss.backward()
        return loss.detach()

    return closure


def adam(tagger: Any, loader: Any, rate: float, epochs: int) -> Epoch:
    optimizer = torch.optim.Adam(tagger.parameters(), rate)
    steps = epochs * len(loader)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)

    def epoch(closure: Any) -> None:
        for batch in loader:
            optimizer.zero_grad()
            require_sound(float(closure(batch)), rate)
            optimizer.step()
            decay.step()

    return epoch


def with_full_gradients(tagger: Any, loader: Any, rate: float, name: str) -> Epoch:
    if name == "prox-linear":
        outer = recipe_data.outer_iterations(tagger, loader, rate)
        return lambda _: outer.step()
    smoothing = tagger.criterion.smoothing
    optimizer = (
        SVRG(tagger.parameters(), rate)
        if name == "svrg"
        else CasimirSVRG(tagger.parameters(), rate, kappa=0.1, smoothing=smoothing)
    )
    return lambda closure: optimizer.epoch(closure, loader)


@torch.no_grad()
def evaluate(tagger: Any, corpus: Any) -> tuple[float, float]:
    """Mean loss over the training sentences, span F1 over the others."""
    losses = [(tagger.loss(b), len(b.tags)) for b in corpus.loader("train")]
    loss = sum(float(x) * many for x, many in losses) / sum(n for _, n in losses)
    pairs = [
        (tagger.named(batch.tags, batch), tagger.predict_step(batch))
        for batch in corpus.val_dataloader()
    ]
    gold, found = (
        [row for part in side for row in part] for side in zip(*pairs, strict=True)
    )
    return loss, span_f1(gold, found)[2]


def table(rows: list[Row]) -> str:
    """Means over the seeds, and the lowest and highest F1; the best F1 is bold."""
    lines = [["optimizer", "rate", "loss", "F1", "F1 of the seeds"]]
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["optimizer"], str(row["rate"])), []).append(row)
    for (optimizer, rate), runs in groups.items():
        loss, f1 = ([float(row[name]) for row in runs] for name in ("loss", "f1"))
        seeds = f"{min(f1):.3f} to {max(f1):.3f}"
        means = f"{statistics.mean(loss):.2f}", f"{statistics.mean(f1):.3f}"
        lines.append([OPTIMIZERS[optimizer], rate, *means, seeds])
    first = rows[0]
    size = f"{first['sentences']} sentences, {first['passes']} gradients of each"
    place = f"{first['date']}, commit `{first['commit']}`, torch {first['torch']}"
    return f"{size}; {place}.\n\n{markdown(lines)}"


if __name__ == "__main__":
    main()
