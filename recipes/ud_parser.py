"""Dependency parser: a biaffine network under trees, on Universal Dependencies.

Embeddings of words, characters, shapes and affixes, a pretrained encoder if there is
one, bidirectional LSTMs, a score of each arc and of each label, and trees on top:
``smoothsp.oracles.SpanningTree``, whose arcs may cross, ``ProjectiveDependencies``,
whose arcs may not, or ``SiblingDependencies``, which also scores neighbours below one
head. Each sentence has one root.

    python recipes/ud_parser.py                                  # drawn sentences
    python recipes/ud_parser.py --data DIR --structure projective --loss hinge-l2
    python recipes/ud_parser.py --data DIR --encoder FOLDER      # with a transformer
    smoothsp evaluate runs/ud_parser/model FILE                  # scores on CoNLL-U
    smoothsp predict runs/ud_parser/model FILE                   # prints CoNLL-U

DIR holds one treebank: a file ``*train.conllu`` and a file ``*dev.conllu``. The loss is
that of trees of arcs, plus the cross-entropy of the labels of the true arcs. Training
for projective trees lifts crossing arcs of the training sentences only.

After every best epoch so far, training writes ``model``, a self-contained folder for
``smoothsp.models.load``. ``checkpoint.ckpt`` is for ``--resume``. At the end it writes
``metrics.json``, ``parses.png`` and ``dev.conllu``, the parsed development file.

English EWT (development file, which also chose the epoch), seed 1, ``--epochs 24``, 26
minutes of CPU time of one core: UAS 88.91, LAS 85.89. With MiniLM-L6 as the encoder,
``--epochs 6``, 50 minutes: UAS 91.87, LAS 89.32. Tables: ``docs/results/parsing.md``.
"""

if __name__ == "__main__":
    from runs import sigint

    sigint.default_sigint()

    from parsing.dependency_settings import Config
    from runs import start

    start.read_options(Config)

from dataclasses import fields

from parsing import dependency_grammar, report
from parsing.dependency_settings import Config
from runs import options, terminal
from smoothsp.data import read_dependencies
from smoothsp.data.dependencies import find_treebank
from smoothsp.models import Parser
from smoothsp.models.tree_options import ParserOptions
from smoothsp.run_folder import is_main_process, require_free


def main(config: Config) -> dict[str, float]:
    """Train; return the numbers of the best model."""
    require_free(config.out, config.resume, config.overwrite)
    train, dev = dependency_grammar.make()
    if config.data:
        train, dev = (
            read_dependencies(path, skip_bad=config.skip_bad, root=config.root)
            for path in find_treebank(config.data)
        )
    parser = Parser.train(
        train,
        dev,
        encoder=config.encoder,
        out=config.out,
        resume=config.resume,
        overwrite=config.overwrite,
        trainer={"devices": config.devices},
        **{field.name: getattr(config, field.name) for field in fields(ParserOptions)},
    )
    if parser.about.get("interrupted"):
        raise KeyboardInterrupt
    if not is_main_process():
        return {}
    parses_by_structure = {
        name: parser.parse([tree.words for tree in dev], structure=name)
        for name in parser.structures
    }
    return report.report_dependencies(
        config.out, parser.about, train, dev, parses_by_structure, config.structure
    )


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
