"""Truth by enumeration, and by plain recurrences: with no kernel in it."""
