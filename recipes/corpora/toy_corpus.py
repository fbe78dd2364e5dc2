"""A small invented corpus for named-entity recognition, made from a seed.

Newspaper-like English about people (PER), places (LOC), organisations (ORG) and
nationalities, languages and events (MISC) that do not exist. What makes it hard:

- a fifth of the names are coined on the spot, so those in the development and test
  sentences were never seen in training; their endings often tell the type (``-holm`` is
  a place), and where they do not, the context does;
- others come from a list whose members name a person here, a place or a firm there;
  some of them (Bell, Hope, Mill) are also plain words;
- the deciding word may stand on either side, several words away, or nowhere: then only
  the name can tell, and a few names cannot, so nothing reaches an F1 of 1;
- names have one to four words; some sentences are headlines, all capital or all small.

The sentences of a split depend on the seed and the split only, and a longer split
begins with the sentences of a shorter one.
"""

# ruff: noqa: SIM905 (lists of words are easier to read as text)

import random
import re

from smoothsp.data import Splits
from smoothsp.data import TaggedSentence as Sentence
from smoothsp.schemes import convert

COINED_FRACTION, SHARED_FRACTION = 0.2, 0.15
NUM_NAMES = 60
CAPITALS_FRACTION, LOWER_CASE_FRACTION = 0.05, 0.04

ONSETS = "b br d dr f fl g gr h j k kl l m n p pr r s sk st t tr v w z".split()
VOWELS = "a e i o u ae ei ia ou".split()
CODAS = "l m n r s t v x ld lv nd nt rb rk rn rv sk st th".split()
ENDINGS = {
    "FIRST": "ella ette ina quin amo ric".split(),
    "PER": "enko ovan sson wyck ley idas".split(),
    "LOC": "holm vale mere grad stow haven ia by".split(),
    "ORG": "corp tek onix sys gen dyne com trol".split(),
    "MISC": "ish ese ian ic".split(),
    # No hint: any type may end like this.
    "": "a an ar el en er o on os u".split(),
}
PLAIN_ENDING_FRACTION = 0.35

# A person, a place or an organisation, as the context has it.
SHARED_NAMES = (
    "Arden Bell Brook Carden Dale Ember Falken Field Frost Glade Grant Hale Harrow Hope"
    " Ivar Jarrow Kestrel Lake Larch Marsh Mercer Mill North Orla Page Park Quill Rose"
    " Sable Stone Summer Tarn Thorne Vesper Wells West Winter Wren Yarrow Young"
).split()

# How often each form of a name is taken. EVENT is a MISC, FIRSTNAME a PER.
FORMS = {
    "PER": [("PER", 4), ("FIRST PER", 6), ("FIRST J. PER", 1)],
    "LOC": [
        ("LOC", 16),
        ("New LOC", 2),
        ("LOC River", 2),
        ("Lake LOC", 2),
        ("LOC upon LOC", 1),
    ],
    "ORG": [
        ("ORG", 6),
        ("ORG Group", 1),
        ("LOC United", 1),
        ("Bank of LOC", 1),
        ("PER and PER Ltd", 1),
    ],
    "FIRSTNAME": [("FIRST", 1)],
    "MISC": [("MISC", 1)],
    "EVENT": [("LOC Open", 2), ("PER Cup", 2), ("LOC Summer Games", 1)],
}
# Where the context leaves the type open, only the name itself can tell it.
ALTERNATIVES = {
    "ACTOR": "PER PER ORG ORG LOC".split(),
    "MODIFIER": "MISC MISC LOC ORG".split(),
}
NUMBERS = {
    "count": lambda rng: rng.choice(
        (
            str(rng.randint(2, 99)),
            f"{rng.randint(1, 99)},{rng.randint(0, 9)}00",
            rng.choice(("three", "seven", "twelve", "forty")),
        )
    ),
    "number": lambda rng: f"{rng.randint(1, 99)}.{rng.randint(1, 9)}",
    "age": lambda rng: str(rng.randint(18, 90)),
    "score": lambda rng: f"{rng.randint(0, 5)}-{rng.randint(0, 4)}",
    "year": lambda rng: str(rng.randint(1950, 2009)),
}

# Plain words, those that are also names among them.
LEXICON = {
    "noun": (
        "bell book bridge brook budget camp contract court crop debt farm field film"
        " fire frost game garden grant harbour hope lake law letter market mill mine"
        " page park plan price report road rose school ship song stone storm strike"
        " summer team toll train trial vote wage wall war winter"
    ).split(),
    "adjective": (
        "big bitter cold final full green heavy large late local long main new north"
        " old open poor quick quiet secret small strange strong west young"
    ).split(),
    "did": (
        "approved blamed bought built closed defended doubled dropped feared found hid"
        " kept left lost moved needed noticed opened praised refused repaired sold"
        " stopped supported wanted"
    ).split(),
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "month": "January February March April May June July August October".split(),
    "how": "again briefly early late quickly quietly soon suddenly twice".split(),
}

OPENINGS = (
    *("",) * 14,
    "on {day} ,",
    "in {month} {year} ,",
    "meanwhile ,",
    "hope faded when",
    "last {month}",
    "according to {ACTOR} ,",
    "in {LOC} ,",
    "after leaving {ORG} ,",
    "{MISC} papers wrote that",
)
CLAUSES = (
    "{ACTOR} {did} the {adjective} {noun}",
    "{ACTOR} {did} {ACTOR} {how}",
    "{ACTOR} said that the {noun} {did} the {noun}",
    "the {noun} of {ACTOR} was {adjective}",
    "critics of {ACTOR} {did} the {noun}",
    "talks between {ACTOR} and {ACTOR} {did} {noun}s",
    "the {MODIFIER} {noun} {did} {ACTOR} in {year}",
    "a {MODIFIER} {noun} {did} the {adjective} {noun}",
    "{noun}s {did} {ACTOR}",
    "{PER} , {age} , {did} a {noun} and {did} the {noun}",
    "{PER} and his sister {FIRSTNAME} {did} their {noun}",
    "the {adjective} {noun} that {PER} {did} was a {noun} to her",
    "{PER} was born in {LOC} in {year}",
    "{PER} , who {did} the {noun} of {LOC} , {did} it {how}",
    "{PER} told {PER} that the {noun} was {adjective}",
    "the wife of {PER} {did} a {noun} near {LOC}",
    "chairman {PER} of {ORG} {did} {count} {noun}s",
    "{PER} joined {ORG} from {ORG} for {number} million",
    "the {noun} in {LOC} was {adjective} , residents said",
    "{LOC} , a town of {count} people , {did} its {noun}",
    "the road from {LOC} to {LOC} was {adjective}",
    "rain fell on {LOC} and the {noun} froze",
    "{count} people fled {LOC} , where the {noun} {did} them",
    "the {MISC} border with {LOC} was closed on {day}",
    "shares of {ORG} fell {number} percent",
    "{ORG} , which makes {noun}s , {did} {count} jobs",
    "{ORG} posted a profit of {number} million in {month}",
    "{ORG} hired {PER} to run its {noun} unit in {LOC}",
    "workers at {ORG} {did} the {noun} {how}",
    "{ORG} beat {ORG} {score} in {LOC}",
    "{PER} scored {how} as {ORG} beat {ORG} {score}",
    "{PER} learnt {MISC} at a {noun} school",
    "{PER} won the {EVENT} in {LOC}",
    "the {EVENT} was {adjective} for {ORG}",
    "{ORG} {score} {ORG}",
    "{noun} and {noun} {did} the {noun} {how}",
    "hope for a {adjective} {noun} rose in {month}",
    "a {noun} of {count} {noun}s {did} the {adjective} {noun}",
)
CLOSINGS = (
    *("",) * 12,
    "on {day}",
    "in {year}",
    "after {count} years",
    ", {ACTOR} said",
    "without {ACTOR}",
    ", the {LOC} police said",
    "with {MODIFIER} help",
    "because the {noun} was {adjective}",
)


def make(
    seed: int = 0,
    train: int = 2000,
    dev: int = 500,
    test: int = 500,
    scheme: str = "BIOES",
) -> Splits:
    """Corpus of so many sentences, the same for the same seed."""
    rng = random.Random(f"{seed} names")
    names = {
        kind: [_invent_name(rng, kind) for _ in range(NUM_NAMES)]
        for kind in ENDINGS
        if kind
    }

    def split(name: str, size: int) -> list[Sentence]:
        rng = random.Random(f"{seed} {name}")
        return [_draw_sentence(rng, names, scheme) for _ in range(size)]

    return Splits(split("train", train), split("dev", dev), split("test", test))


def _draw_sentence(
    rng: random.Random, names: dict[str, list[str]], scheme: str
) -> Sentence:
    words: list[str] = []
    tags: list[str] = []
    for part in (OPENINGS, CLAUSES, CLOSINGS):
        for token in rng.choice(part).split():
            filling, kind = _expand_token(rng, token, names)
            words += filling.split()
            tags += ["O" if not kind else f"B-{kind}"]
            tags += [tags[-1].replace("B-", "I-")] * (len(words) - len(tags))
    words[0] = words[0][0].upper() + words[0][1:]
    draw = rng.random()
    if draw < CAPITALS_FRACTION:
        words = [word.upper() for word in words]
    elif draw < CAPITALS_FRACTION + LOWER_CASE_FRACTION:
        words = [word.lower() for word in words]
    else:
        words.append(".")
        tags.append("O")
    return Sentence(words, convert(tags, source="BIO", target=scheme))


def _expand_token(
    rng: random.Random, token: str, names: dict[str, list[str]]
) -> tuple[str, str]:
    """The words that stand for a token of a template, and their type if any."""
    match = re.fullmatch(r"\{(\w+)\}(s?)", token)
    if not match:
        return token, ""
    slot, plural = match.groups()
    if slot in LEXICON:
        return rng.choice(LEXICON[slot]) + plural, ""
    if slot in NUMBERS:
        return NUMBERS[slot](rng), ""
    if slot in ALTERNATIVES:
        slot = rng.choice(ALTERNATIVES[slot])
    forms, weights = zip(*FORMS[slot], strict=True)
    form = rng.choices(forms, weights)[0].split()
    words = [_draw_name(rng, w, names) if w in ENDINGS else w for w in form]
    return " ".join(words), {"EVENT": "MISC", "FIRSTNAME": "PER"}.get(slot, slot)


def _draw_name(rng: random.Random, kind: str, names: dict[str, list[str]]) -> str:
    draw = rng.random()
    if draw < COINED_FRACTION:
        return _invent_name(rng, kind)
    if draw < COINED_FRACTION + SHARED_FRACTION and kind in ("PER", "LOC", "ORG"):
        return rng.choice(SHARED_NAMES)
    # Squared, so that some names are frequent and others rare.
    return names[kind][int(len(names[kind]) * rng.random() ** 2)]


def _invent_name(rng: random.Random, kind: str) -> str:
    endings = ENDINGS["" if rng.random() < PLAIN_ENDING_FRACTION else kind]
    parts = (ONSETS, VOWELS, CODAS, endings)
    return "".join(rng.choice(part) for part in parts).capitalize()
