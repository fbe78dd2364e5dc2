"""Taggers and parsers on files of sentences."""

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from smoothsp import data, schemes
from smoothsp.command_line.results import format_table, json_line, write_text
from smoothsp.command_line.terminal import SkippedInputs
from smoothsp.data import columns, dependencies, trees
from smoothsp.data.text_files import display_name
from smoothsp.data.word_tokenizers import make_tokenizer
from smoothsp.metrics import span_f1, spans
from smoothsp.models import Parser, Tagged, Tagger

__all__ = ["evaluate", "predict"]


def predict(model: Any, given: Namespace) -> None:
    """Write the tags or the tree of each sentence of a file."""
    failures, done = SkippedInputs(given.skip_bad), Counter[str]()
    if isinstance(model, Tagger):
        parts = _tagged(model, given, failures)
    elif isinstance(model, Parser):
        parts = _dependencies(model, given, failures)
    else:
        parts = _constituents(model, given, failures)

    def counted() -> Iterator[str]:
        for part in parts:
            yield part
            done["sentences"] += 1

    write_text(counted(), given.out)
    failures.end(done["sentences"], "sentences")


def _tagged(tagger: Tagger, given: Namespace, failures: SkippedInputs) -> Iterator[str]:
    layout = _layout(given)
    file = columns.read_sentences(given.file, layout)
    for wrong in file.bad:
        failures.add(f"{display_name(given.file)}, {wrong}")
    sentences = file.texts or data.by_document(file.sentences)
    # the lines of a file of JSON may be empty sentences, but it has no documents
    parted = len(sentences) > len(file.texts or file.sentences)
    nbest = given.nbest or 1
    for tagged in tagger.stream(sentences, nbest, given.confidence):
        if parted and not tagged.words:
            continue
        try:
            yield _shown(tagged, given.show, nbest, tagger, file)
        except ValueError as error:
            failures.add(error)


def _shown(
    tagged: Tagged,
    show: str | None,
    nbest: int,
    tagger: Tagger,
    file: columns.ParsedFile,
) -> str:
    """Taggings of a sentence, with tags written as those of the input."""
    ranked, scheme = [tagged, *tagged.others], file.scheme
    if scheme and schemes.PLAIN not in (scheme, tagger.scheme):
        ranked = [
            replace(one, tags=_as_written(one.tags, tagger.scheme, scheme, file))
            for one in ranked
        ]
    if show == "json":
        return f"{replace(ranked[0], others=tuple(ranked[1:])).json()}\n"
    if show == "colour":
        return "".join(f"{one.coloured(tagger.types)}\n" for one in ranked)
    if nbest == 1:
        return ranked[0].columns()
    return "".join(
        f"# rank = {rank} of {nbest}, score = {one.score:.4f}\n{one.columns()}"
        for rank, one in enumerate(ranked, start=1)
    )


def _as_written(
    tags: list[str], source: Any, target: Any, file: columns.ParsedFile
) -> list[str]:
    found = schemes.convert(tags, source=source, target=target)
    return [file.notation.write(tag) for tag in found]


def _dependencies(
    parser: Parser, given: Namespace, failures: SkippedInputs
) -> Iterator[str]:
    sentences: Sequence[Any] = dependencies.read_sentences(given.file, failures.add)
    words = [x if isinstance(x, str) else x.words for x in sentences]
    for sentence, tree in zip(sentences, parser.stream(words), strict=True):
        if given.show == "json":
            yield f"{tree.json()}\n"
        elif isinstance(sentence, str):
            yield tree.conllu()
        else:
            found = dependencies.replace_tree(sentence, tree.heads, tree.labels)
            yield dependencies.to_conllu([found])


def _constituents(
    model: Any, given: Namespace, failures: SkippedInputs
) -> Iterator[str]:
    from smoothsp.models.constituency_parser import MAX_SENTENCE_LENGTH

    cut, sentences = make_tokenizer(model.tokenizer), []
    for sentence in trees.read_sentences(given.file, failures.add):
        words = cut(sentence).words if isinstance(sentence, str) else sentence
        if len(words) <= MAX_SENTENCE_LENGTH:
            sentences.append(sentence)
            continue
        failures.add(
            f"expected sentences of at most {MAX_SENTENCE_LENGTH} words, got"
            f" {len(words):,} in {' '.join(words[:3])[:60]!r} and so on. Cut it into"
            " sentences, one a line"
        )
    for tree in model.stream(sentences):
        if given.show == "json":
            yield f"{tree.json()}\n"
        else:
            yield tree.columns() if model.levels else tree.brackets()


def evaluate(model: Any, given: Namespace) -> None:
    """Print the scores of a model on a file; of a tagger also those of each type."""
    if isinstance(model, Tagger):
        table = _scores_of_types(model, given)
    elif isinstance(model, Parser):
        gold: Any = data.read_dependencies(
            given.file, skip_bad=given.skip_bad, root=given.root
        )
        table = {"the parser": model.evaluate(gold)}
    else:
        gold = data.read_trees(
            given.file, columns=given.column, skip_bad=given.skip_bad
        )
        table = {"the parser": model.evaluate(gold)}
    if not given.json:
        sys.stdout.write(format_table(Path(given.file).name, table))
        return
    *types, chief = table.items()
    sys.stdout.write(json_line(chief[1] | ({"types": dict(types)} if types else {})))


def _scores_of_types(tagger: Tagger, given: Namespace) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and number of spans, of each type and of ``all``."""
    layout = _layout(given)
    gold = data.read_tagged(
        given.file,
        column=layout.column,
        word_column=layout.word_column,
        encoding=layout.encoding,
        skip_bad=given.skip_bad,
    )
    true = [[tag or "O" for tag in one.tags or []] for one in gold]
    found = [t.tags for t in tagger.tag(data.by_document(gold)) if t.words]
    sides = [
        [schemes.convert(row, source=x, target="BIO", strict=False) for row in tags]
        for tags, x in ((true, schemes.detect(true)), (found, tagger.scheme))
    ]
    data.unseen_labels.warn(
        given.file,
        (schemes.split_tag(tag)[1] for row in sides[0] for tag in row if tag != "O"),
        tagger.types,
    )
    kinds = {kind for side in sides for row in side for kind, _, _ in spans(row)}
    table = {}
    for kind in sorted(kinds):
        of_kind = {f"B-{kind}", f"I-{kind}"}
        own = [
            [[tag if tag in of_kind else "O" for tag in row] for row in side]
            for side in sides
        ]
        table[kind] = _scores(*own)
    return table | {"all": _scores(*sides)}


def _scores(
    gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]]
) -> dict[str, float]:
    precision, recall, f1 = span_f1(gold, found)
    count = sum(len(spans(row)) for row in gold)
    return {"precision": precision, "recall": recall, "f1": f1, "spans": count}


def _layout(given: Namespace) -> columns.Layout:
    if len(given.column) > 1:
        raise ValueError(
            f"column: expected one column of tags, got {len(given.column)}"
        )
    column = given.column[0] if given.column else None
    return columns.Layout(column, given.word_column, given.encoding, given.skip_bad)
