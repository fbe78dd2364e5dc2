"""Matching key points: views with a known truth, baselines, a run from one command."""

from typing import get_args

import cv2
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import matching_points
from matching import baselines, points, synthetic, views
from matching_points import Config, main
from tests.recipes.runs import numbers

SMALL = {"points": 14, "epochs": 12, "images": 10}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Ten images: six pairs of views to train on, two to choose by, two to test."""
    found = tmp_path_factory.mktemp("images")
    for number in range(10):
        image = synthetic.draw(number)[..., ::-1]
        name = found / ("more" if number % 2 else ".") / f"{number}.png"
        name.parent.mkdir(exist_ok=True)
        assert cv2.imwrite(str(name), image)
    return found


@pytest.fixture(scope="session")
def trained(folder, tmp_path_factory):
    config = Config(folder, out=tmp_path_factory.mktemp("matching"), **SMALL)
    return config, main(config)


@pytest.mark.parametrize("kind", get_args(points.Kind))
def test_the_same_points_are_found_where_the_homography_says(kind):
    image = synthetic.draw(3)
    view = views.random_view(image, np.random.default_rng(5))
    first = points.detect(image, kind, 40)
    second = points.detect(view.image, kind, 40, view.visible)
    pair = points.build_pair(first, second, view.homography)
    rows = (pair.columns >= 0).nonzero().flatten()
    assert len(rows) > 5
    columns = pair.columns[rows]
    assert len(columns.unique()) == len(columns)
    # homogeneous coordinates, by hand
    places = torch.cat([first.positions[rows], torch.ones(len(rows), 1)], 1).double()
    there = places @ torch.from_numpy(view.homography).T
    miss = there[:, :2] / there[:, 2:] - second.positions[columns]
    assert miss.norm(dim=1).max() <= points.MATCH_DISTANCE + 1e-4
    for own in (first, second):
        apart = torch.cdist(own.positions, own.positions).fill_diagonal_(torch.inf)
        assert apart.min() >= points.MIN_DISTANCE - 1e-4
        lengths = own.descriptors.norm(dim=1)
        torch.testing.assert_close(lengths, torch.ones(len(own)), atol=1e-3, rtol=0)


def test_a_turned_and_zoomed_view_gets_votes_from_all_neighbours():
    generator = torch.Generator().manual_seed(0)
    places = 100 * torch.rand(12, 2, generator=generator)
    angles = 6 * torch.rand(12, generator=generator)
    looks = torch.nn.functional.normalize(torch.randn(12, 8, generator=generator))
    first = points.Points(places, torch.full((12,), 4.0), angles, looks, 100)
    turn, zoom = torch.tensor(0.7), 1.3
    way = torch.tensor([[turn.cos(), -turn.sin()], [turn.sin(), turn.cos()]])
    second = points.Points(
        zoom * places @ way.T, zoom * first.sizes, angles + turn, looks, 100
    )
    found = points.pair_features(first, second)
    # of all pairs of a row, the true one has most votes, and moved as all are
    assert (found[..., 8].argmax(1) == torch.arange(12)).all()
    own = found.diagonal(dim1=0, dim2=1)
    torch.testing.assert_close(own[3], turn.sin().expand(12))
    torch.testing.assert_close(own[4], turn.cos().expand(12))
    torch.testing.assert_close(own[5], torch.full((12,), zoom).log())


def test_baselines_are_those_of_the_table_of_distances():
    looks = torch.eye(3)
    near = torch.nn.functional.normalize(
        torch.tensor([[1.0, 0.1, 0], [0.9, 0.3, 0], [0, 0.2, 1.0], [0.5, 0.5, 0.6]])
    )

    def some(descriptors):
        n = len(descriptors)
        return points.Points(
            torch.rand(n, 2), torch.ones(n), torch.ones(n), descriptors, 10
        )

    pair = points.Pair(
        some(near), some(looks), torch.zeros(4, 3, 1), torch.tensor([0, -1, 2, 1])
    )
    found = {name: way(pair).tolist() for name, way in baselines.BASELINES.items()}
    assert found["nearest neighbour"] == [0, 0, 2, 2]
    assert found["nearest, mutual"] == [0, -1, 2, -1]
    assert found["nearest, mutual, ratio test"] == [0, -1, 2, -1]
    assert found["assignment of distances"] == [0, -1, 2, 1]
    score = baselines.scores([pair], [torch.tensor([0, 1, -1, 1])])
    assert score["accuracy"] == 0.5
    assert score["precision"] == score["recall"] == pytest.approx(2 / 3)


def test_views_without_points_have_no_partners():
    flat = np.full((60, 80, 3), 90, np.uint8)
    none = points.detect(flat, "sift", 9)
    some = points.detect(synthetic.draw(0), "sift", 9)
    assert len(none) == 0 < len(some) == 9
    for first, second in ((none, none), (some, none), (none, some)):
        pair = points.build_pair(first, second, np.eye(3))
        assert pair.pair_features.shape == (len(first), len(second), points.FEATURES)
        for way in baselines.BASELINES.values():
            assert way(pair).tolist() == [-1] * len(first)
        model = matching_points.PairScores(128)
        (found,) = matching_points.predict_matches(model, [pair])
        assert found.tolist() == [-1] * len(first)


@pytest.mark.parametrize("kind", get_args(points.Kind))
def test_images_too_thin_for_points_are_named(kind, tmp_path):
    path = tmp_path / "thin.png"
    for height, width in ((1, 1), (3, 40), (2000, 1), (30, 2000)):
        assert cv2.imwrite(str(path), np.full((height, width, 3), 90, np.uint8))
        said = rf"thin\.png: expected an image of at least 4 .* got {width} x {height}"
        with pytest.raises(ValueError, match=said):
            views.read(path)
    for height, width in ((4, 4), (4, 240), (2000, 34)):
        assert cv2.imwrite(str(path), np.full((height, width, 3), 90, np.uint8))
        assert len(points.detect(views.read(path), kind, 9)) == 0


def test_a_pair_scores_the_same_beside_a_larger_one():
    model = matching_points.PairScores(128)
    pairs = [
        points.build_pair(
            points.detect(synthetic.draw(n), "sift", 5 + n),
            points.detect(synthetic.draw(n + 1), "sift", 7),
            np.eye(3),
        )
        for n in range(2)
    ]
    together = model(points.batch(pairs)).scores
    alone = model(points.batch(pairs[:1])).scores[0]
    torch.testing.assert_close(together[0, :5, :7], alone[:, :7])
    assert (together[0, 5:, :-1] == -torch.inf).all()
    torch.nn.init.constant_(model.alone, 1e3)
    columns = matching_points.predict_matches(model, pairs, independent=True)
    assert [one.tolist() for one in columns] == [[-1] * 5, [-1] * 6]


def test_training_beats_nearest_neighbours(trained):
    config, result = trained
    assert result["f1"] > result["nearest_f1"] + 0.05 > 0.2
    scores = numbers(config.out)["scores"]
    assert scores["matching, learned scores"]["f1"] == result["f1"]
    assert len(scores) == 6
    assert (config.out / "sheet.png").read_bytes().startswith(b"\x89PNG")


def test_the_weights_of_the_best_epoch_are_kept(trained):
    config, result = trained
    network = matching_points.PairScores(128)
    network.load_state_dict(load_file(config.out / "model.safetensors"))
    pairs = [pair for _, pair in matching_points.load(config)["test"]]
    found = matching_points.predict_matches(network, pairs)
    assert baselines.scores(pairs, found)["f1"] == result["f1"]


@pytest.mark.long
@pytest.mark.parametrize("loss", ["hinge-l2", "perturbed", "softmax"])
def test_every_loss_learns(loss, folder, tmp_path):
    config = Config(folder, loss=loss, out=tmp_path, **SMALL)
    assert main(config)["f1"] > 0.3
    rows = numbers(tmp_path)["history"]
    assert 0 < rows[-1]["loss"] < rows[0]["loss"]


def test_without_data_images_are_drawn(monkeypatch, tmp_path):
    few = {"train": 2, "dev": 1, "test": 1}
    monkeypatch.setattr(matching_points, "DRAWN", few)
    result = main(Config(out=tmp_path, epochs=1, points=8, features="orb"))
    assert 0 <= result["f1"] <= 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"images": 4}, "images: expected at least 5, got 4"),
        ({"data": "nowhere"}, "data: expected a folder of images, found none at"),
        ({"data": "."}, "data: expected at least 5 images below .*, found 0"),
    ],
)
def test_wrong_arguments_are_one_line(wrong, message, folder, tmp_path):
    data = tmp_path / wrong["data"] if "data" in wrong else folder
    with pytest.raises((ValueError, OSError), match=message) as caught:
        main(Config(**({"out": tmp_path / "none"} | wrong | {"data": data})))
    assert "\n" not in str(caught.value)


def test_a_damaged_image_is_named(tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG and no more")
    with pytest.raises(ValueError, match=r"broken\.png: expected an image"):
        views.read(broken)
