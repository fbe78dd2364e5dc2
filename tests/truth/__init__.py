"""The truth about structures by enumeration: a file a structure, with no kernel in it.

Each file but ``cases`` has ``case(generator, **potentials)``; those who add a structure
add a file, and the laws of ``tests/laws`` hold it.
"""
