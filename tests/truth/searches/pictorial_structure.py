"""All places of three parts of which two hang on the third."""

from dataclasses import dataclass

import torch

from smoothsp.oracles import PictorialStructure
from tests.truth.circuits.cases import Case, strings

PARENTS = torch.tensor([2, 2, -1])
ANCHORS = [[0.0, 1.0], [-0.75, 0.5], [3.0, 0.0]]
H, W = 2, 2


@dataclass(frozen=True)
class Springs(Case):
    """What springs cost depends on how long they are."""

    def score(self, b, y):
        anchors = torch.tensor(self.options["anchors"] or [[0.0] * 2] * 3).double()
        total = sum(
            self.potentials["parts"][b, p, r, c] for p, (r, c) in enumerate(y.tolist())
        )
        for p, parent in enumerate(PARENTS.tolist()):
            if parent >= 0:
                x, z = (y[p] - y[parent] - anchors[p]).tolist()
                weights = self.potentials["deformation"][b, p]
                total = total - weights[0] * x - weights[1] * x * x
                total = total - weights[2] * z - weights[3] * z * z
        return total


def parts_elsewhere(y, gold):
    return (y != gold).any(1).sum()


def squares_of_springs(potentials):
    """Weights of squares are not negative, and some are 0."""
    x = potentials["deformation"].clone()
    x[..., 1::2] = (x[..., 1::2] / 4).clamp(min=0)
    return {**potentials, "deformation": x}


def case(generator, anchors=ANCHORS):
    places = [torch.tensor(divmod(n, W)) for n in range(H * W)]
    outputs = [
        torch.stack([places[n] for n in numbers]) for numbers in strings(H * W, 3)
    ]

    def parts(b, y):
        own = [("parts", (b, p, *place)) for p, place in enumerate(y.tolist())]
        held = [p for p, parent in enumerate(PARENTS.tolist()) if parent >= 0]
        return own + [("deformation", (b, p, i)) for p in held for i in range(4)]

    potentials = {
        "parts": torch.zeros(4, 3, H, W).double(),
        "deformation": torch.zeros(4, 3, 4).double(),
    }
    options = {"parents": PARENTS.tolist(), "anchors": anchors}
    return Springs(
        build,
        potentials,
        [outputs] * 4,
        parts,
        options,
        wrong=parts_elsewhere,
        repair=squares_of_springs,
    )


def build(parts, deformation, parents, anchors):
    # not tensors among the options, which have an entry for each row
    given = None if anchors is None else torch.tensor(anchors)
    return PictorialStructure(parts, deformation, torch.tensor(parents), given)
