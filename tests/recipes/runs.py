"""Corpora and runs for the tests of the recipe."""

import gzip
import json
import os
import signal

import numpy as np
from sklearn.datasets import dump_svmlight_file

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


def write_set(folder, name="dna.scale", test="dna.scale.t", seed=0):
    """A LIBSVM file: three classes in five dimensions, labels 1 to 3."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(3, 5))
    for file, size in ((name, 60), (test, 30)):
        if file:
            y = rng.integers(3, size=size)
            X = centres[y] + rng.normal(size=(size, 5))
            opened = gzip.open if file.endswith(".gz") else open
            with opened(folder / file, "wb") as sink:
                dump_svmlight_file(X, y + 1, sink, zero_based=False)
    return folder / name


def numbers(out):
    """All that a run wrote down, but for how long it took."""
    content = json.loads((out / "metrics.json").read_text())
    for row in content["history"]:
        for name in ("seconds", "cpu_seconds"):
            row.pop(name, None)
    return content


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def killed(run):
    """Run in a process of its own, which dies by die(), as by kill -9."""
    child = os.fork()
    if not child:
        status = 1
        try:
            run()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
