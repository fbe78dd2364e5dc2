"""Regular expressions over labels, compiled to deterministic automata."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

# Maximum number of states: a pattern of n characters may need 2^n.
_MAX_STATES = 10_000
# ("label", i), ("then", a, b), ("or", frozenset), ("star", a)
Expression = tuple[Any, ...]
EMPTY_SET: Expression = ("or", frozenset())
EMPTY_WORD: Expression = ("star", EMPTY_SET)


class Automaton(NamedTuple):
    """A deterministic automaton with initial state 0 and without dead states."""

    transitions: tuple[
        tuple[int, ...], ...
    ]  # [state][label]: the next state, -1 for none
    accepts: tuple[bool, ...]  # [state]


def build_automaton(pattern: str, labels: Sequence[str]) -> Automaton:
    """Build the automaton of the label sequences that match the whole pattern.

    A state is a derivative of the pattern: an expression for the sequences that may
    follow the labels read so far.

    Source: Brzozowski, "Derivatives of Regular Expressions" (1964), theorem 5.2.
    """
    numbers = {_parse(pattern, labels): 0}
    states, transitions = [*numbers], []
    # the list grows while it is traversed: breadth-first over new derivatives
    for state in states:
        row = []
        for label in range(len(labels)):
            derivative = _derivative(state, label)
            if derivative not in numbers:
                numbers[derivative] = len(numbers)
                states.append(derivative)
            row.append(numbers[derivative])
        transitions.append(row)
        if len(states) > _MAX_STATES:
            raise ValueError(
                "pattern: expected one whose automaton has at most "
                f"{_MAX_STATES:,} states, got more for {pattern[:60]!r}"
            )
    accepts = [_is_nullable(state) for state in states]
    return _remove_dead_states(transitions, accepts, pattern)


def _remove_dead_states(
    transitions: list[list[int]], accepts: list[bool], pattern: str
) -> Automaton:
    """Remove the states from which no accepting state can be reached."""
    alive, size = {q for q, accept in enumerate(accepts) if accept}, -1
    while size != len(alive):
        size = len(alive)
        alive |= {q for q, row in enumerate(transitions) if alive & set(row)}
    if 0 not in alive:
        raise ValueError(f"pattern: expected one that matches something, got {pattern}")
    new_number = {q: i for i, q in enumerate(sorted(alive))}
    trimmed = tuple(
        tuple(new_number.get(x, -1) for x in transitions[q]) for q in new_number
    )
    return Automaton(trimmed, tuple(accepts[q] for q in new_number))


def _concatenation(a: Expression, b: Expression) -> Expression:
    """Expression ``a b`` in normal form."""
    if EMPTY_SET in (a, b):
        return EMPTY_SET
    if EMPTY_WORD in (a, b):
        return b if a == EMPTY_WORD else a
    if a[0] == "then":
        # right-associative normal form: equal derivatives compare equal, so the number
        # of states is finite
        return _concatenation(a[1], _concatenation(a[2], b))
    return ("then", a, b)


def _union(*options: Expression) -> Expression:
    """Expression ``a | b | ...`` in normal form: a flat set, without duplicates."""
    flat = {y for x in options for y in (x[1] if x[0] == "or" else (x,))}
    return flat.pop() if len(flat) == 1 else ("or", frozenset(flat))


def _star(a: Expression) -> Expression:
    """Expression ``a*``."""
    return a if a[0] == "star" else ("star", a)


def _is_nullable(a: Expression) -> bool:
    """Return True if the expression matches the empty sequence."""
    if a[0] == "then":
        return _is_nullable(a[1]) and _is_nullable(a[2])
    return a[0] == "star" or (a[0] == "or" and any(map(_is_nullable, a[1])))


def _derivative(a: Expression, label: int) -> Expression:
    """Expression of the sequences that may follow ``label`` in a match of ``a``."""
    if a[0] == "label":
        return EMPTY_WORD if a[1] == label else EMPTY_SET
    if a[0] == "or":
        return _union(*(_derivative(x, label) for x in a[1]))
    if a[0] == "star":
        return _concatenation(_derivative(a[1], label), a)
    first = _concatenation(_derivative(a[1], label), a[2])
    return _union(first, _derivative(a[2], label)) if _is_nullable(a[1]) else first


TOKEN = re.compile(
    r"\s*(?:'(?P<quoted>[^']*)'|\{(?P<least>\d*)(?P<range>,?)(?P<most>\d*)\}"
    r"|(?P<operator>[()|*+?.])|(?P<name>[^\s()|*+?.{}']+))"
)


class _Parser:
    """Recursive-descent parser; lower methods parse operators that bind tighter."""

    def __init__(self, pattern: str, labels: Sequence[str]) -> None:
        self.pattern, self.labels = pattern, list(labels)
        self.position = 0
        self.any_label = _union(*(("label", i) for i in range(len(labels))))

    def next_token(self) -> re.Match[str] | None:
        return TOKEN.match(self.pattern, self.position)

    def accept_operator(self, operators: str) -> str:
        """Consume and return the next token if it is one of ``operators``; else ""."""
        token = self.next_token()
        operator = token and token["operator"]
        if not token or not operator or operator not in operators:
            return ""
        self.position = token.end()
        return str(operator)

    def raise_expected(self, expected: str) -> None:
        remainder = self.pattern[self.position :].strip()
        raise ValueError(
            f"pattern: expected {expected} at character {self.position}, got "
            f"{remainder[:20]!r}" + ("" if remainder else ", the end")
        )

    def parse_pattern(self) -> Expression:
        expression = self.parse_alternatives()
        if self.pattern[self.position :].strip():
            self.raise_expected("a label, an operator or the end")
        return expression

    def parse_alternatives(self) -> Expression:
        expression = self.parse_sequence()
        while self.accept_operator("|"):
            expression = _union(expression, self.parse_sequence())
        return expression

    def parse_sequence(self) -> Expression:
        expression = EMPTY_WORD
        while (token := self.next_token()) and (token["operator"] or "(") in "(.":
            if token["range"] is not None:
                break
            expression = _concatenation(expression, self.parse_repetition())
        return expression

    def parse_repetition(self) -> Expression:
        expression = self.parse_atom()
        while True:
            if operator := self.accept_operator("*+?"):
                if operator == "?":
                    expression = _union(EMPTY_WORD, expression)
                else:
                    starred = _star(expression)
                    expression = (
                        starred
                        if operator == "*"
                        else _concatenation(expression, starred)
                    )
            elif (token := self.next_token()) and token["range"] is not None:
                expression = self.parse_braces(expression, token)
            else:
                return expression

    def parse_braces(self, operand: Expression, token: re.Match[str]) -> Expression:
        """Expand ``{m}``, ``{m,}``, ``{,n}`` or ``{m,n}`` to concatenations."""
        minimum = int(token["least"] or 0)
        maximum = int(token["most"] or 0) if token["range"] else minimum
        open_ended = bool(token["range"]) and not token["most"]
        if not (token["least"] or token["most"]) or not (
            open_ended or minimum <= maximum
        ):
            self.raise_expected("{m}, {m,}, {,n} or {m,n} with m at most n")
        if max(minimum, maximum) > _MAX_STATES:
            self.raise_expected(f"at most {_MAX_STATES:,} repetitions")
        self.position = token.end()
        expression = _star(operand) if open_ended else EMPTY_WORD
        # nested options (x(x)?)? keep the derivatives few, unlike x?x?
        for _ in range(maximum - minimum if not open_ended else 0):
            expression = _union(EMPTY_WORD, _concatenation(operand, expression))
        for _ in range(minimum):
            expression = _concatenation(operand, expression)
        return expression

    def parse_atom(self) -> Expression:
        if self.accept_operator("("):
            expression = self.parse_alternatives()
            if not self.accept_operator(")"):
                self.raise_expected("a closing parenthesis")
            return expression
        if self.accept_operator("."):
            return self.any_label
        token = self.next_token()
        name = token and (
            token["quoted"] if token["quoted"] is not None else token["name"]
        )
        if not token or name is None:
            self.raise_expected("a label")
        elif name not in self.labels:
            label_names = ", ".join(self.labels[:20])
            raise ValueError(
                f"pattern: expected a label, one of {label_names}, got {name!r}"
            )
        else:
            self.position = token.end()
        return ("label", self.labels.index(str(name)))


def _parse(pattern: str, labels: Sequence[str]) -> Expression:
    return _Parser(pattern, labels).parse_pattern()
