"""CoNLL-U sentences that hypothesis draws, with the tree and the tags of each."""

from typing import NamedTuple

from hypothesis import strategies as st

from smoothsp.data import DependencyTree

COMMENTS = ("# text = Let's go home", "# newdoc", "#")
# No other white space than tabs ends a word, and no line ends at U+2028.
FORMS = st.text("aé日#_- \u00a0\u2028", min_size=1, max_size=4).filter(str.strip)


def row(
    number, head="0", label="root", word="a", pos="NOUN", deps="_", misc="_", lemma="_"
):
    """A line of ten columns."""
    columns = (number, word, lemma, pos, "_", "_", head, label, deps, misc)
    return "\t".join(map(str, columns)) + "\n"


class Sentence(NamedTuple):
    """A tree with its lines, parts of speech, and tags of names."""

    tree: DependencyTree
    pos: list[str]
    tags: list[str]

    @property
    def text(self):
        return "".join(f"{line}\n" for line in [*self.tree.lines, ""])


@st.composite
def arcs(draw, size):
    """Draw the heads and labels of a tree: words hang from earlier ones of an order."""
    order = draw(st.permutations(range(1, size + 1)))
    heads, labels = [0] * size, [draw(st.sampled_from(["root", "root:x"]))] * size
    for n, word in enumerate(order[1:], 1):
        heads[word - 1] = draw(st.sampled_from(order[:n]))
        labels[word - 1] = draw(st.sampled_from(["nsubj", "obj:x", "rooted"]))
    return heads, labels


@st.composite
def sentences(draw):
    """Draw a sentence with comments, tokens of several words, and empty nodes."""
    words = draw(st.lists(FORMS, min_size=1, max_size=5))
    heads, labels = draw(arcs(len(words)))
    pos, tags, last_of_token = [], [], 0
    text = "".join(
        f"{x}\n" for x in draw(st.lists(st.sampled_from(COMMENTS), max_size=2))
    )
    for number in range(len(words) + 1):
        if number:
            ends = range(number + 1, len(words) + 1) if number > last_of_token else ()
            if end := draw(st.sampled_from([0, *ends])):
                text += row(f"{number}-{end}", "_", "_", "Let's")
                last_of_token = end
            pos.append(draw(st.sampled_from(["PROPN", "VERB", "PUNCT"])))
            misc = draw(st.sampled_from(["_", "NER=O", "NER=B-PER|SpaceAfter=No"]))
            misc = "SpaceAfter=No|NER=B-PER" if number == 1 else misc
            tags.append("B-PER" if "PER" in misc else "O")
            deps = draw(st.sampled_from(["_", "1:obj|3:nsubj"]))
            at = number - 1
            values = (heads[at], labels[at], words[at], pos[at], deps, misc, number)
            text += row(number, *values)
        for node in range(draw(st.integers(0, 2))):
            text += row(f"{number}.{node + 1}", "_", "_", "will")
    lines = text.removesuffix("\n").split("\n")
    return Sentence(DependencyTree(words, heads, labels, lines), pos, tags)
