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
    python recipes/conll_ner.py --predict FILE --nbest 3         # tags new text

After every best epoch so far, training writes ``model``, a self-contained folder for
``smoothsp.models.load``. After every epoch it writes ``checkpoint.pt`` for
``--resume``, and at the end ``metrics.json`` and ``learning_curve.png``. A resumed run
ends with the same numbers as an uninterrupted run. In the line of an epoch, ``exact``
is the fraction of sentences for which smoothing over the k best outputs equals
smoothing over all outputs.

Measured with ``OMP_NUM_THREADS=1`` on one core of an AMD EPYC, about 140 s a run, on
CoNLL-2003 English (``eng.testa``, which also chose the epoch), mean of seeds 1, 2, 3:

    --data DIR                       span F1 92.04    (92.02, 92.02, 92.08)
    --data DIR --embeddings FILE     span F1 92.74    (92.75, 92.74, 92.73)

FILE is 5,050 words of GloVe 6B in 50 dimensions. Other losses:
``docs/results/tagging.md``.
"""

if __name__ == "__main__":
    from runs import start

    start.quietly()

import dataclasses
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from corpora import conll, toy_corpus, wnut17
from ner import report, word_vectors
from ner.settings import Config, check
from runs import checkpoint, model_folder, options, terminal, threads
from runs import folder as run_folder
from runs.failures import Failures
from smoothsp import schemes
from smoothsp.data import TaggedSentence as Sentence
from smoothsp.data import unseen_labels
from smoothsp.data.columns import File, read_words
from smoothsp.data.text_files import name_of
from smoothsp.models import Tagged, Tagger, load
from smoothsp.models.features import Vocabulary, normalise
from smoothsp.models.network import Sizes, TaggerNetwork
from smoothsp.models.training import MU, TOP_K, Training


def main(config: Config) -> dict[str, float]:
    """Train, or tag; the numbers that come back are those of the best model."""
    check(config)
    if config.predict is not None:
        return predict(config)
    if config.evaluate is not None:
        return evaluate(config)
    with run_folder.held(config.out, config.model_folder):
        return train(config)


def train(config: Config) -> dict[str, float]:
    if not config.encoder:
        threads.one()
    splits = load_corpus(config)
    parts = {"train": splits.train, "dev": splits.dev, "test": splits.test or []}
    words = {name: words_of(part) for name, part in parts.items()}
    wanted = {normalise(w) for part in words.values() for s in part for w in s}
    vectors = word_vectors.read(config.embeddings, wanted) if config.embeddings else {}
    settings = settings_of(config, splits, vectors)
    saved = checkpoint.to_resume(config.checkpoint, settings, config.resume)
    runs: list[Training] = []

    def on_round(run: Training) -> None:
        if runs:
            after_round(config, run, settings)
            return
        runs.append(run)
        if saved:
            checkpoint.use(config.checkpoint, lambda: run.load(saved))
        print(
            f"{len(run.corpus)} sentences to train on, {len(run.labels)} labels,"
            f" {sum(p.numel() for p in run.model.parameters()):,} weights on"
            f" {run.model.device}"
        )

    try:
        tagger = Tagger.train(
            words["train"],
            conll.by_document(splits.train, splits.given),
            config.encoder,
            dev=(
                words["dev"],
                conll.by_document(splits.dev, [s.tags for s in splits.dev]),
            ),
            vectors=vectors,
            tokenizer=config.tokenizer,
            on_round=on_round,
            **config.options,
        )
        if tagger.about.pop("interrupted", False):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        epoch = len(runs[0].history) if runs else 0
        keep = f"add --resume to continue after epoch {epoch}"
        print(f"\nstopped; {keep if epoch else 'no epoch was finished'}")
        raise
    if len(runs[0].history) < runs[0].rounds[0]:
        print(f"stopped early: {config.patience} rounds without a better dev F1")
    save_model(config, tagger, settings)
    taggings = {
        name: [
            schemes.convert(t.tags, source=tagger.scheme, target="BIOES")
            for t in tagger.stream(words[name])
            if t.words
        ]
        for name in ("dev", "test")
        if parts[name]
    }
    return report.write(config.out, settings, splits, runs[0].history, taggings)


def after_round(config: Config, run: Training, settings: dict[str, Any]) -> None:
    """Save a run, and its model if that is the best so far; say how good it is."""
    row, sizes = run.history[-1], run.model.sizes
    about = {"settings": settings, "size": sizes.word, "labels": run.labels}
    about |= {"sizes": dataclasses.asdict(sizes), "scheme": run.scheme}
    about["vocabulary"] = dataclasses.asdict(run.vocabulary)
    checkpoint.save(config.checkpoint, about | run.state())
    if row["dev_f1"] > max((r["dev_f1"] for r in run.history[:-1]), default=-1.0):
        save_model(config, Tagger.of(run, config.tokenizer), settings)
    exact = "" if row["exact"] is None else f"  exact {100 * row['exact']:5.1f} %"
    print(
        f"epoch {row['epoch']:>2}/{run.rounds[0]}  loss {row['loss']:8.4f}{exact}"
        f"  dev F1 {100 * row['dev_f1']:.2f}  {row['seconds']:.1f} s",
        flush=True,
    )


def save_model(config: Config, tagger: Tagger, settings: dict[str, Any]) -> None:
    tagger.about = {"settings": settings} | tagger.about
    tagger.save(config.model_folder)


def predict(config: Config) -> dict[str, float]:
    """Print each tagging, as ``--show`` says."""
    tagger = trained(config)
    file, failures = (
        read_words(config.predict, config.layout),
        Failures(config.skip_bad),
    )
    for wrong in file.bad:
        failures.add(f"{name_of(config.predict)}, {wrong}")
    sentences = file.texts or words_of(file.sentences)
    # the lines of a file of JSON may be empty sentences, but it has no documents
    parted, done = len(sentences) > len(file.texts or file.sentences), 0
    for tagged in tagger.stream(sentences, config.nbest, config.confidence):
        if parted and not tagged.words:
            continue
        try:
            print(shown(tagged, config, tagger, file), end="")
            done += 1
        except ValueError as error:
            failures.add(error)
    failures.end(done, "sentences")
    return {"sentences": float(done)}


def shown(tagged: Tagged, config: Config, tagger: Tagger, file: File) -> str:
    """A tagging as ``--show`` says, with tags written as those of the input."""
    ranked, scheme = [tagged, *tagged.others], file.scheme
    if scheme and schemes.PLAIN not in (scheme, tagger.scheme):
        ranked = [
            dataclasses.replace(one, tags=_as_written(one.tags, tagger.scheme, file))
            for one in ranked
        ]
    if config.show == "json":
        return f"{dataclasses.replace(ranked[0], others=tuple(ranked[1:])).json()}\n"
    if config.show == "colour":
        return "".join(f"{one.coloured(tagger.types)}\n" for one in ranked)
    if config.nbest == 1:
        return ranked[0].columns()
    found = ""
    for rank, one in enumerate(ranked, start=1):
        found += f"# rank = {rank} of {config.nbest}, score = {one.score:.4f}\n"
        found += one.columns()
    return found


def _as_written(tags: list[str], scheme: str, file: File) -> list[str]:
    found = schemes.convert(tags, source=scheme, target=file.scheme)
    return [file.notation.write(tag) for tag in found]


def evaluate(config: Config) -> dict[str, float]:
    """Print the scores of the model on a file, by type."""
    tagger = trained(config)
    part, _ = conll.read_as(Path(config.evaluate), "BIOES", config.layout)
    gold = [s.tags for s in part]
    unseen_labels.warn(config.evaluate, (t for row in gold for t in row), tagger.labels)
    found = [t.tags for t in tagger.tag(words_of(part)) if t.words]
    scores = report.by_type(
        gold,
        [schemes.convert(tags, source=tagger.scheme, target="BIOES") for tags in found],
    )
    print(report.table(Path(config.evaluate).name, scores))
    return {key: scores["all"][key] for key in ("precision", "recall", "f1")}


def trained(config: Config) -> Tagger:
    """The model in ``--out``: its folder, or the best in a checkpoint without one."""
    if config.model_folder.is_dir() or not config.checkpoint.is_file():
        with model_folder.trained(config.model_folder):
            return load(config.model_folder)
    saved = checkpoint.load(config.checkpoint)
    if saved["settings"].get("encoder"):
        raise ValueError(
            f"out: expected a trained model at {config.model_folder}, got only the"
            " checkpoint of a run with --encoder that was stopped before it wrote one."
            " Go on with it first: as it was begun, with --resume"
        )
    return checkpoint.use(config.checkpoint, lambda: restore(saved))


def restore(saved: dict[str, Any]) -> Tagger:
    """The best model of a run, ready to tag."""
    vocabulary, labels = Vocabulary(**saved["vocabulary"]), saved["labels"]
    sizes = Sizes(**saved.get("sizes", {"word": saved["size"]}))
    network = TaggerNetwork(vocabulary, labels, sizes)
    network.load_state_dict(saved["best"])
    return Tagger(
        network.to(device()), vocabulary, labels, None, saved.get("scheme", "BIO")
    )


def words_of(sentences: list[Sentence]) -> list[list[str]]:
    """Their words, and an empty list between two documents."""
    return conll.by_document(sentences, [s.words for s in sentences])


def load_corpus(config: Config) -> conll.Splits:
    if config.train is not None and config.dev is not None:
        test = Path(config.test) if config.test else None
        files = conll.SplitFiles(Path(config.train), Path(config.dev), test)
        splits = conll.load_files(files, layout=config.layout)
    elif config.data is None:
        return toy_corpus.make()
    else:
        folder = wnut17.fetch() if config.data == "wnut17" else config.data
        splits = conll.load(folder, layout=config.layout)
    held_out = {"dev": splits.dev, "test": splits.test or []}
    for name, part in held_out.items():
        unseen_labels.warn(name, (tag for s in part for tag in s.tags), splits.labels)
    return splits


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def settings_of(
    config: Config, splits: conll.Splits, vectors: dict[str, np.ndarray]
) -> dict[str, Any]:
    """What decides the numbers; two runs that agree in it are the same run."""
    rounds, steps = config.rounds(-(-len(splits.train) // config.batch))
    sentences = [(s.words, s.tags) for s in (*splits.train, *splits.dev)]
    corpus = zlib.crc32(repr(sentences).encode())
    table = zlib.crc32(b"".join(w.encode() + v.tobytes() for w, v in vectors.items()))
    return {
        "data": f"{len(sentences)} sentences with checksum {corpus:08x}",
        "embeddings": f"{len(vectors)} vectors with checksum {table:08x}",
        "loss": config.loss,
        # absent in older checkpoints
        "structure": None if config.structure == "chain" else config.structure,
        "mu": config.mu or MU.get(config.loss),
        "top_k": (config.top_k or TOP_K) if config.loss == "hinge-l2" else None,
        "epochs": rounds,
        "steps": steps,
        "seed": config.seed,
        "rate": config.rate,
        "batch": config.batch,
        "hidden": config.hidden,
        "dropout": config.dropout,
        "word_size": config.word_size,
        "encoder": config.encoder,
        "encoder_rate": config.encoder_rate if config.encoder else None,
        "context": config.context or None,
    }


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
