"""Structures answer questions: laws first, then the particulars of each."""
