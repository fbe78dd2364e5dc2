"""Good outputs where the best would be NP-hard to find, and whether they are best."""
