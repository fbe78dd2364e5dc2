"""Measure what users wait for: installation, first calls, recipes and predictions.

    python benchmarks/waiting.py
    python benchmarks/waiting.py --only ud_parser    # rows with this in their name

Measured rows replace those of results/waiting.csv, from which the tables of
tables/waiting.md are written. spaCy and flair are installed into virtual environments
of their own, which pip fetches from the package index.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import machine
from report.results import shortened
from report.tables import fill, markdown
from waits import first_call, peers
from waits.predictions import PREDICTIONS, inputs
from waits.recipe import COLUMNS

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[1]
INSTALLATION, FIRST, RECIPES, PER_SECOND = (
    "installation",
    "first calls",
    "recipes",
    "predictions",
)
PACKAGES = {"smoothsp": str(ROOT), "spaCy": "spacy", "flair": "flair"}
# The command of each recipe, which ends after an epoch, or after one fit.
COMMANDS = {
    "conll_ner": "--epochs 1",
    "lightning_ner": "--epochs 1",
    "ud_parser": "--epochs 1",
    "constituency": "--epochs 1",
    "voc_localization": "--epochs 1 --cache OUT/cache",
    "horse_segmentation": "--model network --epochs 1",
    "pose_tree": "--epochs 1",
    "matching_points": "--epochs 1",
    "conll_linear": "--study tagger",
    "ocr_words": "--settings small --lam 0.1",
    "shortest_path": "--sizes 100 --degrees 1 --noises 0 --seeds 1",
    "multiclass_svm": "--log2-c 0 --tolerances 0.009",
}
TASKS = {
    "conll_ner": "named entities, sentences",
    "ud_parser": "dependency trees, sentences",
    "constituency": "bracketed trees, sentences",
    "voc_localization": "boxes, images",
    "horse_segmentation": "masks, images",
}
Row = dict[str, Any]


def child(
    command: list[str], cache: str | None = None, given: str | None = None
) -> Any:
    """What a fresh process on one thread prints last, as JSON."""
    environment = machine.pinned(1)
    if cache:
        environment["NUMBA_CACHE_DIR"] = cache
    done = subprocess.run(
        command, cwd=HERE, env=environment, input=given, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def row(section: str, name: str, **values: float) -> Row:
    return {"section": section, "name": name, "values": values}


class Environments:
    """Virtual environments in which each library is alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.installed: dict[str, dict[str, float]] = {}  # in this run

    def python(self, package: str) -> Path:
        return self.folder / package / "bin/python"

    def has(self, package: str) -> bool:
        """Whether a library is there, or could be installed."""
        if self.python(package).exists():
            return True
        try:
            self.installed[package] = self.install(package)
        except subprocess.CalledProcessError as error:
            print(f"{package}: not installed, {error.stderr.decode()[-200:]}")
            shutil.rmtree(self.folder / package)
            return False
        return True

    def install(self, package: str) -> dict[str, float]:
        """Minutes and megabytes of an installation, and those of PyTorch in it."""
        python = self.python(package)
        made = [sys.executable, "-m", "venv", str(python.parents[1])]
        subprocess.run(made, check=True)
        before = self._megabytes(package)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir"]
        began = time.perf_counter()
        subprocess.run([*pip, PACKAGES[package]], check=True, capture_output=True)
        minutes = (time.perf_counter() - began) / 60
        torch = self._megabytes(package, ("torch", "nvidia", "triton", "cuda"))
        whole = self._megabytes(package) - before
        return {"minutes": minutes, "megabytes": whole, "of them PyTorch": torch}

    def _megabytes(self, package: str, parts: tuple[str, ...] = ("",)) -> float:
        (site,) = self.python(package).parents[1].glob("lib/python*/site-packages")
        return sum(
            file.stat().st_size / 1e6
            for file in site.rglob("*")
            if file.is_file() and file.relative_to(site).parts[0].startswith(parts)
        )


def installations(environments: Environments, wanted: str) -> Iterator[Row]:
    """Libraries that are installed now."""
    for package in PACKAGES:
        if wanted in f"{INSTALLATION} {package}":
            environments.has(package)
    for package, values in environments.installed.items():
        yield row(INSTALLATION, package, **values)


def first_calls(wanted: str) -> Iterator[Row]:
    if wanted not in FIRST:
        return
    command = [sys.executable, "-m", "waits.first_call"]
    with tempfile.TemporaryDirectory() as cache:
        empty, warm = (child(command, cache) for _ in range(2))
    for question in first_call.QUESTIONS:
        yield row(FIRST, question, empty=empty[question], warm=warm[question])


def recipes(environments: Environments, wanted: str) -> Iterator[Row]:
    """Each recipe in a fresh process with an empty cache, then its predictions."""
    for recipe, options in COMMANDS.items():
        if wanted not in f"{RECIPES} {recipe}":
            continue
        with tempfile.TemporaryDirectory() as folder:
            words = f"{recipe} {options} --out OUT".replace("OUT", folder).split()
            command = [sys.executable, "-m", "waits.recipe", *words]
            found = child(command, f"{folder}/kernels")
        speeds = {"smoothsp": found.pop("per second", 0.0)}
        yield row(RECIPES, recipe, **found)
        if recipe not in PREDICTIONS:
            continue
        for library, tasks in peers.TASKS.items():
            if recipe in tasks and environments.has(library):
                python = str(environments.python(library))
                command = [python, "waits/peers.py", library, recipe]
                speeds[library] = child(command, given=json.dumps(inputs(recipe)))
        yield row(PER_SECOND, recipe, **speeds)


def cells(found: Row, names: list[str], digits: int) -> list[str]:
    values = found["values"]
    return [f"{values[x]:,.{digits}f}" if x in values else "" for x in names]


def tables(rows: list[Row]) -> dict[str, str]:
    """The table of each section, and where they were measured."""
    columns = {
        INSTALLATION: ("library", ["minutes", "megabytes", "of them PyTorch"], 1),
        FIRST: ("question", ["empty", "warm"], 2),
        RECIPES: ("command", [*COLUMNS], 1),
        PER_SECOND: ("model, inputs", ["smoothsp", *peers.TASKS], 0),
    }
    order = [*PACKAGES, *first_call.QUESTIONS, *COMMANDS]
    texts = {}
    for section, (head, names, digits) in columns.items():
        mine = [x for x in rows if x["section"] == section]
        mine.sort(key=lambda x: order.index(x["name"]))
        body = [[label(x), *cells(x, names, digits)] for x in mine]
        texts[section] = markdown([[head, *names], *body])
    where = {f"{x['date']}, commit `{x['commit']}`, {x['machine']}." for x in rows}
    return texts | {"where": "\n".join(sorted(where))}


def label(found: Row) -> str:
    name = found["name"]
    if found["section"] == RECIPES:
        return f"`{name}.py {COMMANDS[name]}`".replace(" --cache OUT/cache", "")
    return f"`{name}.py`: {TASKS[name]}" if found["section"] == PER_SECOND else name


def read(path: Path) -> list[Row]:
    """Rows of a CSV with one quantity a line."""
    found: dict[tuple[str, str], Row] = {}
    if path.exists():
        with path.open(newline="") as file:
            for line in csv.DictReader(file):
                quantity, value = line.pop("quantity"), float(line.pop("value"))
                one = {**line, "values": {}}
                one = found.setdefault((line["section"], line["name"]), one)
                one["values"][quantity] = value
    return list(found.values())


def replaced(rows: list[Row], new: Row) -> list[Row]:
    """The rows, with one in the place of that of its name."""
    key = new["section"], new["name"]
    return [x for x in rows if (x["section"], x["name"]) != key] + [new]


def write(path: Path, rows: list[Row]) -> None:
    lines = [
        {"section": x["section"], "name": x["name"], "quantity": quantity}
        | shortened({"value": value})
        | {name: text for name, text in x.items() if name != "values"}
        for x in rows
        for quantity, value in x["values"].items()
    ]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="a part of a section or of a row")
    parser.add_argument(
        "--environments",
        type=Path,
        help="keep the virtual environments in this folder, and use those in it",
    )
    options = parser.parse_args()
    results, where = HERE / "results/waiting.csv", machine.where_measured(0, "cpu")
    with tempfile.TemporaryDirectory() as folder:
        environments = Environments(options.environments or Path(folder))
        for made in (
            installations(environments, options.only),
            first_calls(options.only),
            recipes(environments, options.only),
        ):
            for found in made:
                print(found["name"], shortened(found["values"]), flush=True)
                rows = replaced(read(results), found | where)
                write(results, rows)
                fill(HERE / "tables/waiting.md", tables(rows))


if __name__ == "__main__":
    main()
