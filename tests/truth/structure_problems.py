"""Linear problems over structures whose outputs are all written down."""

from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse

from smoothsp.linear.problems import Parts, Shared, StructureProblem
from tests.truth.circuits.cases import draw


class Known(NamedTuple):
    """A problem, and psi, loss and output of every output of every example."""

    problem: StructureProblem
    psi: list[np.ndarray]
    loss: list[np.ndarray]
    outputs: list[list[np.ndarray]]

    def columns(self):
        """psi, loss and example of all, as ``truth.frank_wolfe.optimum`` takes them."""
        owner = np.repeat(np.arange(len(self.loss)), [len(x) for x in self.loss])
        return np.concatenate(self.psi), np.concatenate(self.loss), owner

    def scores(self, w, with_costs=True):
        """``loss - <w, psi>`` of the outputs of each example."""
        known = zip(self.psi, self.loss, strict=True)
        return [with_costs * loss - psi @ w for psi, loss in known]


def known_problem(kind, seed=0, states=False, width=4, **options):
    """A problem over one of the cases of ``truth.circuits``, of random features.

    With ``states`` the last axis of what has features is one of states.
    """
    case, rng = draw(kind, seed, forbid=False), np.random.default_rng(seed)
    n, features, images, begin = len(case), {}, {}, 0
    for name, x in case.potentials.items():
        shape = tuple(x.shape)
        if name in case.shared:
            features[name] = Shared(shape)
            images[name] = np.eye(x.numel()).reshape(*shape, -1)
        else:
            S = shape[-1] if states else None
            inner = shape[1:-1] if states else shape[1:]
            rows = rng.normal(size=(n * int(np.prod(inner)), width))
            rows *= rng.random(rows.shape) < 0.6
            features[name] = Parts(sparse.csr_matrix(rows), [inner] * n, S)
            blocks = np.eye(S) if states else np.ones((1, 1))
            image = np.einsum("pf,st->psft", rows, blocks)
            images[name] = image.reshape(*shape, -1)
    total = sum(image.shape[-1] for image in images.values())
    rows_of = {k: v for k, v in case.options.items() if torch.is_tensor(v)}
    others = {k: v for k, v in case.options.items() if k not in rows_of}

    def build(potentials, batch):
        chosen = {name: x[batch.rows] for name, x in rows_of.items()}
        return case.build(**potentials, **chosen, **others)

    def phi(b, y):
        w, at = np.zeros(total), begin
        spans = {}
        for name, image in images.items():
            spans[name] = slice(at, at + image.shape[-1])
            at += image.shape[-1]
        for name, place in case.parts(b, y):
            w[spans[name]] += images[name][place]
        return w

    gold = [outputs[int(rng.integers(len(outputs)))] for outputs in case.outputs]
    y = [output.numpy() for output in gold]
    problem = StructureProblem(build, features, y, **options)
    psi = [
        np.array([phi(b, gold[b]) - phi(b, other) for other in case.outputs[b]])
        for b in range(n)
    ]
    scale = problem.cost_scale
    loss = [
        scale[b] * np.array([float(case.wrong(x, gold[b])) for x in case.outputs[b]])
        for b in range(n)
    ]
    return Known(problem, psi, loss, [[y.numpy() for y in x] for x in case.outputs])
