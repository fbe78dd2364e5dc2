"""Named-entity tagger: a network under a chain, trained with a structured loss.

Embeddings of words, characters, shapes and affixes, a bidirectional LSTM, a linear
model of hashed window features beside it, and ``smoothsp.LinearChain`` on top, with
BIOES constraints in training and in decoding.

    python recipes/conll_ner.py                                  # invented corpus
    python recipes/conll_ner.py --data DIR                       # CoNLL files
    python recipes/conll_ner.py --data DIR --embeddings FILE     # with GloVe vectors
    python recipes/conll_ner.py --data wnut17                    # downloads WNUT-17
    python recipes/conll_ner.py --structure semi-markov          # whole segments
    python recipes/conll_ner.py --data DIR --unknown "?"         # some tags missing
    python recipes/conll_ner.py --devices 2                      # two processes
    smoothsp predict runs/conll_ner/model FILE --nbest 3         # tags new text

After every epoch, training writes ``checkpoint.ckpt`` for ``--resume``, and after the
best so far ``model``, a self-contained folder for ``smoothsp.models.load``. At the end
it writes ``metrics.json`` and ``learning_curve.png``. A resumed run ends with the same
numbers as an uninterrupted run. In the line of an epoch, ``exact`` is the share of
sentences for which smoothing over the k best outputs equals smoothing over all outputs.

Measured with ``OMP_NUM_THREADS=1`` on one core of an AMD EPYC, about 140 s a run, on
CoNLL-2003 English (``eng.testa``, which also chose the epoch), mean of seeds 1, 2, 3:

    --data DIR                       span F1 92.04    (92.02, 92.02, 92.08)
    --data DIR --embeddings FILE     span F1 92.74    (92.75, 92.74, 92.73)

FILE is 5,050 words of GloVe 6B in 50 dimensions. Other losses:
``docs/results/tagging.md``.
"""

if __name__ == "__main__":
    from runs import sigint

    sigint.default_sigint()

    from ner.settings import Config
    from runs import start

    start.read_options(Config)

from dataclasses import fields
from pathlib import Path
from typing import Any

from corpora import toy_corpus, wnut17
from ner import report, word_vectors
from ner.settings import Config
from runs import options, terminal
from smoothsp.data import SplitFiles, Splits, read_splits
from smoothsp.models import Tagger
from smoothsp.models.features import normalise
from smoothsp.models.tagger_options import Options
from smoothsp.run_folder import is_main_process, require_free


def main(config: Config) -> dict[str, float]:
    """Train; return the numbers of the best model."""
    require_free(config.out, config.resume, config.overwrite)
    splits = load(config)
    tagger = Tagger.train(
        splits.train,
        splits.dev,
        encoder=config.encoder,
        vectors=load_vectors(config.embeddings, splits),
        tokenizer=config.tokenizer,
        out=config.out,
        resume=config.resume,
        overwrite=config.overwrite,
        trainer={"devices": config.devices},
        **{field.name: getattr(config, field.name) for field in fields(Options)},
    )
    if tagger.about.get("interrupted"):
        raise KeyboardInterrupt
    return report.write(config.out, tagger, splits) if is_main_process() else {}


def load(config: Config) -> Splits:
    """Read the corpus, or make one."""
    names = ("column", "word_column", "encoding", "skip_bad", "unknown", "tokenizer")
    layout: dict[str, Any] = {name: getattr(config, name) for name in names}
    if config.train or config.dev or config.test:
        if config.data or not (config.train and config.dev):
            raise ValueError(
                "train: expected --train and --dev, and no --data beside them, got"
                f" {config.train}, {config.dev} and {config.data}"
            )
        test = Path(config.test) if config.test else None
        files = SplitFiles(Path(config.train), Path(config.dev), test)
        return read_splits(files, **layout)
    if config.data is None:
        return toy_corpus.make()
    folder = wnut17.fetch() if config.data == "wnut17" else config.data
    return read_splits(folder, **layout)


def load_vectors(path: str | None, splits: Splits) -> dict[str, Any]:
    """Read the vectors of the words of a corpus."""
    if path is None:
        return {}
    words = {w for part in splits for sentence in part for w in sentence.words}
    return word_vectors.read(path, {normalise(word) for word in words})


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
