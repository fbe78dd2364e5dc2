"""Draw docs/figures/outputs.png and front.png: outputs of several structures."""

from pathlib import Path

import torch
from matplotlib.figure import Figure

from smoothsp.figures import draw
from smoothsp.models import Parsed
from smoothsp.oracles import Alignment, Lattice, Matching

NAMES = "Ada Lovelace met Mr. Babbage in London on 5 June ."
TAGS = "B-PER I-PER O B-PER I-PER O B-LOC O B-DATE I-DATE O"
DOG = "A dog with a scar saw the painter near the bridge ."
LABELS = "det nsubj case det nmod root det obj case det obl punct"
FRENCH, ENGLISH = "le chat noir dort .", "the black cat sleeps well ."

torch.manual_seed(1)
figure = Figure(figsize=(9, 7), layout="constrained")
axes = figure.subplot_mosaic("TT;DD;CA;MP", height_ratios=[1, 2.2, 1.8, 2.4])
# of the front page: letters that can be read on a telephone
front = Figure(figsize=(6.4, 3.2), layout="constrained")
small = front.subplot_mosaic("TTT;CMP", height_ratios=[1, 2.6])

draw(TAGS.split(), "tags", words=NAMES.split(), ax=axes["T"])
draw(TAGS.split()[:7], "tags", words=NAMES.split()[:7], ax=small["T"])

words, labels = DOG.split(), LABELS.split()
true = Parsed(words, [2, 6, 5, 5, 2, 0, 8, 6, 11, 11, 6, 6], labels, 0.0)
found = Parsed(words, [2, 6, 5, 5, 2, 0, 8, 6, 11, 11, 8, 6], labels, 0.0)
draw(found, true=true, ax=axes["D"])

tree = torch.full((5, 5), -1)
tree[0, 4], tree[0, 1], tree[2, 4], tree[3, 4] = 0, 1, 2, 1
words = ["the", "dog", "saw", "a", "painter"]
for ax in (axes["C"], small["C"]):
    draw(tree, "constituents", words=words, labels=["S", "NP", "VP"], ax=ax)

first, second = "GATTACA", "GCATGCA"
same = torch.tensor([[1.0 if a == b else -1.0 for b in second] for a in first])
aligned = Alignment(same[None], torch.tensor(-0.6)).decode()[1][0]
draw(aligned, "alignment", words=(list(first), list(second)), ax=axes["A"])

scores = torch.full((1, 5, 7), -1.0)
scores[0, :, -1] = 0
scores[0, range(5), [0, 2, 1, 3, 5]] = 1
partners = Matching(scores, partial=True).decode()[1][0]
for ax in (axes["M"], small["M"]):
    draw(partners, "matching", words=(FRENCH.split(), ENGLISH.split()), ax=ax)

nodes = range(25)
grid = [(v, v + 1) for v in nodes if v % 5 < 4] + [(v, v + 5) for v in nodes if v < 20]
index = torch.tensor(grid)
path = Lattice(torch.randn(1, len(grid)), index).decode()[1][0]
places = [(v % 5, -(v // 5)) for v in nodes]
for ax in (axes["P"], small["P"]):
    draw(path, "path", index=index, points=places, ax=ax)

figure.savefig(Path(__file__).with_suffix(".png"), dpi=100)
front.savefig(Path(__file__).with_name("front.png"), dpi=200)
