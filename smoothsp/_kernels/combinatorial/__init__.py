"""Combinatorial algorithms that are no dynamic programmes; sums over spanning trees."""
