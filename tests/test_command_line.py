"""The command smoothsp: each command on each kind of model, and how it fails."""

import json
import os
import re
import sys

import pytest
import torch
from safetensors.torch import save_file

from smoothsp import command_line, metrics
from smoothsp.command_line import results
from smoothsp.data import read_dependencies, read_tagged, read_trees
from smoothsp.models import ConstituencyParser, Parser, Tagger, load
from smoothsp.models.biaffine import Biaffine
from smoothsp.models.features import Vocabulary
from smoothsp.models.network import TaggerNetwork, TaggerSizes
from smoothsp.models.span_scores import SpanScores
from smoothsp.models.word_vectors import ParserSizes as TreeSizes
from tests.programs import ROOT, run

LABELS = ["O", *(f"{p}-{kind}" for kind in ("LOC", "PER") for p in "BIES")]
SENTENCES = [["Ada", "met", "Bob", "Hale"], ["rain", "in", "Oslo"]]
COLUMNS = "Ada S-PER\nmet O\nBob B-PER\nHale E-PER\n\nrain O\nin O\nOslo S-LOC\n\n"
CONLLU = """\
# sent_id = 1
1-2\tDu\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
1\tAda\t_\t_\t_\t_\t2\tnsubj\t_\tKept=Yes
2\tmet\t_\t_\t_\t_\t0\troot\t_\t_
3\tBob\t_\t_\t_\t_\t2\tobj\t_\t_

"""
TREES = "( (S (NP (NNP Ada)) (VP (VBD met) (NP (NNP Bob)))) )\n"
NESTED = "1\tBank\tB-ORG\tO\n2\tof\tI-ORG\tO\n3\tOslo\tI-ORG\tB-LOC\n\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of models with weights at random."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    vocabulary = Vocabulary.from_sentences(SENTENCES, [])
    sizes, trees = (
        TaggerSizes(word=4, hidden=5),
        TreeSizes(4, 5, arc=6, label=3, sibling=4),
    )
    tagger = TaggerNetwork(vocabulary, LABELS, sizes)
    arcs, spans = ["nsubj", "obj", "root"], ["NP", "S", "VP"]
    parser = Biaffine(vocabulary, arcs, trees, "spanning-tree", None)
    brackets = SpanScores(vocabulary, spans, trees, None)
    entities = SpanScores(vocabulary, ["LOC", "ORG", "TOP"], trees, None)
    with torch.no_grad():
        for network in (tagger, parser, brackets, entities):
            for weight in network.parameters():
                if weight.requires_grad:
                    weight.add_(torch.randn_like(weight))
    rows = [{"epoch": 1, "dev_f1": 0.25}, {"epoch": 2, "dev_f1": 0.75}]
    rows += [{"epoch": 3, "dev_f1": 0.5}]
    about = {"settings": {"loss": "crf", "epochs": 3}, "history": rows}
    Tagger(tagger, vocabulary, LABELS, about).save(folder / "tagger")
    Parser(parser, vocabulary, arcs).save(folder / "parser")
    own = ConstituencyParser(brackets, vocabulary, spans)
    own.save(folder / "trees")
    own = ConstituencyParser(entities, vocabulary, ["LOC", "ORG", "TOP"], levels=2)
    own.save(folder / "nested")
    return folder


@pytest.fixture
def files(tmp_path):
    """Files of each kind, in a folder."""
    (tmp_path / "text").write_text("Ada met Bob Hale.\nrain in Oslo\n")
    (tmp_path / "columns").write_text(COLUMNS)
    (tmp_path / "conllu").write_text(CONLLU)
    (tmp_path / "trees").write_text(TREES)
    (tmp_path / "nested").write_text(NESTED)
    return tmp_path


@pytest.fixture
def said(capsys):
    """Run a command; what it writes on standard output."""

    def run(*arguments):
        capsys.readouterr()
        command_line.main([str(x) for x in arguments])
        return capsys.readouterr().out

    return run


# --- predict ---


def test_columns_are_tagged_in_their_own_scheme(models, files, said):
    tagged = load(models / "tagger", "cpu").tag(SENTENCES)
    found = said("predict", models / "tagger", files / "columns")
    (files / "found").write_text(found)
    # the file has BIOES, the model BIO
    spans = [metrics.spans(x.tags) for x in tagged]
    again = read_tagged(files / "found")
    assert [x.words for x in again] == SENTENCES
    assert [metrics.spans(x.tags) for x in again] == spans
    assert any("S-" in line for line in found.splitlines())


def test_taggings_are_shown_as_asked(models, files, said):
    tagger, texts = (
        load(models / "tagger", "cpu"),
        ["Ada met Bob Hale.", "rain in Oslo"],
    )
    plain = ("predict", models / "tagger", files / "text")
    assert said(*plain) == "".join(x.columns() for x in tagger.tag(texts))
    both = tagger.tag(texts, nbest=2)
    ranked = said(*plain, "--nbest", 2)
    assert ranked.count("# rank = 2 of 2, score = ") == 2
    assert both[0].others[0].columns() in ranked
    listed = tagger.tag(texts, nbest=2, confidence=True)
    options = ("--nbest", 2, "--confidence", "--show", "json")
    assert said(*plain, *options) == "".join(f"{x.json()}\n" for x in listed)
    coloured = "".join(f"{x.coloured(tagger.types)}\n" for x in tagger.tag(texts))
    assert said(*plain, "--show", "colour") == coloured


def test_comments_and_tokens_of_several_words_are_kept(models, files, said):
    (tree,) = load(models / "parser", "cpu").parse([["Ada", "met", "Bob"]])
    lines = said("predict", models / "parser", files / "conllu").splitlines()
    assert lines[:2] == CONLLU.splitlines()[:2]
    rows = [line.split("\t") for line in lines[2:5]]
    assert [int(row[6]) for row in rows] == tree.heads
    assert [row[7] for row in rows] == tree.labels
    assert rows[0][9] == "Kept=Yes"
    parsed = load(models / "parser", "cpu").parse(["Ada met Bob Hale.", "rain in Oslo"])
    text = ("predict", models / "parser", files / "text")
    assert said(*text) == "".join(x.conllu() for x in parsed)
    assert said(*text, "--show", "json") == "".join(f"{x.json()}\n" for x in parsed)


def test_constituents_are_brackets_and_nested_entities_columns(models, files, said):
    trees, nested = (load(models / x, "cpu") for x in ("trees", "nested"))
    (tree,) = trees.parse([["Ada", "met", "Bob"]])
    assert said("predict", models / "trees", files / "trees") == tree.brackets()
    texts = trees.parse(["Ada met Bob Hale.", "rain in Oslo"])
    found = said("predict", models / "trees", files / "text", "--show", "json")
    assert found == "".join(f"{x.json()}\n" for x in texts)
    (row,) = nested.parse([["Bank", "of", "Oslo"]])
    assert said("predict", models / "nested", files / "nested") == row.columns()


def test_long_sentences_do_not_take_others_along(models, files, said, capsys):
    (files / "long").write_text(f"{'a ' * 401}\nAda left\n")
    plain = ("predict", models / "trees", files / "long")
    with pytest.raises(ValueError, match=r"left out 1 of 2 sentences.*--skip-bad"):
        said(*plain)
    written = capsys.readouterr()
    assert written.out.count("\n") == 1
    assert "expected sentences of at most 400 words, got 401" in written.err
    assert said(*plain, "--skip-bad") == written.out


# --- evaluate ---


def test_scores_are_those_of_the_model(models, files, said):
    for name, file, read in (
        ("tagger", "columns", read_tagged),
        ("parser", "conllu", read_dependencies),
        ("trees", "trees", read_trees),
        ("nested", "nested", read_trees),
    ):
        command = ("evaluate", models / name, files / file)
        scores = load(models / name, "cpu").evaluate(read(files / file))
        found = json.loads(said(*command, "--json"))
        assert {key: found[key] for key in scores} == scores
        table = said(*command)
        for value in scores.values():
            assert f"{100 * value:.2f}" in table


def test_a_tagger_is_scored_by_type(models, files, said):
    found = json.loads(
        said("evaluate", models / "tagger", files / "columns", "--json")
    )["types"]
    assert {"LOC", "PER"} <= found.keys()
    assert (found["LOC"]["spans"], found["PER"]["spans"]) == (1, 2)
    tagged = load(models / "tagger", "cpu").tag(SENTENCES)
    both = [x.tags for x in tagged]
    own = [[t if t.endswith("PER") else "O" for t in tags] for tags in both]
    gold = [["B-PER", "O", "B-PER", "I-PER"], ["O", "O", "O"]]
    precision, recall, f1 = metrics.span_f1(gold, own)
    assert found["PER"] == {
        "precision": precision, "recall": recall, "f1": f1, "spans": 2
    }  # fmt: skip


def test_tags_of_another_kind_are_refused(models, files, said):
    (files / "other").write_text("Ada B-FOO\nleft O\n")
    with pytest.raises(ValueError, match="expected labels that training has"):
        said("evaluate", models / "tagger", files / "other")


def test_columns_and_roots_can_be_named(models, files, said):
    (files / "more").write_text("Ada B-PER x O\nleft O y O\n")
    command = ("evaluate", models / "tagger", files / "more", "--json")
    assert json.loads(said(*command, "--column", 2))["spans"] == 1
    with pytest.raises(ValueError, match="column: expected one column of tags, got 2"):
        said(*command, "--column", 2, "--column", 4)
    (files / "top").write_text(CONLLU.replace("root", "top"))
    command = ("evaluate", models / "parser", files / "top", "--root")
    said(*command, "top")
    with pytest.raises(ValueError, match=r"give --root|give it as root"):
        said(*command, "obj")


# --- info ---


def test_info_says_what_a_folder_holds(models, said):
    tagger = load(models / "tagger", "cpu")
    count = sum(x.numel() for x in tagger.network.state_dict().values())
    found = json.loads(said("info", models / "tagger", "--json"))
    assert (found["kind"], found["labels"]) == ("Tagger", LABELS)
    assert found["weights"] == count
    assert found["training"] == {"loss": "crf", "epochs": 3}
    assert found["best epoch"] == {"epoch": 2, "dev_f1": 0.75}
    path = models / "tagger" / "vocabulary.json"
    assert found["files"][path.name] == path.stat().st_size
    text = said("info", models / "tagger")
    assert f"{count:,} numbers" in text
    assert "best epoch  epoch 2, dev_f1 0.75" in text


def test_info_needs_no_library(models):
    hidden = ("torch", "numpy", "safetensors", "nltk", "numba", "tqdm", "PIL", "cv2")
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({hidden}));"
        "from smoothsp.command_line import main; main(sys.argv[1:])"
    )
    found = run(sys.executable, "-c", program, "info", models / "parser")
    assert found.stdout.startswith("model       Parser in ")


HOSTILE = {
    "escapes": ({"labels": ["\x1b[2Jx\n"]}, r"labels +1: \\x1b\[2Jx\\n"),
    "numbers": ({"labels": 7, "sizes": [1], "about": 3, "files": 9}, "weights"),
    "rows": ({"about": {"history": [1, {"f1": "x"}], "settings": 1}}, "weights"),
    "places": ({"files": {"../../passwd": "0"}}, r"files +config\.json [\d,]+ bytes$"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_info_of_an_edited_folder_is_harmless(case, tmp_path, said):
    change, expected = HOSTILE[case]
    config = {"format": "smoothsp.models.Tagger", "version": 1, **change}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = said("info", tmp_path)
    assert "\x1b" not in found
    assert re.search(expected, found, re.MULTILINE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a header out of range"),
        ((2**62).to_bytes(8, "little"), "a header out of range"),
        (b"\x02" + bytes(7) + b"[]", "expected a JSON object, got list"),
        (b"\x09" + bytes(7) + b'{"a": {}}', "a header without shapes"),
    ],
)
def test_info_names_a_damaged_file(content, message, tmp_path, said):
    config = {"format": "smoothsp.models.Tagger", "version": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        said("info", tmp_path)


# --- wrong commands and folders ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "arguments are required: COMMAND"),
        ("predict tagger", "arguments are required: FILE"),
        ("predict tagger text --shw json", "unknown option --shw, did you mean --show"),
        ("predict tagger text more", "one argument too many, more"),
        ("predict tagger text --show pdf", "argument --show: invalid choice: 'pdf'"),
        ("predict tagger text --nbest 0", "--nbest: expected at least 1, got 0"),
        ("predict tagger text --confidence", "--confidence: expected --show json or"),
        ("evaluate tagger text --nbest 2", "unknown option --nbest"),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments, message, said, capsys):
    with pytest.raises(SystemExit) as caught:
        said(*arguments.split())
    assert caught.value.code == 2
    written = capsys.readouterr().err
    assert message in written
    assert written.count("\n") == 1
    assert written.endswith("; see --help for all options\n")


def test_options_of_other_kinds_are_refused(models, files, said):
    for name, *option in (
        ("parser", "--nbest", 2),
        ("trees", "--word-column", "word"),
        ("parser", "--column", 2),
    ):
        with pytest.raises(ValueError, match=rf"^{option[0][2:].replace('-', '_')}: "):
            said("predict", models / name, files / "text", *option)


def test_a_folder_that_holds_no_model_is_named(models, files, said):
    for command in (("predict", files, "x"), ("evaluate", files, "x"), ("info", files)):
        with pytest.raises(FileNotFoundError, match="expected the folder of a model"):
            said(*command)
    (files / "config.json").write_text('{"format": "os.system"}')
    with pytest.raises(ValueError, match=r"expected format .*, got 'os.system'"):
        said("predict", files, files / "text")
    with pytest.raises(FileNotFoundError, match="expected a file of text, got nothing"):
        said("predict", models / "tagger", files / "none")


def test_weights_of_a_hostile_folder_are_not_taken(models, files, said):
    folder = files / "edited"
    load(models / "tagger", "cpu").save(folder)
    save_file({"x": torch.zeros(2)}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"expected the checksum in config\.json"):
        said("predict", folder, files / "text")


# --- results in files ---


def test_a_result_replaces_the_old_one_in_one_step(models, files, said, monkeypatch):
    out = files / "new" / "found"
    command = ("predict", models / "tagger", files / "text", "-o", out)
    assert said(*command) == ""
    before = out.read_text()
    assert before == said(*command[:3])
    out.write_text("old")

    def full(path, content):
        raise OSError(28, os.strerror(28), str(path))

    monkeypatch.setattr(results.atomic_files, "replace", full)
    with pytest.raises(OSError, match=r"expected to write .* No space left on device"):
        said(*command)
    assert out.read_text() == "old"


# --- processes ---


def process(*arguments):
    return run(sys.executable, "-m", "smoothsp", *arguments, cwd=ROOT, check=False)


def shell(command):
    return run("bash", "-c", f"set -o pipefail; {command}", cwd=ROOT, check=False)


def test_help_imports_nothing_heavy():
    program = (
        "import sys; from smoothsp.command_line import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print({'torch', 'numpy', 'numba'} & {*sys.modules})"
    )
    found = run(sys.executable, "-c", program).stdout
    assert found.endswith("set()\n")
    for name in ("predict", "evaluate", "info", "compile"):
        assert f"    {name} " in found


def test_ctrl_c_is_status_130_without_a_traceback():
    program = (
        "import os, signal; from smoothsp.command_line import terminal\n"
        "def command(): os.kill(os.getpid(), signal.SIGINT); signal.pause()\n"
        "terminal.run_command(command)"
    )
    found = run(sys.executable, "-c", program, check=False)
    assert (found.returncode, found.stderr) == (130, "")


@pytest.mark.long
def test_standard_input_and_errors_of_a_process(models, files):
    predict = f"{sys.executable} -m smoothsp predict {models / 'tagger'} -"
    found = shell(f"echo Ada left | {predict}")
    assert (found.returncode, found.stdout.count("\t")) == (0, 2)
    wrong = process("predict", models / "parser", files / "text", "--nbest", "2")
    assert wrong.returncode == 1
    expected = (
        "error: --nbest: expected a Tagger or Localiser, got a Parser, which does"
    )
    assert wrong.stderr == f"{expected} not take this option\n"
    assert process("compile", "--nothing").returncode == 2


@pytest.mark.long
def test_a_reader_that_has_seen_enough_ends_it_quietly(models, files):
    (files / "many").write_text("Ada left Oslo\n" * 3000)
    command = (
        f"{sys.executable} -m smoothsp predict {models / 'tagger'} {files / 'many'}"
    )
    piped = shell(f"{command} | head -1")
    assert piped.returncode == 0
    assert "Traceback" not in piped.stderr
    full = shell(f"{command} > /dev/full")
    assert full.returncode == 1
    last = full.stderr.splitlines()[-1]
    assert last.startswith("error: standard output: expected to write to it, got No")


def test_results_never_replace_what_is_read(models, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("Ada met Bob\n")
    with pytest.raises(ValueError, match="out: expected another place than"):
        command_line.main(
            ["predict", str(models / "tagger"), str(text), "-o", str(text)]
        )
    assert text.read_text() == "Ada met Bob\n"
