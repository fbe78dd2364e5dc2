"""Tests of smoothsp: laws, truth by enumeration, twins."""
