"""Structures as sum-product circuits: how to write one.

A dynamic programme defines each item as a sum of products of two earlier items.
Describe it once for each size, with numpy index arrays. The circuit then has all
methods: the best output, the k best, log-partition, marginals, samples, entropy and
second derivatives. Rows of a batch may have different sizes. No code is compiled for a
new circuit.

Exactly k of n: each variable is 0 or 1, and k of them are 1. ``count[v, j]`` stands for
all ways to have j ones among the first v variables:

>>> import numpy as np
>>> import torch
>>> from smoothsp.oracles import Circuit, CircuitStructure, topology
>>> def exactly(n, k):
...     c = Circuit()
...     score = c.leaves(n, 2)  # potentials of a row, [variable, value]
...     c.label(score, np.arange(n)[:, None], np.arange(2))  # score[v, a]: y[v] = a
...     count = c.chart(n + 1, k + 1)
...     count[0, 0], count[0, 1:] = c.ONE, c.NONE  # known beforehand, impossible
...     for v in range(n):
...         one_less = np.append(c.NONE, count[v, :-1])
...         before = np.stack([count[v], one_less], 1)
...         c.define(count[v + 1], (before, score[v][None]))  # the last axis is summed
...     return c, count[:, k]  # the root item for each length
>>> class ExactlyK(CircuitStructure):
...     def __init__(self, scores, k, *, lengths=None):
...         B, n, _ = scores.shape
...         built = topology(exactly, n, k)  # cached
...         every = n if lengths is None else lengths
...         super().__init__(
...             built,
...             {"scores": scores},  # an attribute, and the leaves, in this order
...             roots=built.root(every),
...             lengths=every,
...             shape=(n,),
...         )
>>> pick = ExactlyK(torch.tensor([[[0.0, 3], [0, 1], [0, 2]]]), 2)
>>> value, y = pick.decode()
>>> value.tolist(), y.tolist()
([5.0], [[1, 0, 1]])
>>> pick.log_count().exp(), pick.marginals()[0, :, 1].sum()
(tensor([3.]), tensor(2.))

Methods to override
-------------------
The defaults fit when every label is one leaf. Otherwise override, in PyTorch
operations, the methods ``leaves``, ``leaves_used``, ``labels_of`` and ``outputs_of``,
and the attributes ``row_attributes`` and ``ragged_axes``. ``CircuitStructure`` has
their shapes.

Topology depends on sizes alone. Express constraints from a row's data by potentials of
``-inf``.

Rules
-----
* One output, one product: a circuit that makes an output in two ways counts it twice.
  Test each new circuit against enumeration.
* ``define`` takes factors with one axis more than the items, and sums that axis. Axes
  of length 1 are broadcast; missing axes are an error.
* Items at constant steps along the summed axis are stored in five integers; order the
  axes of a chart accordingly.
* A long row's circuit contains those of shorter rows: the root item selects the length.
* A subclass checks shapes and dtypes of its arguments; ``CircuitStructure`` checks
  values: NaN, +inf and rows without an output.
"""

from smoothsp.oracles._circuits.circuit import Circuit, Items
from smoothsp.oracles._circuits.structure import CircuitStructure
from smoothsp.oracles._circuits.topology import Topology, topology

__all__ = ["Circuit", "CircuitStructure", "Items", "Topology", "topology"]
