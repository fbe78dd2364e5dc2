"""Commands of taggers and parsers: predict and evaluate on files of sentences."""

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


def predict(model: Any, options: Namespace) -> None:
    """Write the tags or the tree of each sentence of a file."""
    skipped, done = SkippedInputs(options.skip_bad), Counter[str]()
    if isinstance(model, Tagger):
        parts = _tag_sentences(model, options, skipped)
    elif isinstance(model, Parser):
        parts = _parse_dependencies(model, options, skipped)
    else:
        parts = _parse_constituents(model, options, skipped)

    def counted() -> Iterator[str]:
        for part in parts:
            yield part
            done["sentences"] += 1

    write_text(counted(), options.out)
    skipped.end(done["sentences"], "sentences")


def _tag_sentences(
    tagger: Tagger, options: Namespace, skipped: SkippedInputs
) -> Iterator[str]:
    layout = _layout(options)
    file = columns.read_sentences(options.file, layout)
    for problem in file.bad:
        skipped.add(f"{display_name(options.file)}, {problem}")
    sentences = file.texts or data.by_document(file.sentences)
    # only document breaks add sentences; empty ones of JSON lines are printed
    has_documents = len(sentences) > len(file.texts or file.sentences)
    nbest = options.nbest or 1
    for tagged in tagger.stream(sentences, nbest, options.confidence):
        if has_documents and not tagged.words:
            continue
        try:
            yield _format_taggings(tagged, options.show, nbest, tagger, file)
        except ValueError as error:
            skipped.add(error)


def _format_taggings(
    tagged: Tagged,
    show: str | None,
    nbest: int,
    tagger: Tagger,
    file: columns.ParsedFile,
) -> str:
    """Return the taggings of a sentence as text, in the scheme of the input file."""
    ranked, scheme = [tagged, *tagged.others], file.scheme
    if scheme and schemes.PLAIN not in (scheme, tagger.scheme):
        ranked = [
            replace(
                tagging, tags=_convert_tags(tagging.tags, tagger.scheme, scheme, file)
            )
            for tagging in ranked
        ]
    if show == "json":
        return f"{replace(ranked[0], others=tuple(ranked[1:])).json()}\n"
    if show == "colour":
        return "".join(f"{tagging.coloured(tagger.types)}\n" for tagging in ranked)
    if nbest == 1:
        return ranked[0].columns()
    return "".join(
        f"# rank = {rank} of {nbest}, score = {tagging.score:.4f}\n{tagging.columns()}"
        for rank, tagging in enumerate(ranked, start=1)
    )


def _convert_tags(
    tags: list[str], source: Any, target: Any, file: columns.ParsedFile
) -> list[str]:
    converted = schemes.convert(tags, source=source, target=target)
    return [file.notation.write(tag) for tag in converted]


def _parse_dependencies(
    parser: Parser, options: Namespace, skipped: SkippedInputs
) -> Iterator[str]:
    sentences: Sequence[Any] = dependencies.read_sentences(options.file, skipped.add)
    words = [x if isinstance(x, str) else x.words for x in sentences]
    for sentence, tree in zip(sentences, parser.stream(words), strict=True):
        if options.show == "json":
            yield f"{tree.json()}\n"
        elif isinstance(sentence, str):
            yield tree.conllu()
        else:
            parsed = dependencies.replace_tree(sentence, tree.heads, tree.labels)
            yield dependencies.to_conllu([parsed])


def _parse_constituents(
    model: Any, options: Namespace, skipped: SkippedInputs
) -> Iterator[str]:
    from smoothsp.models.constituency_parser import MAX_SENTENCE_LENGTH

    cut, sentences = make_tokenizer(model.tokenizer), []
    for sentence in trees.read_sentences(options.file, skipped.add):
        words = cut(sentence).words if isinstance(sentence, str) else sentence
        if len(words) <= MAX_SENTENCE_LENGTH:
            sentences.append(sentence)
            continue
        skipped.add(
            f"expected sentences of at most {MAX_SENTENCE_LENGTH} words, got"
            f" {len(words):,} in"
            f" {' '.join(words[:3])[:60]!r} and so on. Split it into sentences, one a"
            " line"
        )
    for tree in model.stream(sentences):
        if options.show == "json":
            yield f"{tree.json()}\n"
        else:
            yield tree.columns() if model.levels else tree.brackets()


def evaluate(model: Any, options: Namespace) -> None:
    """Print the scores of a model on a file; of a tagger also those of each type."""
    if isinstance(model, Tagger):
        table = _scores_by_type(model, options)
    elif isinstance(model, Parser):
        gold: Any = data.read_dependencies(
            options.file, skip_bad=options.skip_bad, root=options.root
        )
        table = {"the parser": model.evaluate(gold)}
    else:
        gold = data.read_trees(
            options.file, columns=options.column, skip_bad=options.skip_bad
        )
        table = {"the parser": model.evaluate(gold)}
    if not options.json:
        sys.stdout.write(format_table(Path(options.file).name, table))
        return
    *types, chief = table.items()
    sys.stdout.write(json_line(chief[1] | ({"types": dict(types)} if types else {})))


def _scores_by_type(tagger: Tagger, options: Namespace) -> dict[str, dict[str, float]]:
    """Return precision, recall, F1 and number of spans of each type and of ``all``."""
    layout = _layout(options)
    gold = data.read_tagged(
        options.file,
        column=layout.column,
        word_column=layout.word_column,
        encoding=layout.encoding,
        skip_bad=options.skip_bad,
    )
    true = [[tag or "O" for tag in sentence.tags or []] for sentence in gold]
    predicted = [t.tags for t in tagger.tag(data.by_document(gold)) if t.words]
    sides = [
        [schemes.convert(row, source=x, target="BIO", strict=False) for row in tags]
        for tags, x in ((true, schemes.detect(true)), (predicted, tagger.scheme))
    ]
    data.unseen_labels.warn(
        options.file,
        (schemes.split_tag(tag)[1] for row in sides[0] for tag in row if tag != "O"),
        tagger.types,
    )
    types = {kind for side in sides for row in side for kind, _, _ in spans(row)}
    table = {}
    for kind in sorted(types):
        tags_of_type = {f"B-{kind}", f"I-{kind}"}
        type_tags = [
            [[tag if tag in tags_of_type else "O" for tag in row] for row in side]
            for side in sides
        ]
        table[kind] = _span_scores(*type_tags)
    return table | {"all": _span_scores(*sides)}


def _span_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    precision, recall, f1 = span_f1(gold, predicted)
    count = sum(len(spans(row)) for row in gold)
    return {"precision": precision, "recall": recall, "f1": f1, "spans": count}


def _layout(options: Namespace) -> columns.Layout:
    if len(options.column) > 1:
        raise ValueError(
            f"column: expected one column of tags, got {len(options.column)}"
        )
    column = options.column[0] if options.column else None
    return columns.Layout(
        column, options.word_column, options.encoding, options.skip_bad
    )
