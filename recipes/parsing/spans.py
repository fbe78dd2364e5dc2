"""The network of the constituency parser: a score of each label of each span."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothsp.data import ConstituencyTree as Tree
from smoothsp.models.features import Batch, Corpus, Vocabulary
from smoothsp.models.word_vectors import Sizes, WordVectors
from smoothsp.oracles import SpanTree

# Sentences that are parsed at once, and pairs of words in them; of one, any number.
MOST, MOST_SPANS = 16, 400**2


class SpanScores(nn.Module):
    """Scores of spans from what lies at their two ends.

    Between two words stands ``u``, a linear map of the way ahead up to there and of the
    way back down to there. A span has the scores ``V relu(u_end - u_begin + c)``; no
    constituent, which comes first among the labels, always scores 0.

    Source: Stern, Andreas and Klein, "A Minimal Span-Based Neural Constituency Parser"
    (2017), section 3, after Wang and Chang (2016).
    """

    def __init__(
        self, vocabulary: Vocabulary, labels: Sequence[str], sizes: Sizes
    ) -> None:
        super().__init__()
        self.sizes = sizes
        self.words = WordVectors(vocabulary, sizes)
        self.fence = nn.Linear(self.words.size, sizes.arc, bias=False)
        self.shift = nn.Parameter(torch.zeros(sizes.arc))
        self.drop = nn.Dropout(sizes.dropout)
        self.label = nn.Linear(sizes.arc, len(labels))

    @property
    def device(self) -> torch.device:
        return self.shift.device

    def forward(self, batch: Batch) -> Tensor:
        """``(batch, n, n, 1 + labels)``; the whole sentence is a constituent."""
        batch = batch.to(self.device)
        found = self.words(batch) * batch.mask[..., None]
        ahead, back = found.chunk(2, 2)
        ends = [F.pad(ahead, (0, 0, 1, 0)), F.pad(back, (0, 0, 0, 1))]
        fence = self.fence(torch.cat(ends, 2))  # [B, n + 1, D]
        inside = fence[:, None, 1:] - fence[:, :-1, None] + self.shift
        scores = F.pad(self.label(self.drop(F.relu(inside))), (1, 0))
        last = batch.mask.sum(1) - 1
        whole = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
        whole[torch.arange(len(last), device=last.device), 0, last, 0] = True
        return scores.masked_fill(whole, -torch.inf)


def target(tree: Tree, number: dict[str, int]) -> Tensor:
    """The tree with two branches everywhere, as ``SpanTree`` has it: ``(n, n)``.

    A constituent of more than two parts is that of its first part and of a span of all
    others, which is no constituent.
    """
    n = len(tree.words)
    found = torch.full((n, n), -1)
    known = {(i, j): number[label] for label, i, j in tree.spans}
    inner = {
        i: sorted(j for first, j in known if first == i) for i in range(n)
    }  # the last words of those that begin at i

    def fill(i: int, j: int) -> None:
        while True:
            found[i, j] = known.get((i, j), 0)
            if i == j:
                return
            # the first part: the longest constituent from i on that ends before j
            split = max((last for last in inner[i] if last < j), default=i)
            fill(i, split)
            i = split + 1

    fill(0, n - 1)
    return found


def binarisations(tree: Tree, number: dict[str, int]) -> Tensor:
    """Labels that each span may have in any tree with two branches of this tree.

    ``(n, n, 1 + labels)``: constituents have theirs, spans that cross one have none,
    all others are no constituents. A tree without spans that cross a constituent holds
    that constituent.
    """
    n = len(tree.words)
    found = torch.zeros(n, n, 1 + len(number), dtype=torch.bool)
    found[..., 0] = True
    for _, a, b in tree.spans:
        found[:a, a:b] = False
        found[a + 1 : b + 1, b + 1 :] = False
    for label, a, b in tree.spans:
        found[a, b] = False
        found[a, b, number[label]] = True
    return found


def batches(corpus: Corpus) -> Iterator[Tensor]:
    """Numbers of sentences to parse at once, the shortest first.

    Memory grows by the square of the length, so that of long ones there are fewer.
    """
    few: list[int] = []
    for number in corpus.lengths.argsort(stable=True).tolist():
        length = int(corpus.lengths[number])
        if few and (len(few) == MOST or (len(few) + 1) * length**2 > MOST_SPANS):
            yield torch.tensor(few)
            few = []
        few.append(number)
    if few:
        yield torch.tensor(few)


def parse(
    model: SpanScores,
    vocabulary: Vocabulary,
    labels: Sequence[str],
    sentences: Sequence[Sequence[str]],
) -> list[Tree]:
    """The best tree of each sentence; tags are not found."""
    model.eval()
    corpus = Corpus(vocabulary, [list(words) for words in sentences])
    found = [Tree([], [])] * len(sentences)
    with torch.no_grad():
        for numbers in batches(corpus):
            batch = corpus.batch(numbers)
            spans = model(batch)
            lengths = batch.mask.sum(1).to(spans.device)
            y = SpanTree(spans, lengths=lengths).decode()[1].cpu()
            for number, row in zip(numbers.tolist(), y, strict=True):
                words = list(sentences[number])
                place = (row > 0).nonzero().tolist()
                named = [(labels[int(row[i, j]) - 1], i, j) for i, j in place]
                found[number] = Tree(words, named)
    return found
