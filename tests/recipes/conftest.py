"""A small corpus on disk, and one whole run on it that the tests share."""

import pytest

from conll_ner import Config, main
from tests.recipes.runs import EPOCHS, TRAIN, write_corpus


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), (TRAIN, 40, 20))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("tiny"), (12, 4, 1))


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """A whole run: its configuration and what main() answered."""
    config = Config(data, epochs=EPOCHS, out=tmp_path_factory.mktemp("trained"))
    return config, main(config)


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("the 1.0 2 3\n1999 4 5 6\n2000 7 8 9\n. . . 0 0 1\n\n")
    return path
