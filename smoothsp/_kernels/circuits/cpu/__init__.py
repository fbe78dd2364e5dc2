"""Loops over the hyperedges of any circuit, one row of the batch per lane of a vector.

An array of a kernel's room is ``[items, L]``, flat: the numbers of an item for L rows
lie together. Definitions are visited in order on the way in, in reverse on the way out.
Kernels take circuits and rows as tables, as ``layout/addresses.py`` makes them.
"""
