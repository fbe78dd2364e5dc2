"""Heads with labels: lists of labels, confidence of spans and tags, class weights."""

import itertools

import pytest
import torch

from smoothsp import LinearChain
from smoothsp.constraints import bio
from smoothsp.losses import StructuralHinge
from smoothsp.metrics import spans

SCHEMES = {
    "BIO": ["O", "B-X", "I-X", "B-Y", "I-Y"],
    "IOB1": ["O", "I-X", "B-X", "I-Y"],
    "IOE2": ["I-X", "O", "E-X"],
    "BIOES": ["O", "B-X", "I-X", "E-X", "S-X"],
    "BILOU": ["U", "L", "O", "B", "I"],
}
MASK = torch.tensor([[1, 0, 1, 1, 1], [1, 1, 1, 1, 0], [0, 0, 0, 1, 0]]).bool()


def by_hand(head, emissions, mask):
    """The probability of each span of each row, by the enumeration of all tags."""
    move, start, end = (
        scores.masked_fill(~allowed, -torch.inf) if allowed is not None else scores
        for scores, allowed in (
            (head.transitions, head.allowed_transitions),
            (head.start_transitions, head.allowed_start),
            (head.end_transitions, head.allowed_end),
        )
    )
    rows = []
    for scores, real in zip(emissions, mask, strict=True):
        scores = scores[real]
        weights = {}
        for path in itertools.product(range(head.num_tags), repeat=len(scores)):
            total = start[path[0]] + end[path[-1]]
            total = total + sum(scores[t, tag] for t, tag in enumerate(path))
            total = total + sum(move[a, b] for a, b in itertools.pairwise(path))
            weights[path] = total.double().exp().item()
        found = {}
        for path, weight in weights.items():
            for span in spans([head.labels[tag] for tag in path]):
                found[span] = found.get(span, 0.0) + weight / sum(weights.values())
        rows.append(found)
    return rows


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("ruled", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_probabilities_of_spans_are_those_of_the_enumeration(
    scheme, ruled, batch_first
):
    torch.manual_seed(0)
    labels = SCHEMES[scheme]
    head = LinearChain(
        labels, bio(labels, scheme) if ruled else None, batch_first=batch_first
    ).double()
    for scores in head.parameters():
        torch.nn.init.normal_(scores)
    emissions = torch.randn(3, 5, len(labels), dtype=torch.float64)
    wanted = by_hand(head, emissions, MASK)
    assert len(wanted[0]) >= 10
    asked = [list(row) for row in wanted]
    given = (emissions, MASK) if batch_first else (emissions.transpose(0, 1), MASK.T)
    found = head.span_probabilities(*given, asked)
    for row, truth in zip(found, wanted, strict=True):
        exact = torch.tensor(list(truth.values()), dtype=torch.float64)
        torch.testing.assert_close(row, exact)


def test_a_span_that_the_scheme_forbids_has_probability_0_and_gradients_are_finite():
    labels = ["O", "B-X", "E-X", "I-X", "S-X"]
    head = LinearChain(labels, bio(labels))
    emissions = torch.zeros(1, 3, 5, requires_grad=True)
    # of one tag, two and three; forbidden is none but what scores forbid
    with torch.no_grad():
        emissions[0, 1, 3] = -torch.inf
    [found] = head.span_probabilities(
        emissions, None, [[("X", 0, 2), ("X", 0, 1), ("X", 1, 1)]]
    )
    assert found[0] == 0
    assert (found[1:] > 0).all()
    found.sum().backward()
    assert head.transitions.grad.isfinite().all()
    assert emissions.grad.isfinite().all()


def test_rows_may_have_no_spans_and_no_positions():
    head = LinearChain(["O", "B", "I"])
    mask = torch.tensor([[True, True], [False, False]])
    found = head.span_probabilities(torch.zeros(2, 2, 3), mask, [[], []])
    assert [len(row) for row in found] == [0, 0]
    one = head.span_probabilities(torch.zeros(1, 1, 3), None, [{("_", 0, 0)}])
    assert 0 < one[0].item() < 1


def test_the_confidence_of_tags_is_their_marginal():
    torch.manual_seed(0)
    head = LinearChain(3, batch_first=False)
    emissions, mask = torch.randn(5, 3, 3), MASK.T
    tags = head.decode(emissions, mask).tags
    found = head.tag_probabilities(emissions, mask, tags)
    marginals = head.marginals(emissions, mask)
    for t, b in itertools.product(range(5), range(3)):
        wanted = marginals[t, b, tags[t, b]] if mask[t, b] else 0
        assert found[t, b] == wanted
    tags = torch.zeros(5, 3, dtype=torch.int64)
    tags[4, 1] = 5
    message = r"^tags: expected labels in \[0, 3\) at .* got 5 at row 1, step 4"
    for ask in (head.tag_probabilities, lambda x, mask, y: head.loss(x, y, mask)):
        with pytest.raises(ValueError, match=message):
            ask(emissions, None, tags)


def test_tags_come_as_lists_of_labels_or_of_numbers():
    emissions = torch.zeros(3, 5, 2)
    emissions[:, ::2, 1] = emissions[:, 1::2, 0] = 9.0
    numbers = [[1, 1, 0, 1], [1, 0, 1, 0], [0]]
    assert LinearChain(2).decode_lists(emissions, MASK) == numbers
    labels = [["ab"[tag] for tag in row] for row in numbers]
    assert LinearChain({1: "b", 0: "a"}).decode_lists(emissions, MASK) == labels
    turned = LinearChain(["a", "b"], batch_first=False)
    assert turned.decode_lists(emissions.transpose(0, 1), MASK.T) == labels


def test_labels_come_from_the_constraints_too():
    labels = ("O", "B-X", "I-X")
    assert LinearChain(3, bio(labels)).labels == labels
    assert LinearChain(3, list(labels)).labels == labels
    assert LinearChain(list(labels), list(labels)).labels == labels
    assert LinearChain(3).labels is None


@pytest.mark.parametrize("loss", ["crf", "hinge", "hinge-l2", "perceptron"])
def test_weights_of_classes_have_names(loss):
    torch.manual_seed(0)
    head = LinearChain(["O", "B", "I"])
    emissions, tags = torch.randn(2, 4, 3), torch.tensor([[0, 1, 2, 0], [1, 1, 0, 0]])
    by_name = head(emissions, tags, loss=loss, class_weight={"B": 3.0, "O": 0.5})
    by_number = head(
        emissions, tags, loss=loss, class_weight=torch.tensor([0.5, 3.0, 1.0])
    )
    plain = head(emissions, tags, loss=loss)
    assert by_name == by_number != plain


def test_a_padding_label_stands_beside_a_scheme():
    labels = ["<pad>", "O", "B-PER", "I-PER"]
    rules = bio(labels, forbidden=["<pad>"])
    head = LinearChain(labels, rules)
    emissions = torch.zeros(2, 3, 4)
    emissions[:, :, 0] = 50.0
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]]).bool()
    assert not any("<pad>" in row for row in head.decode_lists(emissions, mask))
    tags = torch.tensor([[2, 3, 1], [1, 2, 0]])
    assert head(emissions, tags, mask).isfinite()
    with pytest.raises(ValueError, match="forbid '<pad>' after 'B-PER' at row 1"):
        head(emissions, tags)
    without = bio(labels[1:])
    assert torch.equal(rules.transitions[1:, 1:], without.transitions)
    assert not rules.transitions[0].any()
    assert not rules.transitions[:, 0].any()


LABELS = ["O", "B-X", "I-X"]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: LinearChain(["O", "B"], bio(LABELS)),
            ValueError,
            "constraints: expected 2 tags to match num_tags, got 3",
        ),
        (
            lambda: LinearChain(["O", "B-Y", "I-Y"], bio(LABELS)),
            ValueError,
            "constraints: expected those of the labels O, B-Y, I-Y, got those of O, "
            "B-X, I-X",
        ),
        (
            lambda: bio(["<pad>", *LABELS]),
            ValueError,
            r"labels: expected .* got '<pad>'; if no real position has it, "
            r"constraints.bio\(labels, forbidden=\['<pad>'\]\)",
        ),
        (
            lambda: bio(LABELS, forbidden="<pad>"),
            TypeError,
            r"forbidden: expected a list of labels, got a string; write \['<pad>'\]",
        ),
        (
            lambda: bio(LABELS, forbidden=["X"]),
            ValueError,
            "forbidden: expected some of 'O', 'B-X', 'I-X', got 'X'",
        ),
        (
            lambda: LinearChain(3)(*BATCH, class_weight={"O": 1}),
            ValueError,
            r"class_weight: expected a tensor for a head without labels, .*"
            r"LinearChain\(labels\)",
        ),
        (
            lambda: LinearChain(LABELS)(*BATCH, class_weight={"Q": 1}),
            ValueError,
            "class_weight: expected some of O, B-X, I-X, got 'Q'",
        ),
        (
            lambda: LinearChain(LABELS)(*BATCH, class_weight={"O": "1"}),
            TypeError,
            r"class_weight\['O'\]: expected a number, got str",
        ),
        (
            lambda: LinearChain(LABELS)(*BATCH, class_weight={"O": -1.0}),
            ValueError,
            r"class_weight\['O'\]: expected a number >= 0, got -1.0",
        ),
        (
            lambda: LinearChain(["O", "B", "O"]),
            ValueError,
            "^labels: expected different ones, got 'O' at 0 and 2",
        ),
        (
            lambda: LinearChain(2, ["O", "O"]),
            ValueError,
            "^constraints: expected different ones, got 'O' at 0 and 1",
        ),
        (
            lambda: LinearChain(LABELS)(
                *BATCH, loss=StructuralHinge(), class_weight={"O": 1}
            ),
            ValueError,
            r"class_weight: expected none beside a loss module; write "
            r"StructuralHinge\(class_weight=...\)",
        ),
        (
            lambda: LinearChain(3).span_probabilities(BATCH[0], None, [[]]),
            ValueError,
            r"labels: expected those of the tags for spans, got none; write "
            r"LinearChain\(labels\)",
        ),
        (
            lambda: ask("X"),
            TypeError,
            "spans: expected a list of spans for each row, got str",
        ),
        (
            lambda: ask([]),
            ValueError,
            "spans: expected a list of spans for each of 1 rows, got 0",
        ),
        (
            lambda: ask([["X"]]),
            TypeError,
            r"spans: expected \(type, first, last\) at row 0, got 'X'",
        ),
        (
            lambda: ask(["X"]),
            TypeError,
            "spans: expected a list of spans at row 0, got str",
        ),
        (
            lambda: ask([[("X", 0.0, 0)]]),
            TypeError,
            r"spans: expected \(type, first, last\) with ints first and last at row 0, "
            r"got \('X', 0.0, 0\)",
        ),
        (
            lambda: ask([[("Y", 0, 1)]]),
            ValueError,
            "spans: expected one of the types X at row 0, got 'Y'",
        ),
        (
            lambda: ask([[("X", 1, 2)]]),
            ValueError,
            r"spans: expected 0 <= first <= last < 2, the real positions of row 0, got "
            r"\('X', 1, 2\)",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


BATCH = torch.zeros(1, 2, 3), torch.zeros(1, 2, dtype=torch.int64)


def ask(asked):
    return LinearChain(LABELS).span_probabilities(BATCH[0], None, asked)


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = LinearChain(3)

    def forward(self, emissions, mask):
        return self.head.decode(emissions, mask)[:]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [True, False])
def test_an_export_of_decode_to_onnx_names_the_module_that_can_be_exported(
    dynamo, tmp_path
):
    pytest.importorskip("onnxscript")
    given = torch.zeros(2, 4, 3), torch.ones(2, 4, dtype=torch.bool)
    message = r"decode: ONNX has no .*; export head\.exportable\(\)"
    with pytest.raises(Exception, match=message):
        torch.onnx.export(Decoder(), given, tmp_path / "head.onnx", dynamo=dynamo)


@pytest.mark.long
def test_a_compiled_transform_of_a_loss_says_what_is_possible():
    torch.manual_seed(0)
    head, emissions = LinearChain(3), torch.randn(2, 4, 3)
    tags = torch.tensor([[0, 1, 2, 0], [1, 1, 0, 0]])
    gradient = torch.func.grad(lambda scores: head(scores, tags))
    with pytest.raises(
        torch._dynamo.exc.Unsupported,
        match=r"torch\.func: expected no transform .*torch\.compile\(loss, fullgraph",
    ):
        torch.compile(gradient, fullgraph=True)(emissions)
    torch._dynamo.reset()
    found = torch.compile(gradient)(emissions)
    torch.testing.assert_close(found, gradient(emissions))
