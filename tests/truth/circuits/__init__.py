"""Structures made of circuits, by enumeration: a file a structure, without a kernel.

Each file but ``cases`` has ``case(generator)``: a batch, and all outputs of each row.
Whoever adds a structure adds a file, and ``tests/laws/test_circuits.py`` holds it.
"""
