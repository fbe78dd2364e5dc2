"""Corpora and runs for the tests of the recipe."""

import json

from corpora import toy_corpus

TRAIN, EPOCHS = 250, 5


def write_corpus(folder, sizes, seed=3):
    folder.mkdir(parents=True, exist_ok=True)
    splits = toy_corpus.make(seed, *sizes, scheme="BIO")
    for name in ("train", "dev", "test"):
        rows = [
            "".join(f"{w}\t{t}\n" for w, t in zip(s.words, s.tags, strict=True))
            for s in getattr(splits, name)
        ]
        (folder / f"{name}.txt").write_text("\n".join(rows))
    return str(folder)


def numbers(out):
    """All that a run wrote down, but for how long it took."""
    content = json.loads((out / "metrics.json").read_text())
    for row in content["history"]:
        del row["seconds"]
    return content
