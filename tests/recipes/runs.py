"""Corpora and runs for the tests of the recipe."""

import itertools
import json
import os
import signal

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


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def killed(owner, name, calls, run):
    """Run in a process of its own that is killed, as by kill -9, inside a function.

    It dies where ``owner.name`` is called for the time after ``calls``.
    """
    child = os.fork()
    if not child:
        status = 1
        try:
            whole, counter = getattr(owner, name), itertools.count()
            setattr(
                owner,
                name,
                lambda *x, **y: (whole if next(counter) < calls else die)(*x, **y),
            )
            run()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
