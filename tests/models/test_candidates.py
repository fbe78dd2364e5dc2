"""Candidate boxes: within the image, kept on disk, made by several processes."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
import torch
from torchvision.ops import box_iou

from localization import synthetic
from smoothsp.data import read_boxes
from smoothsp.data.images import read_image
from smoothsp.models import candidates, proposals
from smoothsp.models.candidates import Proposals, Windows
from smoothsp.models.proposals import propose_boxes
from tests.programs import ROOT, Program


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    folder = synthetic.make(tmp_path_factory.mktemp("drawn"), {"train": 4})
    return read_boxes(folder)


@pytest.fixture
def images(examples):
    return [example.path for example in examples]


def test_selective_search_finds_the_ladybird_the_same_way_each_time(examples):
    example = examples[0]
    image = read_image(example.path)
    boxes = propose_boxes(image, "selective-search", 1000)
    assert np.array_equal(boxes, propose_boxes(image, "selective-search", 1000))
    assert len(np.unique(boxes, axis=0)) == len(boxes) > 20
    overlap = box_iou(
        torch.tensor(boxes),
        torch.tensor([example.boxes[example.labels.index("ladybird")]]),
    )
    assert overlap.max() > 0.6


def test_threads_at_once_find_the_same_boxes():
    noise = np.random.default_rng(0).integers(0, 255, (6, 8, 3), np.uint8)
    image = cv2.resize(noise, (40, 30))
    alone = propose_boxes(image, "selective-search", 1000)
    with ThreadPoolExecutor(4) as threads:
        tasks = [
            threads.submit(propose_boxes, image, "selective-search", 1000)
            for _ in range(4)
        ]
    assert all(np.array_equal(task.result(), alone) for task in tasks)


def test_boxes_of_a_large_image_are_in_its_own_pixels():
    image = np.full((600, 1500, 3), 255, np.uint8)
    cv2.rectangle(image, (900, 150), (1199, 449), (0, 0, 200), -1)
    boxes = propose_boxes(image, "selective-search", 1000)
    assert (boxes >= 0).all() and (boxes <= (1500, 600, 1500, 600)).all()
    true = torch.tensor([[900.0, 150, 1200, 450]])
    assert box_iou(torch.tensor(boxes), true).max() > 0.9


@pytest.mark.parametrize("shape", [(40, 300), (300, 40), (120, 120), (3, 3), (1, 700)])
def test_windows_lie_in_the_image_and_are_no_more_than_the_limit(shape):
    image = np.zeros((*shape, 3), np.uint8)
    height, width = shape
    for limit in (5, 100, 1000):
        boxes = propose_boxes(image, "grid", limit)
        assert 1 <= len(boxes) <= limit
        assert (boxes[:, :2] >= 0).all()
        assert (boxes[:, 2:] <= np.float32((width, height)) + 1e-3).all()
        assert (boxes[:, 2:] > boxes[:, :2]).all()


def test_an_image_without_candidates_has_itself(monkeypatch):
    monkeypatch.setattr(proposals, "MIN_BOX_SIDE", 1000)
    image = np.zeros((30, 40, 3), np.uint8)
    for boxes in (
        propose_boxes(image, "selective-search", 1000),
        propose_boxes(image, "grid", 10),
    ):
        assert boxes.tolist() == [[0, 0, 40, 30]]


def test_boxes_are_searched_once_and_again_where_a_file_is_damaged(
    images, tmp_path, monkeypatch
):
    counted = []

    def search(image, method, limit):
        counted.append(image.shape)
        return np.arange(20, dtype=np.float32).reshape(5, 4)

    monkeypatch.setattr(candidates, "propose_boxes", search)
    arguments = (images, Proposals(limit=3), tmp_path)
    first = candidates.compute_candidates(*arguments)
    assert len(counted) == len(images) == len(list(tmp_path.iterdir()))
    assert [boxes.shape for boxes in first] == [(3, 4)] * len(images)
    again = candidates.compute_candidates(*arguments)
    assert len(counted) == len(images)
    assert all(map(np.array_equal, first, again))
    kept = sorted(tmp_path.iterdir())
    kept[0].write_bytes(kept[0].read_bytes()[:50])
    kept[1].write_bytes(b"")
    np.savez(kept[2], boxes=np.array([{}], dtype=object))
    again = candidates.compute_candidates(*arguments)
    assert len(counted) == len(images) + 3
    assert all(map(np.array_equal, first, again))


@pytest.mark.parametrize(
    "shapes",
    [(), ((3,),), ((3, 4, 5),), ((3, "4"),), ((True, 4),), ((0, 4),), ((3, 1e300),)],
)
def test_shapes_of_windows_are_pairs_of_bounded_numbers(shapes):
    with pytest.raises(ValueError, match="shapes: expected"):
        Windows(shapes)


def test_windows_are_as_many_as_memory_holds():
    many = Windows(((0.5, 0.5),) * 4)
    assert len(many.in_size(30, 20)) == 1
    with pytest.raises(ValueError, match=r"at most 1,048,576 windows .* 4,000,000 in"):
        many.in_size(1000, 1000)


class Payload:
    """What a pickle runs when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_nothing_in_a_kept_file_is_run(tmp_path):
    path, made = tmp_path / "boxes.npz", tmp_path / "made"
    np.savez(path, boxes=np.array([Payload(made)], dtype=object))
    assert candidates._load_cached_boxes(path) is None
    assert not made.exists()


WORK = """
import signal, sys
from pathlib import Path
from smoothsp.models import candidates
if __name__ == "__main__":
    with candidates._spawn_pool(1) as pool:
        pool.submit(candidates._save_proposals, *map(Path, sys.argv[1:])).result()
        print("found", flush=True)
        signal.pause()
"""


@pytest.mark.long
def test_a_process_ends_with_the_one_that_is_killed(images, tmp_path):
    program, path = tmp_path / "work.py", tmp_path / "boxes.npz"
    program.write_text(WORK)
    env = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "recipes")))}
    with Program(sys.executable, program, path, images[0], env=env) as parent:
        parent.wait(lambda: parent.so_far().stdout.endswith("\n"))
        assert not parent.ended()
        found = candidates.compute_candidates(
            images[:1], Proposals(limit=candidates.MAX_PROPOSALS), tmp_path / "own"
        )
        assert np.array_equal(candidates._load_cached_boxes(path), found[0])
        parent.kill()
        parent.wait(parent.all_ended)
