"""Structures as sum-product circuits: how to write one.

A dynamic programme says which item is the sum of which products of two earlier items.
Said once for each size, with numpy index arrays, it answers everything: the best
output, the k best, the log-partition and marginals, samples, entropy, second
derivatives, for batches of rows of different sizes. Nothing is compiled for it.

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
...     return c, count[:, k]  # the item that answers for each length
>>> class ExactlyK(CircuitStructure):
...     def __init__(self, scores, k, *, lengths=None):
...         B, n, _ = scores.shape
...         built = topology(exactly, n, k)  # remembered
...         every = n if lengths is None else lengths
...         self._start(
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

What a structure may say besides
--------------------------------
The defaults fit when every label is one leaf. Otherwise override, in ordinary torch:

``_parts()``
    Named potentials to leaves ``(batch, ...)`` and shared ones, each a tensor or a
    tuple of them; by default the potentials, in the order given to ``_start``. A leaf
    is an entry of a potential or ``-inf``: what depends on a row's data (not on its
    size) is a potential of ``-inf``, not topology. Gradients reach the potentials by
    themselves.
``_outputs(labels)`` and ``_labels(y)``
    Labels ``(batch, k, N)``, as the leaves of an answer set them, -1 where none does,
    to outputs ``(batch, k, *shape)``, and back; by default reshaped.
``_used(labels)``
    The leaves, from 0, that such labels use, shared ones from P on; -1 is none. By
    default those that ``label`` gives: override it where an output uses more.
``_by_row``
    Names of further attributes with an entry a row, or None, which ``select`` picks.
``_long_axes``
    How many axes of an output, from the first on, end at ``lengths``: 1 by default, 2
    for outputs ``(n, n)``. ``output_shapes`` says so, and linear models cut there.
``hamming(y)``
    By default 1 for each leaf of the first potentials that labels otherwise than y.

Rules
-----
* One output, one product: a circuit that makes an output in two ways counts it twice.
  Hold each new one against enumeration.
* ``define`` takes factors with one axis more than the items, and sums that axis. Axes
  are given, of length 1 to repeat; none is added by guess.
* Items that walk with constant steps along the summed axis cost five integers; order
  the axes of a chart so that they do.
* A long row's circuit contains those of shorter rows: roots say which item answers.
* Shapes and dtypes of arguments are the constructor's to check, with ``_checks``;
  values (NaN, +inf, rows without an output) are checked by ``_start``.
"""

from smoothsp.oracles._circuits.circuit import Circuit, Items
from smoothsp.oracles._circuits.structure import CircuitStructure
from smoothsp.oracles._circuits.topology import Topology, topology

__all__ = ["Circuit", "CircuitStructure", "Items", "Topology", "topology"]
