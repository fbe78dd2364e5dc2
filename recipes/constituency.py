"""Constituency parser: a network that scores spans, under a binary tree of them.

Embeddings of words, characters, shapes and affixes, a pretrained encoder if there is
one, bidirectional LSTMs, a score of each label of each span, and
``smoothsp.oracles.SpanTree`` on top, in training and in parsing. Chains of unary rules
become one label (``S+VP``). Constituents of more than two parts are binarised with
empty labels. Nested named entities form such a tree, too.

    python recipes/constituency.py                          # drawn trees
    python recipes/constituency.py --data DIR               # bracketed files
    python recipes/constituency.py --nested                 # invented named entities
    python recipes/constituency.py --nested --data DIR      # files with tag columns
    smoothsp evaluate runs/constituency/model FILE          # scores
    smoothsp predict runs/constituency/model FILE           # prints trees, or columns

DIR holds files of bracketed trees, as the Penn Treebank has them (``.mrg``); the last
ones by name are held out. Traces are dropped, and labels lose what follows a hyphen.
Part-of-speech tags are ignored. Sentences to parse have at most 400 words.

With ``--nested`` DIR holds a training and a development file with two columns of tags
or more, as GermEval has them: of the outer entities, and of those within them. Entities
that cross others are not trained on.

After every best epoch so far, training writes the folder ``model``, which loads without
running code. ``checkpoint.ckpt`` is for ``--resume``. At the end it writes
``metrics.json`` and ``dev.txt``, the parsed sentences.
"""

if __name__ == "__main__":
    from runs import sigint

    sigint.default_sigint()

    from parsing.constituency_settings import Config
    from runs import start

    start.read_options(Config)

from dataclasses import fields

from parsing import nested_entities, phrase_grammar, report
from parsing.constituency_settings import Config
from runs import arguments, options, terminal
from smoothsp.data import ConstituencyTree, read_trees
from smoothsp.data.splits import find_splits
from smoothsp.data.trees import read_folder
from smoothsp.models import ConstituencyParser
from smoothsp.models.tree_options import ConstituencyOptions
from smoothsp.run_folder import is_main_process, require_free


def main(config: Config) -> dict[str, float]:
    """Train; return the numbers of the best model."""
    arguments.require_at_least(config, held_out=1)
    if config.columns and not config.nested:
        raise ValueError("columns: expected --nested beside it, got none")
    require_free(config.out, config.resume, config.overwrite)
    train, dev = load(config)
    parser = ConstituencyParser.train(
        train,
        dev,
        encoder=config.encoder,
        out=config.out,
        resume=config.resume,
        overwrite=config.overwrite,
        trainer={"devices": config.devices},
        **{
            field.name: getattr(config, field.name)
            for field in fields(ConstituencyOptions)
        },
    )
    if parser.about.get("interrupted"):
        raise KeyboardInterrupt
    if not is_main_process():
        return {}
    return report.report_constituents(config.out, parser, train, dev)


def load(config: Config) -> tuple[list[ConstituencyTree], list[ConstituencyTree]]:
    if config.data is None:
        return nested_entities.make() if config.nested else phrase_grammar.make()
    if not config.nested:
        return read_folder(config.data, config.held_out)
    files = find_splits(config.data)
    options = {"columns": config.columns, "skip_bad": config.skip_bad}
    return read_trees(files.train, **options), read_trees(files.dev, **options)


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
