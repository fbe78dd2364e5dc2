"""Regular expressions over labels, and the automata that accept what they match."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

# States of an automaton that may be made: 2^n of them may belong to n characters.
_MOST = 10_000
# ("label", i), ("then", a, b), ("or", frozenset), ("star", a)
Expression = tuple[Any, ...]
NOTHING: Expression = ("or", frozenset())
EMPTY: Expression = ("star", NOTHING)


class Automaton(NamedTuple):
    """Deterministic: state 0 is the first one, and each leads to an accepting one."""

    moves: tuple[tuple[int, ...], ...]  # [state][label]: the next state, -1 for none
    accepts: tuple[bool, ...]  # [state]


def automaton(pattern: str, labels: Sequence[str]) -> Automaton:
    """Automaton of the label sequences that the whole pattern matches.

    States are derivatives of the pattern: what may follow the labels so far.

    Source: Brzozowski, "Derivatives of Regular Expressions" (1964), theorem 5.2.
    """
    numbers = {_parsed(pattern, labels): 0}
    states, moves = [*numbers], []
    for state in states:
        row = []
        for label in range(len(labels)):
            after = _derivative(state, label)
            if after not in numbers:
                numbers[after] = len(numbers)
                states.append(after)
            row.append(numbers[after])
        moves.append(row)
        if len(states) > _MOST:
            raise ValueError(
                f"pattern: expected one whose automaton has at most {_MOST:,} states, "
                f"got more for {pattern[:60]!r}"
            )
    accepts = [_is_optional(state) for state in states]
    return _trimmed(moves, accepts, pattern)


def _trimmed(moves: list[list[int]], accepts: list[bool], pattern: str) -> Automaton:
    """Without the states that lead to no accepting one."""
    alive, size = {q for q, accept in enumerate(accepts) if accept}, -1
    while size != len(alive):
        size = len(alive)
        alive |= {q for q, row in enumerate(moves) if alive & set(row)}
    if 0 not in alive:
        raise ValueError(f"pattern: expected one that matches something, got {pattern}")
    place = {q: i for i, q in enumerate(sorted(alive))}
    kept = tuple(tuple(place.get(x, -1) for x in moves[q]) for q in place)
    return Automaton(kept, tuple(accepts[q] for q in place))


def _then(a: Expression, b: Expression) -> Expression:
    if NOTHING in (a, b):
        return NOTHING
    if EMPTY in (a, b):
        return b if a == EMPTY else a
    if a[0] == "then":
        # to the right, so that what is alike looks alike
        return _then(a[1], _then(a[2], b))
    return ("then", a, b)


def _either(*options: Expression) -> Expression:
    flat = {y for x in options for y in (x[1] if x[0] == "or" else (x,))}
    return flat.pop() if len(flat) == 1 else ("or", frozenset(flat))


def _star(a: Expression) -> Expression:
    return a if a[0] == "star" else ("star", a)


def _is_optional(a: Expression) -> bool:
    """Whether it matches the empty sequence."""
    if a[0] == "then":
        return _is_optional(a[1]) and _is_optional(a[2])
    return a[0] == "star" or (a[0] == "or" and any(map(_is_optional, a[1])))


def _derivative(a: Expression, label: int) -> Expression:
    """Derivative of the pattern with respect to the label."""
    if a[0] == "label":
        return EMPTY if a[1] == label else NOTHING
    if a[0] == "or":
        return _either(*(_derivative(x, label) for x in a[1]))
    if a[0] == "star":
        return _then(_derivative(a[1], label), a)
    first = _then(_derivative(a[1], label), a[2])
    return _either(first, _derivative(a[2], label)) if _is_optional(a[1]) else first


TOKEN = re.compile(
    r"\s*(?:'(?P<quoted>[^']*)'|\{(?P<least>\d*)(?P<range>,?)(?P<most>\d*)\}"
    r"|(?P<operator>[()|*+?.])|(?P<name>[^\s()|*+?.{}']+))"
)


class _Reader:
    """Reads an expression, from the operators that bind least to those that do most."""

    def __init__(self, pattern: str, labels: Sequence[str]) -> None:
        self.pattern, self.labels = pattern, list(labels)
        self.at = 0
        self.any = _either(*(("label", i) for i in range(len(labels))))

    def peek(self) -> re.Match[str] | None:
        return TOKEN.match(self.pattern, self.at)

    def follows(self, operators: str) -> str:
        """The next of these operators, which is read, or nothing."""
        found = self.peek()
        operator = found and found["operator"]
        if not found or not operator or operator not in operators:
            return ""
        self.at = found.end()
        return str(operator)

    def refuse(self, expected: str) -> None:
        rest = self.pattern[self.at :].strip()
        raise ValueError(
            f"pattern: expected {expected} at character {self.at}, got "
            f"{rest[:20]!r}" + ("" if rest else ", the end")
        )

    def whole(self) -> Expression:
        found = self.options()
        if self.pattern[self.at :].strip():
            self.refuse("a label, an operator or the end")
        return found

    def options(self) -> Expression:
        found = self.sequence()
        while self.follows("|"):
            found = _either(found, self.sequence())
        return found

    def sequence(self) -> Expression:
        found = EMPTY
        while (token := self.peek()) and (token["operator"] or "(") in "(.":
            if token["range"] is not None:
                break
            found = _then(found, self.repeated())
        return found

    def repeated(self) -> Expression:
        found = self.atom()
        while True:
            if operator := self.follows("*+?"):
                if operator == "?":
                    found = _either(EMPTY, found)
                else:
                    again = _star(found)
                    found = again if operator == "*" else _then(found, again)
            elif (token := self.peek()) and token["range"] is not None:
                found = self.times(found, token)
            else:
                return found

    def times(self, once: Expression, token: re.Match[str]) -> Expression:
        """``{m}``, ``{m,}``, ``{,n}`` or ``{m,n}``."""
        least = int(token["least"] or 0)
        most = int(token["most"] or 0) if token["range"] else least
        open_ended = bool(token["range"]) and not token["most"]
        if not (token["least"] or token["most"]) or not (open_ended or least <= most):
            self.refuse("{m}, {m,}, {,n} or {m,n} with m at most n")
        if max(least, most) > _MOST:
            self.refuse(f"at most {_MOST:,} repetitions")
        self.at = token.end()
        found = _star(once) if open_ended else EMPTY
        for _ in range(most - least if not open_ended else 0):
            found = _either(EMPTY, _then(once, found))
        for _ in range(least):
            found = _then(once, found)
        return found

    def atom(self) -> Expression:
        if self.follows("("):
            found = self.options()
            if not self.follows(")"):
                self.refuse("a closing parenthesis")
            return found
        if self.follows("."):
            return self.any
        token = self.peek()
        name = token and (
            token["quoted"] if token["quoted"] is not None else token["name"]
        )
        if not token or name is None:
            self.refuse("a label")
        elif name not in self.labels:
            known = ", ".join(self.labels[:20])
            raise ValueError(f"pattern: expected a label, one of {known}, got {name!r}")
        else:
            self.at = token.end()
        return ("label", self.labels.index(str(name)))


def _parsed(pattern: str, labels: Sequence[str]) -> Expression:
    return _Reader(pattern, labels).whole()
