"""What chains held to regular languages have besides the laws: patterns, messages."""

import pytest
import torch
from torch.testing import assert_close

from smoothsp import constraints
from smoothsp.oracles import Chain
from tests.truth.circuits.regular_chain import LABELS, sequences


def drawn(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).double()


@pytest.mark.parametrize(
    "pattern",
    [
        ".*",
        "a* b* c*",
        "(a | b)+ c?",
        "a {2} . {0,1} (b c)*",
        "(a b | b a){1,} | c{,2}",
        "((a?)* b)* (c | ) ",
        ".* a . . .*",
        "a | a b | a b c+",
    ],
)
def test_outputs_are_the_sequences_that_match(pattern):
    language = constraints.regular(LABELS, pattern)
    for length in range(5):
        expected = sequences(pattern, length)
        emissions = torch.zeros(1, length, 3)
        if not expected:
            with pytest.raises(ValueError, match="row 0 has no feasible output"):
                language(emissions)
            continue
        built = language(emissions)
        assert round(built.log_count().exp().item()) == len(expected)
        _, ys, valid = built.decode_topk(len(expected) + 1)
        found = {tuple(y) for y in ys[0][valid[0]].tolist()}
        assert found == set(expected)


def test_a_language_of_everything_is_a_chain():
    given = drawn(3, 6, 3), drawn(3, 3), drawn(3), drawn(3)
    lengths = torch.tensor([6, 2, 0])
    built = constraints.regular(LABELS, ".*")(*given, lengths=lengths)
    chain = Chain(*given, lengths=lengths)
    for ask in ("log_partition", "entropy", "marginals"):
        assert_close(getattr(built, ask)(), getattr(chain, ask)())
    assert_close(built.decode()[0], chain.decode()[0])


def test_names_may_be_quoted():
    language = constraints.regular([".", "(", "NN"], "NN* '.'")
    y = language(torch.zeros(1, 3, 3)).decode()[1]
    assert y.tolist() == [[2, 2, 0]]
    assert constraints.regular([".", "NN"], "'.'+ NN")(torch.zeros(1, 2, 2)).decode()


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a d", "pattern: expected a label, one of a, b, c, got 'd'"),
        ("a (b", "pattern: expected a closing parenthesis at character 4, got '', the"),
        ("a )", r"pattern: expected a label, an operator or the end .* got '\)'"),
        ("* a", r"pattern: expected a label, an operator or the end .* got '\* a'"),
        ("a{2,1}", "pattern: expected {m}, {m,}, {,n} or {m,n} with m at most n"),
        ("a{}", "pattern: expected {m}, {m,}"),
        ("a{20000}", "pattern: expected at most 10,000 repetitions"),
        ("a 'b", 'pattern: expected a label, an operator or the end at .* got "\'b"'),
        (".* a .{14}", "pattern: expected one whose automaton has at most 10,000 st"),
    ],
)
def test_patterns_that_cannot_be_read_are_refused(pattern, message):
    with pytest.raises(ValueError, match=message):
        constraints.regular(LABELS, pattern)
