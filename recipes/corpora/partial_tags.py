"""Sentences of which some words have no tag: what each word's label may still be."""

# By whether the word begins a span, and whether it ends it.
PREFIX = {(1, 1): "S", (1, 0): "B", (0, 0): "I", (0, 1): "E"}
IN_BIOES = str.maketrans("MLUW", "IESS")


def possible(tags: list[str], scheme: str, unknown: str) -> list[str]:
    """The BIOES labels that each word may have, parted by tabs; "" for any.

    Where neighbours are not known, a tag may not tell whether it begins or ends a span.
    Just what fits is left; in IOB1 a little more, for what ``I-`` means depends on the
    neighbour's label.
    """
    if scheme == "plain":
        return ["" if t == unknown else t if t == "O" else f"S-{t}" for t in tags]
    if scheme.startswith("IOE"):
        raise ValueError(f"unknown: expected no tags of {scheme} beside unknown ones")
    if scheme not in ("IOB1", "BIO"):
        scheme = "BIOES"
        tags = [t if t == unknown else t[0].translate(IN_BIOES) + t[1:] for t in tags]
    ends = [
        _apart(tag, after, scheme, unknown)
        for tag, after in zip(tags, [*tags[1:], "O"], strict=True)
    ]
    begins = [
        _apart(before, tag, scheme, unknown)
        for before, tag in zip(["O", *tags[:-1]], tags, strict=True)
    ]
    found = []
    for tag, begin, end in zip(tags, begins, ends, strict=True):
        if tag in ("O", unknown):
            found.append("" if tag == unknown else "O")
            continue
        prefixes = [PREFIX[b, e] for b in _cases(begin) for e in _cases(end)]
        found.append("\t".join(f"{prefix}-{tag[2:]}" for prefix in prefixes))
    return found


def _cases(known: bool | None) -> list[int]:
    return [0, 1] if known is None else [int(known)]


def _apart(tag: str, after: str, scheme: str, unknown: str) -> bool | None:
    """Do two neighbours belong to no common span? None where it is not told."""
    if "O" in (tag, after):
        return True
    if tag == after == unknown:
        return None
    if unknown not in (tag, after):
        return tag[0] in "ES" or after[0] in "BS" or tag[2:] != after[2:]
    # the prefix of the one that is known may tell it, if tags are well formed
    if after == unknown:
        return tag[0] in "ES" or (False if scheme == "BIOES" else None)
    return after[0] in "BS" or (None if scheme == "IOB1" else False)


def is_known(tag: str) -> bool:
    """Is it one label, and not several or any?"""
    return bool(tag) and "\t" not in tag
