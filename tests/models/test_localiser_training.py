"""Localisers that train from Python, on a few drawn images."""

import dataclasses
import json

import pytest
import torch
from pytorch_lightning import Callback

from localization import synthetic
from smoothsp.data import read_box_splits
from smoothsp.lightning import Snapshots
from smoothsp.losses import L2, StructuralHinge
from smoothsp.models import load
from smoothsp.models.localiser import Localiser
from smoothsp.optim import CasimirSVRG

FEW = {"weights": "random", "side": 160, "epochs": 3}
ONE = FEW | {"kind": "ladybird", "proposals": "grid", "max_boxes": 200}
SEVERAL = FEW | {"objects": "several", "loss": "cliques"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("drawn")
    return synthetic.make(place, {"train": 6, "val": 3, "test": 3})


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def splits(folder):
    return read_box_splits(folder)


def casimir():
    """Options of the paper's optimizer."""
    hinge = StructuralHinge(L2(1.0, 5))

    def optimizer(network, images):
        own = {"smoothness": 2000.0, "num_batches": images, "backtrack": None}
        params = network.parameters()
        return CasimirSVRG.const(params, smoothing=hinge.smoothing, **own)

    return ONE | {"loss": hinge, "optimizer": optimizer, "objective": True}


KINDS = {
    "one object": lambda: (ONE, []),
    "one object, Casimir": lambda: (casimir(), [Snapshots()]),
    "several objects": lambda: (SEVERAL, []),
}


@pytest.fixture(scope="module")
def trained(splits, cache):
    """A localiser of each kind, trained once."""
    found = {}

    def train(name):
        if name not in found:
            options, calls = KINDS[name]()
            own = {"cache": cache, "trainer": {"callbacks": calls}}
            found[name] = Localiser.train(
                splits["train"], splits["val"], **options, **own
            )
        return found[name]

    return train


@pytest.mark.parametrize("name", KINDS)
def test_a_localiser_learns_and_is_loaded(name, trained, splits, cache, tmp_path):
    localiser = trained(name)
    rows = localiser.about["history"]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert rows[-1]["loss"] < rows[0]["loss"]
    if "Casimir" in name:
        assert rows[-1]["objective"] < rows[0]["objective"]
    scores = localiser.evaluate(splits["val"], cache=cache)
    (chief, best), *_ = scores.items()
    assert best == pytest.approx(max(row[chief] for row in rows))
    localiser.save(tmp_path)
    paths = [example.path for example in splits["test"]]
    again = load(tmp_path, "cpu")
    assert again.predict(paths, 3) == localiser.predict(paths, 3)
    assert json.loads(json.dumps(again.about)) == again.about


def test_scores_are_those_of_the_predicted_boxes(trained, splits, cache):
    from torchvision.ops import box_iou

    localiser, overlaps = trained("one object"), []
    for example in splits["test"]:
        (found,) = localiser.predict([example.path])
        true = torch.tensor([example.boxes[example.labels.index("ladybird")]])
        overlaps.append(float(box_iou(torch.tensor(found.boxes), true)))
    scores = localiser.evaluate(splits["test"], cache=cache)
    # kept features are in half precision
    assert scores["iou"] == pytest.approx(sum(overlaps) / len(overlaps), abs=0.02)


def test_a_folder_has_parts_to_train_to_choose_and_to_test(folder, trained, cache):
    localiser = Localiser.train(folder, **SEVERAL, cache=cache)
    same = trained("several objects")
    history = [
        [{k: x for k, x in row.items() if "seconds" not in k} for row in rows]
        for rows in (localiser.about["history"], same.about["history"])
    ]
    assert history[0] == history[1]
    test = read_box_splits(folder)["test"]
    found = localiser.evaluate(folder, cache=cache)
    assert found == localiser.evaluate(test, cache=cache)
    assert {"map50", "map", "ap50_ladybird"} < set(found)


class Stop(Callback):
    """Ctrl-C as the second epoch begins."""

    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", KINDS)
def test_a_stopped_run_goes_on_bit_for_bit(name, trained, splits, cache, tmp_path):
    given = splits["train"], splits["val"]
    options, calls = KINDS[name]()
    own = {"cache": cache, "out": tmp_path}
    stop = {"callbacks": [Stop(), *calls]}
    begun = Localiser.train(*given, **options, **own, trainer=stop)
    assert begun.about["interrupted"] and len(begun.about["history"]) == 1
    with pytest.raises(ValueError, match="out: expected a folder without a run"):
        Localiser.train(*given, **options, **own)
    own["resume"] = True
    with pytest.raises(ValueError, match="seed: expected 0 as in the run to resume"):
        Localiser.train(*given, **options, **own, seed=1)
    options, calls = KINDS[name]()
    ended = Localiser.train(*given, **options, **own, trainer={"callbacks": calls})
    for localiser in (ended, load(tmp_path / "model", "cpu")):
        weights = localiser.network.state_dict()
        for key, value in trained(name).network.state_dict().items():
            assert torch.equal(weights[key], value), key
        assert "interrupted" not in localiser.about


@pytest.mark.long
def test_the_backbone_is_trained_too(splits, cache):
    options = ONE | {"finetune": True, "side": 64, "max_boxes": 20, "epochs": 1}
    given = splits["train"][:2], splits["val"][:1]
    localiser = Localiser.train(*given, **options, cache=cache)
    other = Localiser.train(*given, **options | {"finetune": False}, cache=cache)
    sums = [one.network.backbone.checksum() for one in (localiser, other)]
    assert sums[0] != sums[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "dog"}, r"kind: .*exactly one box of the class 'dog', got none of 6"),
        ({"kind": None}, "kind: expected the class of the object, one of beetle, "),
        ({"objects": "all"}, "objects: expected one or several, got 'all'"),
        ({"loss": "crf"}, "loss: expected hinge, got 'crf'"),
        ({"scores": "deep"}, "scores: expected linear or nonlinear, got 'deep'"),
        ({"proposals": "all"}, "proposals: expected one of selective-search, grid"),
        ({"backbone": "vgg"}, r"backbone: expected one of alexnet,.*got 'vgg'"),
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"workers": 0}, "workers: expected at least 1, got 0"),
        ({"rate": 0.0}, "rate: expected a positive number, got 0"),
        ({"mu": float("nan")}, "mu: expected a positive number, got nan"),
        ({"decay": float("inf")}, "decay: expected at least 0, got inf"),
        ({"loss": StructuralHinge(), "mu": 1.0}, "mu: expected none with this loss"),
        ({"objects": "several"}, 'kind: expected none with objects="several"'),
        ({"resume": True}, "resume: expected out, the folder of the run"),
    ],
)
def test_options_that_do_not_fit_are_named(options, message, splits, cache):
    with pytest.raises(ValueError, match=f"^{message}"):
        Localiser.train(splits["train"], **ONE | options, cache=cache)


def test_an_unknown_option_is_named(splits):
    with pytest.raises(TypeError, match="got 'max_box', did you mean 'max_boxes'"):
        Localiser.train(splits["train"], max_box=3)


def test_images_without_boxes_and_other_classes_are_named(splits, trained, cache):
    bare = [dataclasses.replace(x, boxes=(), labels=()) for x in splits["train"]]
    with pytest.raises(ValueError, match="data: expected images with boxes, got none"):
        Localiser.train(bare, **SEVERAL, cache=cache)
    odd = [dataclasses.replace(x, labels=("x",) * len(x.boxes)) for x in splits["val"]]
    message = r"data: expected the classes beetle, .* got x too"
    with pytest.raises(ValueError, match=message):
        Localiser.train(splits["train"], odd, **SEVERAL, cache=cache)
    with pytest.raises(ValueError, match=message):
        trained("several objects").evaluate(odd, cache=cache)
