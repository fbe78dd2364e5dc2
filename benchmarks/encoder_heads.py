"""Compare a chain with independent labels on a pretrained encoder.

    pip install -e ".[bench,hugging-face,recipes]"
    python benchmarks/encoder_heads.py --data DIR --encoder FOLDER_OR_NAME

Each head is trained on the first sentences of the training file, with equal steps,
rates, batches and seeds. Its last step is scored on the whole development file. The
softmax head is ``AutoModelForTokenClassification``: the same encoder, dropout and
linear layer, with independent labels.
"""

import argparse
import csv
import random
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    get_linear_schedule_with_warmup,
)

from measuring import machine
from smoothsp import metrics, schemes
from smoothsp.hugging_face import ChainForTokenClassification, encode_words
from training.recipe_data import conll, toy_corpus

HERE = Path(__file__).parent
HEADS = ("softmax", "crf", "hinge-l2")
Sentences = list[tuple[list[str], list[str]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", help="folder of CoNLL-2003; none: invented sentences")
    parser.add_argument("--encoder", required=True, help="folder or name of an encoder")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--output", type=Path, default=HERE / "results/encoder_heads.csv"
    )
    options = parser.parse_args()
    train, dev = sentences(options.data)
    train = train[: options.sentences]
    where = machine.where_measured(1, "cpu")
    kept = {name: where[name] for name in ("commit", "date", "machine", "torch")}
    rows: list[dict[str, Any]] = []
    for seed in options.seeds:
        for head in HEADS:
            f1, minutes = measure(
                head, options.encoder, train, dev, options.epochs, seed
            )
            rows.append({"head": head, "seed": seed, "f1": f1, "cpu_minutes": minutes})
            print(rows[-1], flush=True)
            with options.output.open("w", newline="") as file:
                writer = csv.DictWriter(file, [*rows[0], *kept], lineterminator="\n")
                writer.writeheader()
                writer.writerows(row | kept for row in rows)
    print("| head | span F1, mean | of each seed |")
    print("| --- | --- | --- |")
    for head in HEADS:
        found = [row["f1"] for row in rows if row["head"] == head]
        each = ", ".join(f"{value:.2f}" for value in found)
        print(f"| `{head}` | {statistics.mean(found):.2f} | {each} |")


def sentences(data: str | None) -> tuple[Sentences, Sentences]:
    """Words and BIO tags of the training and the development file."""
    splits = toy_corpus.make() if data is None else conll.load(data)
    train, dev = (
        [(s.words, schemes.convert(s.tags, "BIO", splits.scheme)) for s in part]
        for part in (splits.train, splits.dev)
    )
    return train, dev


def measure(
    head: str, encoder: str, train: Sentences, dev: Sentences, epochs: int, seed: int
) -> tuple[float, float]:
    """Span F1 in per cent on ``dev``, and minutes of the processor in training."""
    torch.manual_seed(seed)
    labels = sorted({tag for _, tags in train for tag in tags}, key=lambda x: x[::-1])
    tokenizer = AutoTokenizer.from_pretrained(encoder, add_prefix_space=True)
    about = {"id2label": dict(enumerate(labels))}
    if head == "softmax":
        about |= {"label2id": {label: n for n, label in enumerate(labels)}}
        model = AutoModelForTokenClassification.from_pretrained(encoder, **about)
    else:
        model = ChainForTokenClassification.from_pretrained(
            encoder, structured_loss=head, **about
        )
    fresh = [x for name, x in model.named_parameters() if _is_of_head(name)]
    pretrained = [x for name, x in model.named_parameters() if not _is_of_head(name)]
    optimizer = torch.optim.AdamW(
        [{"params": pretrained, "lr": 1e-4}, {"params": fresh, "lr": 1e-3}]
    )
    order = random.Random(seed)
    batches = [
        batch
        for _ in range(epochs)
        for batch in batched(order.sample(train, len(train)))
    ]
    schedule = get_linear_schedule_with_warmup(
        optimizer, len(batches) // 10, len(batches)
    )
    model.train()
    begin = time.process_time()
    for batch in batches:
        optimizer.zero_grad()
        tags = [[labels.index(tag) for tag in tags] for _, tags in batch]
        given = encode_words(tokenizer, [words for words, _ in batch], tags)
        # what the softmax head has no argument for; labels say the same
        del given["word_starts"]
        model(**given).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    minutes = (time.process_time() - begin) / 60
    return round(100 * f1(model.eval(), tokenizer, labels, dev), 2), round(minutes, 1)


@torch.no_grad()
def f1(model: Any, tokenizer: Any, labels: list[str], dev: Sentences) -> float:
    """Span F1; a word that was cut off has the label O."""
    guessed, gold = [], []
    for batch in batched(sorted(dev, key=lambda pair: len(pair[0]))):
        given = encode_words(tokenizer, [words for words, _ in batch])
        first = given["word_starts"].bool()
        if not isinstance(model, ChainForTokenClassification):
            del given["word_starts"]
        best = model(**given).logits.argmax(-1)
        for row, (_, tags) in enumerate(batch):
            found = [labels[n] for n in best[row, first[row]].tolist()]
            guessed.append(found + ["O"] * (len(tags) - len(found)))
            gold.append(tags)
    return metrics.span_f1(gold, guessed)[2]


def batched(given: Sentences, size: int = 32) -> list[Sentences]:
    return [given[n : n + size] for n in range(0, len(given), size)]


def _is_of_head(name: str) -> bool:
    return name.startswith(("classifier.", "chain."))


if __name__ == "__main__":
    main()
