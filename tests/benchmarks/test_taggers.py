"""Taggers are given the same features, and each training is timed on its own."""

import csv
import math
import re
import sys

import numpy as np
import pytest

import solvers
import taggers
from methods import crfsuite_training, our_taggers
from smoothsp.linear.solvers import LBFGS
from tests.recipes.runs import write_corpus
from training import tagged_texts, tagger_races
from training.races import Answer, Entry, Racer

CONLL = f"{tagged_texts.CONLL}, n = 5"
needs_crfsuite = pytest.mark.skipif(
    not crfsuite_training.installed(), reason="needs python-crfsuite"
)


def entry(section, method, seconds=1.0, score=math.nan, ratio=1.0, case=CONLL, **about):
    fields = dict.fromkeys(("rounds", "epochs"), 1) | {"objective": 1.0}
    return Entry(
        section, case, method, "float64", 1, seconds, seconds,
        ratio=ratio, score=score, **fields | about,
    )  # fmt: skip


@pytest.fixture(scope="module")
def task():
    return tagged_texts.task(tagged_texts.texts(None, 60))


def test_attributes_are_the_features_of_each_position(task):
    sentences = list(task.attributes(task.train))
    tokens = task.texts.train.tokens
    assert [len(x) for x in sentences] == [len(x) for x in tokens]
    for sentence, words in zip(sentences[:5], tokens, strict=False):
        for attributes, (word,) in zip(sentence, words, strict=True):
            assert f"word[0]={word}" in attributes
            assert f"lower(word)[0]={word.lower()}" in attributes
            assert len(set(attributes)) == len(attributes)
    again = task.texts.templates().fit_transform(tokens)
    assert sum(len(x) for s in sentences for x in s) == again.nnz


def test_files_of_four_columns_keep_them_all(tmp_path):
    folder = write_corpus(tmp_path, (6, 3, 1))
    two = tagged_texts.texts(folder)
    assert two.columns == 1 and len(two.train.tags) == 6 and len(two.dev.tags) == 3
    lines = ["-DOCSTART- -X- O O", "", "EU NNP I-NP I-ORG", "said VBD I-VP O", ""]
    path = tmp_path / "four"
    path.write_text("\n".join(lines))
    found = tagged_texts.read(path)
    assert found.tokens == [[("EU", "NNP", "I-NP"), ("said", "VBD", "I-VP")]]
    assert found.tags == [["I-ORG", "O"]]
    rich = tagged_texts.Texts("x", found, found).templates().fit_transform(found.tokens)
    # windows of five sources; of EU two endings on each side, of said four
    assert rich.sum(axis=1).tolist() == [25 + 4, 25 + 8]


def test_f1_counts_the_spans_of_the_development_sentences(task):
    gold = [tag for tags in task.texts.dev.tags for tag in tags]
    assert task.f1_of(iter(gold)) == 100
    assert task.f1_of("O" for _ in gold) == 0
    known = [task.labels[j] for j in task.dev.decode(np.zeros(task.dev.num_weights))]
    assert task.f1(np.zeros(task.dev.num_weights)) == task.f1_of(iter(known))


def test_our_taggers_learn(task):
    for racer in (
        our_taggers.sgd(task, our_taggers.SVM, 5),
        our_taggers.sgd(task, our_taggers.CRF, 5),
        our_taggers.lbfgs(task, 15),
    ):
        answer = racer.read(racer.call())
        assert answer.score > 40
        assert racer.name.endswith(f", {answer.epochs}")


def test_the_objective_of_the_batch_is_that_of_crfsuite(task):
    """``sum_i f_i + c2 |w|^2`` is n times ours."""
    n = len(task.train)
    found = our_taggers.lbfgs(task, 3).call()
    w = found.w
    free = LBFGS(lam=1e-12, tol=0, max_passes=1).solve(task.train, start=found)
    loss = free.history[0].primal
    c2 = crfsuite_training.OPTIONS["lbfgs"]["c2"]
    assert n * found.primal == pytest.approx(n * loss + c2 * float(w @ w))


def test_the_log_is_timed_from_features_to_the_end(monkeypatch):
    moments = iter([3.0, 10.0, 99.0])
    monkeypatch.setattr(crfsuite_training.time, "perf_counter", lambda: next(moments))
    log = crfsuite_training.Log()
    for message in (
        "Feature generation\n",
        "Seconds required: 1.2\n",
        "Seconds required for this iteration: 0.1\n",
        "Total seconds required for training: 7.0\n",
        "Seconds required: 0.1\n",
        "Total seconds required for training: 7.0\n",
    ):
        log(message)
    assert log.seconds == 7


@needs_crfsuite
def test_a_training_of_crfsuite_begins_anew(task):
    trainer = crfsuite_training.Trainer(task)
    trainer.loading().call()
    first = trainer.train("ap", 4)
    score = trainer.f1(first)
    for algorithm in ("lbfgs", "l2sgd"):
        found = trainer.train(algorithm, 10)
        assert found.seconds > 0 and trainer.f1(found) > 40
    again = trainer.racer("ap", 4)
    answer = again.read(again.call())
    assert answer.score == score > 40 and answer.epochs == 4


def test_the_quickest_that_is_good_enough_is_chosen():
    racers = [Racer(name, lambda: None, lambda _: Answer()) for name in "abc"]
    entries = [
        entry("s", "a", 1.0, 80.0),
        entry("s", "b", 3.0, 90.0),
        entry("s", "c", 2.0, 89.9),
        entry("s", "d", 0.1, 99.0),
    ]
    quickest = tagger_races.quickest
    assert quickest(entries, racers, 89.8) is racers[2]
    assert quickest(entries, racers, 90.0) is racers[1]
    assert quickest(entries, racers, 95.0) is None


def test_goals_of_the_taggers_take_conll_only():
    r = tagger_races
    ours, peer = our_taggers.SVM, crfsuite_training.NAME
    entries = [
        entry(r.FEATURES, peer, 9.0),
        entry(r.FEATURES, our_taggers.NAME, 2.5),
        entry(r.TRAINING, f"{peer} ap, 5", 3.0, 89.0),
        entry(r.TRAINING, f"{ours}, 5", 1.0, 89.5),
        entry(r.TRAINING, f"{ours}, 20", 3.5, 90.25),
        entry(r.TRAINING, f"{ours}, 30", 5.0, 90.5),
        entry(r.REACH, f"{peer} ap, 5", 3.0, ratio=1.0),
        entry(r.REACH, f"{ours}, 5", 1.0, ratio=0.3),
    ]
    goals = r.goals(entries)
    assert [max(goal.values)[0] for goal in goals] == [0.3, -1.5, 3.5, 2.5]
    words = [goal.word for goal in goals]
    assert words == ["reached", "reached", "reached", "reached"]
    drawn = [entry(x.section, x.method, case="drawn sentences") for x in entries]
    assert {goal.word for goal in r.goals(drawn)} == {"not measured"}
    poor = [x for x in entries if x.score < 90]
    assert [goal.word for goal in r.goals(poor)[:3]] == ["missed", "reached", "missed"]


@pytest.mark.long
def test_a_small_run_has_every_section():
    plan = tagger_races.Plan(
        drawn=60, passes=(1, 8), likelihood=(2,), peer=(2, 5), batch=(5,), rounds=1,
    )  # fmt: skip
    entries = list(tagger_races.measure(plan))
    sections = {x.section for x in entries}
    assert {tagger_races.FEATURES, tagger_races.TRAINING} <= sections
    if crfsuite_training.installed():
        assert tagger_races.REACH in sections
    scored = [x for x in entries if x.section == tagger_races.TRAINING]
    assert all(0 <= x.score <= 100 and x.seconds > 0 for x in scored)
    table = solvers.times_table(entries)
    assert table.splitlines()[0].endswith("| F1 |")
    assert table.count("\n") == len(entries) + 1


@needs_crfsuite
def test_a_pass_and_predictions_race(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    asked = ["", "--quick", "--rounds", "1", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", asked)
    taggers.main()
    with (tmp_path / "taggers.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["question"] for row in rows] == [
        *["pass, pairs that occur"] * 2,
        *["pass, all pairs"] * 2,
        *["predict"] * 3,
    ]
    assert all(float(row["seconds"]) > 0 for row in rows)
    shares = re.findall(r"([\d.]+) % of the tags", capsys.readouterr().out)
    assert len(shares) == 3 and min(map(float, shares)) > 60


def test_the_seconds_of_a_pass_are_those_of_the_log():
    log = (
        "***** Iteration #1 *****\nLine search trials: 2\n"
        "Seconds required for this iteration: 0.500\n"
        "***** Iteration #2 *****\nLine search trials: 1\n"
        "Seconds required for this iteration: 0.250\n"
    )
    assert taggers.seconds_of(log) == 0.25
