"""Joints of people: cut out, changed, scored; a run from one command."""

import shutil

import cv2
import numpy as np
import pytest
import scipy.io
import torch
from safetensors.torch import load_file

import pose_tree
from pose import augmentation, joints, photographs, report, synthetic
from pose.joints import People
from pose_tree import Config, main
from tests.recipes.runs import numbers
from tests.sweeps import thinned

FEW = {"train": 24, "dev": 6, "test": 6}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(synthetic, "SIZES", FEW)
    monkeypatch.setattr(photographs, "SIDE", 64)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "SIZES", FEW)
        config = Config(out=tmp_path_factory.mktemp("pose"), epochs=4)
        return config, main(config)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photographs with joints, of which some are unknown, in the layout of LSP."""
    found = tmp_path_factory.mktemp("people")
    (found / "images").mkdir()
    rows = np.zeros((14, 3, 24))
    for number in range(24):
        image, places = synthetic.draw(np.random.default_rng(number))
        wide = cv2.copyMakeBorder(image, 0, 20, 40, 60, cv2.BORDER_REPLICATE)
        name = found / "images" / f"im{number:05d}.jpg"
        assert cv2.imwrite(str(name), wide[..., ::-1])
        rows[:, :2, number] = places + np.array([40, 0])
        rows[:, 2, number] = 1
    rows[3, :, ::4] = np.array([-500.0, 900, 0])[:, None]
    scipy.io.savemat(found / "joints.mat", {"joints": rows})
    return found


def test_the_tree_of_joints_has_one_root_and_mirrors_itself():
    assert [j for j, p in enumerate(joints.PARENTS) if p < 0] == [joints.NECK]
    for joint, parent in enumerate(joints.PARENTS):
        other = joints.MIRRORED[joint]
        assert joints.MIRRORED[other] == joint
        sides = {joints.NAMES[x].split()[0] for x in (joint, other)}
        assert sides in ({"left", "right"}, {"neck"}, {"head"})
        if parent >= 0:
            assert joints.PARENTS[other] == joints.MIRRORED[parent]


def test_a_square_holds_the_person_and_its_joints_move_along(folder):
    found = photographs.read(folder, None)
    assert found.images.shape == (24, 64, 64, 3)
    assert (~found.is_marked).sum() == 6
    known = np.where(found.is_marked[..., None], found.joints, 32)
    assert known.min() >= 0 and known.max() < 64
    low, high = known.min(1), known.max(1)
    np.testing.assert_allclose((high - low).max(1), 64 / 1.5, atol=1)
    # a square of a picture of one dot has the dot where its joint is
    for side in (20, 200):
        image = np.zeros((100, 140, 3), np.uint8)
        cv2.circle(image, (90, 30), 4, (255, 255, 255), -1)
        cut, place = photographs.crop_square(
            image, np.array([80.0, 40]), 60.0, np.array([[90.0, 30.0]]), side
        )
        rows, columns = (cut[..., 0] > 127).nonzero()
        assert abs(columns.mean() - place[0, 0]) < 1 + side / 60
        assert abs(rows.mean() - place[0, 1]) < 1 + side / 60


def test_joints_stay_where_they_are_when_an_image_is_changed():
    image = np.zeros((1, 80, 80, 3), np.uint8)
    places = np.full((1, 14, 2), 40.0)
    for joint, (x, y) in ((6, (30, 25)), (11, (55, 60))):
        places[0, joint] = x, y
        cv2.circle(
            image[0], (x, y), 3, (255, 255, 255) if joint == 6 else (90,) * 3, -1
        )
    figures = People(image, places, np.ones((1, 14), bool))
    torch.manual_seed(0)
    mirrored = 0
    for _ in range(12):
        found = augmentation.augment(figures, mirror=True)
        bright = found.images[0, ..., 0] > 170
        middle = np.array([x.mean() for x in bright.nonzero()])[::-1]
        near = [np.hypot(*(found.joints[0, joint] - middle)) for joint in (6, 11)]
        assert min(near) < 1.5
        # the right wrist of the mirrored image is what was the left one
        mirrored += int(np.argmin(near))
    assert 0 < mirrored < 12


def test_scores_count_joints_and_limbs():
    figures = synthetic.make("test")
    assert joints.scores(figures, figures.joints) == {"pck": 1, "pcp": 1}
    moved = figures.joints.copy()
    moved[:, 6] += 1000
    found = joints.scores(figures, moved)
    assert found["pck"] == pytest.approx(13 / 14)
    assert found["pcp"] == pytest.approx(9 / 10)
    assert joints.limb_scores(figures, moved)["lower arms"] == 0.5
    # what nobody knows does not count
    figures.is_marked[:, 6] = False
    found = joints.scores(figures, moved)
    assert found == {"pck": 1, "pcp": 1}


def test_springs_are_those_of_the_poses():
    figures = synthetic.make("train")
    means, variances = joints.estimate_springs(figures, 4)
    way = (figures.joints[:, 0] - figures.joints[:, 1]) / 4
    np.testing.assert_allclose(means[0], way.mean(0)[::-1], rtol=1e-5)
    # a spring is never stiffer than that of half a cell
    expected = np.maximum(way.var(0, ddof=1)[::-1], 0.25)
    np.testing.assert_allclose(variances[0], expected, rtol=1e-5)
    assert means[joints.NECK].tolist() == [0, 0]


def test_unknown_joints_cost_nothing_and_may_be_anywhere():
    torch.manual_seed(0)
    figures = synthetic.make("test").part([0, 1])
    figures.is_marked[:, :7] = False
    network = pose_tree.PoseNetwork(
        pose_tree.build_encoder("small"), *joints.estimate_springs(figures, 4)
    )
    structure = network(pose_tree.pixels(figures, network))
    structure.parts.retain_grad()
    for name in ("hinge", "hinge-l2"):
        value = pose_tree.loss(name, structure, figures)
        places = figures.joints.copy()
        places[:, :7] = 77
        other = People(figures.images, places, figures.is_marked)
        assert pose_tree.loss(name, structure, other) == value > 0
    pose_tree.loss("softmax", structure, figures).backward()
    assert (structure.parts.grad[:, :7] == 0).all()


def test_training_beats_the_mean_pose(trained):
    config, result = trained
    history = numbers(config.out)["history"]
    assert history[-1]["loss"] < history[0]["loss"]
    assert result["pck"] > 0.2
    assert {"mean pose pck", "each joint alone, same heat maps pck"} < set(result)
    assert (config.out / "sheet.png").read_bytes().startswith(b"\x89PNG")


def test_the_weights_of_the_best_epoch_are_kept(trained):
    config, result = trained
    network = pose_tree.PoseNetwork(
        pose_tree.build_encoder("small"), torch.zeros(14, 2), torch.ones(14, 2)
    )
    network.load_state_dict(load_file(config.out / "model.safetensors"))
    people = pose_tree.load(config)["test"]
    assert joints.scores(people, pose_tree.predict_poses(network, people)[0]) == {
        name: result[name] for name in ("pck", "pcp")
    }


@pytest.mark.parametrize("encoder", thinned(["small", "efficientnet-lite0"], 2))
def test_photographs_in_a_folder_are_trained_on(encoder, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "sheet", lambda *_: None)
    lite = {"encoder": encoder, "weights": "random", "loss": "softmax"}
    options = {} if encoder == "small" else lite
    config = Config(folder, epochs=2, out=tmp_path, **options)
    parts = pose_tree.load(config)
    assert {n: len(x) for n, x in parts.items()} == {"train": 18, "dev": 2, "test": 4}
    main(config)
    rows = numbers(tmp_path)["history"]
    assert rows[1]["loss"] < rows[0]["loss"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"weights": "imagenet"}, "weights: expected none with --encoder small, got"),
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"people": 3}, "people: expected at least 20, got 3"),
        ({"data": "nowhere"}, r"data: expected .*joints\.mat, found no such file"),
    ],
)
def test_wrong_arguments_are_one_line(wrong, message, tmp_path):
    if "data" in wrong:
        wrong = {"data": tmp_path / wrong["data"]}
    with pytest.raises((ValueError, OSError), match=message) as caught:
        main(Config(**({"out": tmp_path / "none"} | wrong)))
    assert "\n" not in str(caught.value)


def test_wrong_files_of_joints_are_named(tmp_path):
    path = tmp_path / "joints.mat"
    path.write_bytes(b"no such thing")
    with pytest.raises(ValueError, match=r"joints\.mat: expected a MATLAB file"):
        photographs.read(tmp_path, None)
    good = np.ones((14, 3, 30))
    for wrong, message in (
        ({"other": good}, "expected joints, numbers"),
        ({"joints": good[:13]}, r"expected joints.* got float64 of shape \(13, 3, 30"),
        ({"joints": good * np.nan}, "at least two known joints|got NaN for number 1"),
        ({"joints": 0 * good}, "at least two known joints .* of number 1"),
        ({"joints": good}, "data: expected an image for each of the 30 people"),
    ):
        scipy.io.savemat(path, wrong)
        with pytest.raises(ValueError, match=message):
            photographs.read(tmp_path, None)


def test_unknown_joints_may_be_nan_and_known_ones_are_near_the_image(folder, tmp_path):
    rows = scipy.io.loadmat(folder / "joints.mat")["joints"]
    shutil.copytree(folder / "images", tmp_path / "images")
    image = tmp_path / "images" / "im00000.jpg"
    image.rename(image.with_suffix(".JPG"))
    rows[3, :2, ::4] = np.nan
    scipy.io.savemat(tmp_path / "joints.mat", {"joints": rows})
    read = photographs.read(tmp_path, None)
    assert np.array_equal(read.images, photographs.read(folder, None).images)
    assert np.isfinite(read.joints).all()
    rows[5, 0, 7] = 1e6
    scipy.io.savemat(tmp_path / "joints.mat", {"joints": rows})
    with pytest.raises(ValueError, match=r"im00007.jpg: .*180 x 100 .* \(1e\+06, "):
        photographs.read(tmp_path, None)
