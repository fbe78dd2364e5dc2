"""Compare random structures with an enumeration: a mismatch is printed as a program.

``python -m tests.fuzz --minutes 5 --seed 7``; the exit status is 1 on a mismatch.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator

from tests.fuzz import cases
from tests.fuzz.questions import EVERY, questions_of
from tests.fuzz.structures import KINDS


def mismatches(
    seed: int,
    kinds: list[str],
    draws: int | None = None,
    dtypes: tuple[str, ...] = ("float32", "float64", "float64"),
) -> Iterator[str]:
    """Yield "" for each draw that agrees, and a program for one that does not."""
    rng = random.Random(seed)
    number = 0
    while draws is None or number < draws:
        number += 1
        # chains and choices have code of their own, and most options
        often = [x for x in ("Chain", "Multiclass") if x in kinds]
        kind = KINDS[rng.choice(often if often and rng.random() < 0.4 else kinds)]
        case = cases.draw(random.Random(rng.random()), kind, questions_of(kind), dtypes)
        ask = EVERY[case.question]
        found, _ = cases.run(case, ask)
        yield cases.shrink(case, ask, found)[2] if found else ""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", metavar="STRUCTURE", choices=KINDS)
    given = parser.parse_args(arguments)
    start, number = time.monotonic(), 0
    for program in mismatches(given.seed, given.only or [*KINDS]):
        number += 1
        seconds = time.monotonic() - start
        if program:
            where = f"draw {number}, seed {given.seed}, {seconds:.0f} s"
            sys.stdout.write(f"# {where}\n{program}\n")
            return 1
        if seconds > 60 * given.minutes:
            break
    sys.stdout.write(f"{number} draws agree with their enumerations\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
