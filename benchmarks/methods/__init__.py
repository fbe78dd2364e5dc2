"""One file for each way to answer the questions."""
