"""Reading words letter by letter: the eight variants of BCFW.

    python recipes/ocr_words.py                              # drawn words, in a minute
    python recipes/ocr_words.py --data DIR                   # letter.data, maybe .gz
    python recipes/ocr_words.py --data DIR --settings large --seeds 1 2 3

A word is a chain: scores of 16 x 8 pixels for each of 26 letters, of pairs of letters,
of the first and of the last one; the cost is the share of wrong letters. ``small``
trains on fold 0 and tests on the others, ``large`` the other way round.

Three switches make eight variants: examples drawn uniformly or by their gaps,
Frank-Wolfe or pairwise steps, with and without a cache of the oracle's answers. Each
runs to a common duality gap or a time limit.

``cells.json`` is written after each run, for ``--resume``. At the end the recipe writes
``metrics.json``, ``variants.csv``, ``gaps.csv`` and figures.

Reproduces: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
Structured SVMs", OCR in figures 3, 5 and 7. Results: ``docs/reproduction.md``.
"""

if __name__ == "__main__":
    from runs import sigint

    sigint.default_sigint()

    from ocr.settings import Config
    from runs import start

    start.read_options(Config)

from typing import Any

from tqdm import tqdm

from ocr import letters as ocr_letters
from ocr import report, synthetic, variants
from ocr.letters import LetterWords
from ocr.settings import Config
from runs import arguments, options, terminal
from runs.result_store import ResultStore
from smoothsp.data import unseen_labels


def main(config: Config) -> dict[str, float]:
    """Train and report; the chief numbers come back."""
    validate(config)
    with config.locked():
        return compare(config)


def compare(config: Config) -> dict[str, float]:
    if config.data is None:
        words = synthetic.draw(config.drawn, seed=0)
    else:
        words = ocr_letters.load(config.data)
    print(words)
    for setting in config.settings:
        train_letters, test_letters = (
            words.join_letters(part) for part in words.split(setting)
        )
        unseen_labels.warn(f"{setting}, test", test_letters, train_letters)
    store = ResultStore(config.checkpoint, run_settings(config, words), config.resume)
    bar = tqdm(disable=None, unit="run", total=count_runs(config))
    with store.print_resume_hint(), bar:
        for setting in config.settings:
            train(config, store, words, setting, bar)
    return store.reraise_with_path(lambda: report.write(config, words, store))


def validate(config: Config) -> None:
    arguments.require_at_least(config, max_passes=1, drawn=20)
    arguments.require_distinct(config, "settings", "lam", "seeds")
    for name in ("tol", "max_seconds"):
        if not getattr(config, name) > 0:
            value = getattr(config, name)
            raise ValueError(f"{name}: expected a positive number, got {value}")
    for lam in config.lam:
        if not lam > 0:
            raise ValueError(f"lam: expected positive numbers, got {lam}")
    for seed in config.seeds:
        if seed < 0:
            raise ValueError(f"seeds: expected integers of at least 0, got {seed}")
    for name in ("settings", "lam", "seeds"):
        if not getattr(config, name):
            raise ValueError(f"{name}: expected one value at least, got none")


def run_settings(config: Config, words: LetterWords) -> dict[str, Any]:
    """What decides a cell, besides its own name."""
    names = ("tol", "max_passes", "max_seconds")
    data = f"{words.name} with checksum {words.checksum}"
    return {"data": data} | {name: getattr(config, name) for name in names}


def count_runs(config: Config) -> int:
    each = len(variants.VARIANTS) * len(config.lam) * len(config.seeds)
    return each * len(config.settings)


def train(
    config: Config, store: ResultStore, words: LetterWords, setting: str, bar: Any
) -> None:
    """The eight variants."""
    parts = words.split(setting)
    limits = {
        "tol": config.tol,
        "max_passes": config.max_passes,
        "max_seconds": config.max_seconds,
    }
    for lam in config.lam:
        for seed in config.seeds:
            for variant in variants.VARIANTS:
                key = variants.variant_key(setting, lam, variant, seed)
                bar.set_description(f"{setting}, lambda {lam:g}, {variant}")
                if key not in store:
                    show = bar.set_postfix_str
                    cell = variants.train(variant, *parts, lam, seed, limits, show)
                    store.put(key, cell)
                bar.update()


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
