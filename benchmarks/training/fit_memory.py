"""How much memory a process takes that trains a tagger on hashed features.

From reading the files to the weights, in a fresh process each: the peak of what is
resident, imports included, compilation not. Linux only.

    python -m training.fit_memory BCFW 1048576 10 DIR  # one of them, in benchmarks/
"""

import json
import subprocess
import sys
from pathlib import Path

from inference import memory
from measuring import machine
from smoothsp.linear.solvers import BCFW, LBFGS, SGD, CasimirSVRG
from training import tagged_texts
from training.races import Entry
from training.tagged_texts import Texts

COLUMNS = 2**20
SOLVERS = {"SGD": SGD, "Casimir-SVRG": CasimirSVRG, "L-BFGS": LBFGS, "BCFW": BCFW}
# passes that fill everything that a solver keeps
PASSES = {"SGD": 3, "Casimir-SVRG": 3, "L-BFGS": 12, "BCFW": 3}


def peak(name: str, columns: int, passes: int, folder: Path | None) -> int:
    """In this process: bytes."""
    fit(name, columns, passes, tagged_texts.texts(folder))
    return memory.resident("VmHWM")


def fit(name: str, columns: int, passes: int, texts: Texts) -> None:
    train = texts.train
    labels = sorted({tag for tags in train.tags for tag in tags})
    matrix = texts.templates(hashing=columns).transform(train.tokens)
    problem = tagged_texts.problem(matrix, train, labels)
    SOLVERS[name](lam=1 / len(problem), max_passes=passes, tol=0).solve(problem)


def entry(section: str, case: str, name: str, folder: Path | None) -> Entry:
    """Of a process that finds everything compiled."""
    fit(name, 2**8, 2, tagged_texts.texts(None, 10))
    arguments = [
        name,
        str(COLUMNS),
        str(PASSES[name]),
        *([str(folder.resolve())] if folder else []),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "training.fit_memory", *arguments],
        cwd=machine.HERE,
        env=machine.pinned(1),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return Entry(
        section,
        case,
        name,
        "float64",
        1,
        found,
        found,
        rounds=1,
        objective=float("nan"),
        epochs=PASSES[name],
        ratio=1.0,
        unit="B",
    )


if __name__ == "__main__":
    method, columns, passes, *where = sys.argv[1:]
    folder = Path(where[0]) if where else None
    print(json.dumps(peak(method, int(columns), int(passes), folder)))
