"""What a localiser has to beat: boxes that are chosen without a look at the image.

Each function takes candidates ``(box, 4)`` of an image and its size, and answers one
box; ``best`` alone knows the true one and is the limit of what any choice can reach.
"""

import torch
from torch import Tensor
from torchvision.ops import box_iou

from smoothsp.data import AnnotatedImage
from smoothsp.models.box_images import CORRECT_IOU, SingleObjectImages, overlap_scores

# sides of the box in the middle, as a share of the image's: half of its area
MIDDLE = 0.5**0.5


def mean_box(examples: list[AnnotatedImage]) -> Tensor:
    """Mean corners of the true boxes, in units of their images."""
    sizes = torch.tensor([example.size * 2 for example in examples])
    return (torch.tensor([example.boxes[0] for example in examples]) / sizes).mean(0)


def overlaps(images: SingleObjectImages, mean: Tensor) -> dict[str, list[float]]:
    """IoU of each baseline's box with the true one, image by image."""
    ious: dict[str, list[float]] = {}
    for number, example in enumerate(images.examples):
        boxes, candidate_ious = images.candidates(number), images.overlaps[number]
        size = torch.tensor(images.sizes[number] * 2, dtype=torch.float32)
        margin = (1 - MIDDLE) / 2
        middle = size * torch.tensor([margin, margin, 1 - margin, 1 - margin])
        for name, box in (
            ("centre box", middle),
            ("mean box of training", mean * size),
        ):
            iou = box_iou(box[None], torch.tensor([example.boxes[0]]))
            ious.setdefault(name, []).append(float(iou))
        areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
        distance = (boxes[:, :2] + boxes[:, 2:] - size[:2]).norm(dim=1)
        # of several in the middle the largest
        nearest = int((distance + areas / size[:2].prod() * -1e-3).argmin())
        ious.setdefault("nearest to centre", []).append(float(candidate_ious[nearest]))
        ious.setdefault("largest candidate", []).append(
            float(candidate_ious[areas.argmax()])
        )
        ious.setdefault("best candidate", []).append(float(candidate_ious.max()))
    return ious


def random_corloc(images: SingleObjectImages) -> float:
    """CorLoc of candidates that are drawn at random."""
    hit_rates = [
        float((ious > CORRECT_IOU).double().mean()) for ious in images.overlaps
    ]
    return sum(hit_rates) / len(hit_rates)


def table(images: SingleObjectImages, mean: Tensor) -> dict[str, dict[str, float]]:
    """CorLoc and mean IoU of each baseline."""
    return {name: overlap_scores(iou) for name, iou in overlaps(images, mean).items()}
