"""Compiled inner loops.

A kernel reads its inputs, fills the output arrays that stand last in its signature, and
returns nothing. It allocates only scratch, checks nothing, and does not use
autograd. It works on the rows ``first`` to ``last`` of a batch and releases the GIL, so
that ``threads.run_rows`` may give each thread a range. No kernel imports another.

Letters: B batch, T time, S states, K outputs per row, N sequence length of one row.
A chain reaches a kernel as

==============  =============================================================
emissions       ``[B, T, S]``
transitions     ``[1, 1, S, S]`` when ``shared``, else ``[B, T - 1, S, S]``,
                from and to; the edge into position t is at t - 1
start, end      ``[S]``
steps, lengths  ``steps[b, :lengths[b]]`` are the real positions of row b in order
==============  =============================================================

Flags: ``contract`` and ``reassoc`` where sums may be reordered, none where the order of
additions is part of the contract, and never one that assumes away NaN or infinity.
"""
