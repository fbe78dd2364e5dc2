"""A small corpus, a few images, and one whole run that the tests share."""

import pytest

import voc_localization
from conll_ner import Config, main
from localization import figures, synthetic
from parsing import dependency_grammar, phrase_grammar
from smoothsp.data import dependencies, trees
from tests.recipes.runs import EPOCHS, TRAIN, write_corpus


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """What is written to the folders that recipes write to by default is not kept."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module", autouse=True)
def undrawn_figures(blank):
    """One figure of a run costs as much as its training."""


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), (TRAIN, 40, 20))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("tiny"), (12, 4, 1))


@pytest.fixture(scope="session")
def few(tmp_path_factory):
    """A folder with drawn phrases, of which the last file is held out."""
    folder = tmp_path_factory.mktemp("trees")
    train, dev = phrase_grammar.make(train=60, dev=16)
    for name, part in (("a", train[:30]), ("b", train[30:]), ("c", dev)):
        lines = "\n".join(map(trees.to_brackets, part))
        (folder / f"{name}.mrg").write_text(lines)
    return str(folder)


@pytest.fixture(scope="session")
def bank(tmp_path_factory):
    """A folder with drawn sentences and their dependencies."""
    folder = tmp_path_factory.mktemp("bank")
    parts = dependency_grammar.make(train=60, dev=16)
    for name, part in zip(("train", "dev"), parts, strict=True):
        (folder / f"drawn-{name}.conllu").write_text(dependencies.to_conllu(part))
    return str(folder)


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """A whole run: its configuration and what main() answered."""
    config = Config(data, epochs=EPOCHS, out=tmp_path_factory.mktemp("trained"))
    return config, main(config)


@pytest.fixture(scope="session")
def ladybirds(tmp_path_factory):
    """A few invented images, and a folder for what is kept of them."""
    folder = tmp_path_factory.mktemp("ladybirds")
    return synthetic.make(folder, {"train": 6, "val": 3, "test": 3}), folder / "cache"


@pytest.fixture(scope="session")
def localise(ladybirds):
    """Configure a run on few candidates of few images."""

    def configure(out, **options):
        data, cache = ladybirds
        few = {"proposals": "grid", "max_boxes": 60, "epochs": 2, "workers": 1}
        few |= {"backbone": "efficientnet-lite0", "side": 160}
        about = {"data": data, "kind": "ladybird", "cache": cache, "out": out}
        return voc_localization.Config(**about | few | options)

    return configure


@pytest.fixture
def undrawn(monkeypatch):
    """Leave out the figures; return what would be drawn."""
    drawn = []
    monkeypatch.setattr(figures, "sheet", lambda *_: None)
    monkeypatch.setattr(figures, "curves", lambda *arguments: drawn.append(arguments))
    return drawn


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("the 1.0 2 3\n1999 4 5 6\n2000 7 8 9\n. . . 0 0 1\n\n")
    return path
