"""Loops over the hyperedges of any circuit, one row of the batch per lane of a vector.

An array of a kernel's scratch is flat, ``[num_items, L]``: the entries of an item for L
rows are contiguous. Inside passes visit definitions in order, outside passes in
reverse. Kernels read circuits and rows from the tables of ``layout/addresses.py``.
"""
