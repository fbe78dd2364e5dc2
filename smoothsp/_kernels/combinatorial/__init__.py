"""Maxima that no dynamic programme finds, and sums over spanning trees."""
