"""Structures whose maxima are searched for, by enumeration: a file a structure."""
