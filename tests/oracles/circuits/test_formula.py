"""What formulas have besides the laws of circuits: their sources, and examples."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import L2, CRFLoss, Entropy, StructuralHinge
from smoothsp.oracles import Formula
from tests.sweeps import thinned
from tests.truth.circuits.formula import models
from tests.truth.circuits.formula_sdd import sdd


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).double()


def hold(formula, expected):
    """Every answer to random scores is that of a list of all models."""
    ys = torch.tensor(expected)
    n, V = ys.shape
    assert (formula.count, formula.variables) == (n, V)
    ours = drawn(3, V, 2).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    built = formula(ours)
    scores = theirs[:, torch.arange(V), ys].sum(2)  # [row, model]
    ranked, places = scores.sort(descending=True)
    value, y = built.decode()
    assert_close(value, ranked[:, 0])
    assert_close(y, ys[places[:, 0]])
    k = min(n, 12)
    values, best, valid = built.decode_topk(k + 1)
    assert_close(values[:, :k], ranked[:, :k])
    assert_close(best[:, :k], ys[places[:, :k]])
    assert (valid[:, k] == (n > k)).all()
    assert_close(built.log_partition(), scores.logsumexp(1))
    used = torch.nn.functional.one_hot(ys, 2).double()
    chances = scores.softmax(1)
    marginals = torch.einsum("bn,nva->bva", chances, used)
    assert_close(built.marginals(), marginals.detach())
    assert_close(built.entropy(), -(chances * chances.log()).sum(1))
    assert_close(built.log_count().exp(), torch.full((3,), float(n)).double())
    draws = built.sample(200, torch.Generator().manual_seed(0))
    seen = {tuple(y) for row in draws.tolist() for y in row}
    assert seen <= {tuple(y) for y in ys.tolist()}
    chosen = torch.arange(3) % n
    gold, of_gold = ys[chosen], scores[torch.arange(3), chosen]
    assert_close(built.score(gold), of_gold)
    cost = (ys[None] != gold[:, None]).sum(2)
    own = built.score(gold)
    hinge = StructuralHinge(reduction="none")(built, gold)
    assert_close(hinge, (scores + cost).max(1).values - own)
    soft = StructuralHinge(Entropy(2.0), reduction="none")(built, gold)
    assert_close(soft, 2 * ((scores + cost) / 2).logsumexp(1) - own)
    assert (StructuralHinge(L2(1.0, 3))(built, gold) >= 0).all()
    crf = CRFLoss(reduction="sum")(built, gold)
    crf.backward()
    (scores.logsumexp(1) - of_gold).sum().backward()
    assert_close(ours.grad, theirs.grad)


def every_way(clauses, variables, tmp_path):
    """A formula by clauses, by PySDD and by files of both formats."""
    yield Formula.from_clauses(clauses, variables)
    yield Formula.from_sdd(sdd(clauses, variables))
    for write in (as_c2d, as_d4):
        path = tmp_path / write.__name__
        path.write_text(write(clauses, variables))
        yield Formula.from_nnf(path, variables)


def decisions(clauses, variables):
    """A decision tree: a node is a literal list, or (variable, below 1, below 0)."""
    if any(not clause for clause in clauses):
        return False
    if not clauses:
        return True
    v = min(abs(x) for clause in clauses for x in clause)
    return v, *(
        decisions([[x for x in c if x != -y] for c in clauses if y not in c], variables)
        for y in (v, -v)
    )


def as_c2d(clauses, variables):
    lines = []

    def write(node):
        if isinstance(node, bool):
            lines.append("A 0" if node else "O 0 0")
        else:
            v, *below = node
            ways = []
            for literal, child in zip((v, -v), below, strict=True):
                lines.append(f"L {literal}")
                which = len(lines) - 1
                lines.append(f"A 2 {which} {write(child)}")
                ways.append(len(lines) - 1)
            lines.append(f"O {v} 2 {ways[0]} {ways[1]}")
        return len(lines) - 1

    write(decisions(clauses, variables))
    edges = sum(int(x.split()[1 + (x[0] == "O")]) for x in lines if x[0] != "L")
    return "\n".join(
        ["c written by a test", f"nnf {len(lines)} {edges} {variables}", *lines]
    )


def as_d4(clauses, variables):
    heads, edges = [], []

    def write(node):
        number = len(heads) + 1
        if isinstance(node, bool):
            heads.append(f"{'t' if node else 'f'} {number} 0")
        else:
            heads.append(f"o {number} 0")
            v, *below = node
            for literal, child in zip((v, -v), below, strict=True):
                edges.append(f"{number} {write(child)} {literal} 0")
        return number

    write(decisions(clauses, variables))
    return "\n".join([*heads, *edges, ""])


def exactly(k, n):
    """Of any n - k + 1 one is 1, of any k + 1 one is 0."""
    some = [list(c) for c in itertools.combinations(range(1, n + 1), n - k + 1)]
    return some + [
        [-x for x in c] for c in itertools.combinations(range(1, n + 1), k + 1)
    ]


@pytest.mark.parametrize(("k", "n"), [(2, 5), (0, 3), (3, 3), (1, 1), (3, 7)])
def test_exactly_k_of_n(k, n, tmp_path):
    expected = [y for y in itertools.product((0, 1), repeat=n) if sum(y) == k]
    for formula in every_way(exactly(k, n), n, tmp_path):
        hold(formula, expected)


def cell(row, column, digit):
    return 1 + 16 * row + 4 * column + digit


def sudoku():
    lines = [[(i, j) for j in range(4)] for i in range(4)]
    lines += [[(i, j) for i in range(4)] for j in range(4)]
    lines += [
        [(i + a, j + b) for a in (0, 1) for b in (0, 1)] for i in (0, 2) for j in (0, 2)
    ]
    cells = list(itertools.product(range(4), repeat=2))
    groups = [[cell(*x, digit) for x in line] for line in lines for digit in range(4)]
    groups += [[cell(*x, digit) for digit in range(4)] for x in cells]
    pairs = [[-a, -b] for g in groups for a, b in itertools.combinations(g, 2)]
    return groups + pairs


def solutions():
    """All 4 x 4 Sudokus, row by row."""
    rows = list(itertools.permutations(range(4)))
    found = []
    for grid in itertools.product(rows, repeat=4):
        columns = all(len({r[j] for r in grid}) == 4 for j in range(4))
        if columns and all(
            len({grid[i + a][j + b] for a in (0, 1) for b in (0, 1)}) == 4
            for i in (0, 2)
            for j in (0, 2)
        ):
            found.append([int(d == x) for row in grid for x in row for d in range(4)])
    return found


@pytest.mark.long
def test_sudoku():
    formula = Formula.from_clauses(sudoku())
    assert formula.count == 288
    # of 288 times 64 literals: what solutions share is computed once
    assert formula._topology.products < 2000
    hold(formula, solutions())
    # clues forbid: of what is left there is one
    scores = torch.zeros(1, 64, 2)
    answer = solutions()[100]
    for place in ((0, 0), (0, 1), (1, 2), (2, 1), (3, 3), (2, 3), (3, 0), (1, 1)):
        for digit in range(4):
            v = cell(*place, digit) - 1
            scores[0, v, 1 - answer[v]] = -torch.inf
    solved = formula(scores)
    count = int(solved.log_count().exp().round())
    assert count == sum(
        all(scores[0, v, y] > -torch.inf for v, y in enumerate(x)) for x in solutions()
    )
    assert_close(solved.score(torch.tensor([answer])), torch.zeros(1))


@pytest.mark.parametrize("seed", thinned(range(20), 2))
def test_random_clauses(seed, tmp_path):
    generator = torch.Generator().manual_seed(seed)
    V = int(torch.randint(1, 8, (), generator=generator))
    clauses = []
    for _ in range(int(torch.randint(0, 12, (), generator=generator))):
        size = int(torch.randint(1, 4, (), generator=generator))
        variables = 1 + torch.randint(V, (size,), generator=generator)
        signs = 2 * torch.randint(2, (size,), generator=generator) - 1
        clauses.append((signs * variables).tolist())
    expected = models(clauses, V)
    if not expected:
        for make in (Formula.from_clauses, lambda c, v: Formula.from_sdd(sdd(c, v))):
            with pytest.raises(ValueError, match="formula: "):
                make(clauses, V)
        return
    for formula in every_way(clauses, V, tmp_path):
        hold(formula, expected)


def test_many_variables_in_a_row():
    # Fibonacci numbers count strings without two neighbouring zeros
    n = 300
    a, b = 1, 2
    for _ in range(n - 1):
        a, b = b, a + b
    formula = Formula.from_clauses([[v, v + 1] for v in range(1, n)])
    assert formula.count == b
    found = formula(torch.zeros(1, n, 2).double()).log_partition().item()
    assert_close(found, math.log(b))


@pytest.mark.parametrize("B", [0, 1])
@pytest.mark.parametrize("V", [0, 1])
def test_small_sizes(B, V):
    scores = drawn(B, V, 2).requires_grad_()
    for clauses in ([], [[1]] if V else []):
        built = Formula.from_clauses(clauses, V)(scores)
        value, y = built.decode()
        assert_close(built.score(y), value)
        assert built.hamming(y).shape == scores.shape
        assert built.sample(2).shape == (B, 2, V)
        built.log_partition().sum().backward()
        assert scores.grad.isfinite().all()


def test_minus_the_log_partition_of_log_probabilities_is_the_semantic_loss():
    chance = torch.rand(4, 5, generator=torch.Generator().manual_seed(0)).double()
    scores = torch.stack([1 - chance, chance], 2).log()
    clauses = exactly(2, 5)
    total = 0
    for y in models(clauses, 5):
        one = torch.tensor(y) == 1
        total = total + torch.where(one, chance, 1 - chance).prod(1)
    found = Formula.from_clauses(clauses)(scores).log_partition()
    assert_close(found, total.log())


def written(tmp_path, text):
    path = tmp_path / "file.nnf"
    path.write_text(text)
    return path


NNF = {
    # not decomposable: x1 and x1 in two parts
    "decomposable": "nnf 4 4 2\nL 1\nL 2\nO 2 2 0 1\nA 2 0 2",
    # not deterministic: both may hold
    "deterministic": "nnf 3 2 2\nL 1\nL 2\nO 0 2 0 1",
    "model": "nnf 1 0 2\nO 0 0",
    "line 2": "nnf 1 0 1\nX 1",
    "line 3": "nnf 2 1 1\nL 1\nA 1 7",
    "line 1": "nnf",
    "line 4": "o 1 0\nt 2 0\n1 2 3 0\n1 5 -3 0",
    "3 nodes, the number in the first line": "nnf 3 2 2\nL 1\nL 2",
    "line 1 cannot": "nnf 1 0 1000000000000\nL 1",
    "line 2 cannot": "nnf 1 0 1\nL 100000000000000000000",
    # the second declaration says otherwise
    "line 3 cannot": "o 1 0\nt 2 0\na 1 0\n1 2 1 0\n1 2 -1 0",
    "a cycle": "o 1 0\no 2 0\no 3 0\n1 2 1 0\n2 3 0\n3 2 0",
    "empty": "c nothing\n",
}


@pytest.mark.parametrize("words", NNF)
def test_files_that_are_wrong_are_refused_in_words(words, tmp_path):
    with pytest.raises(ValueError, match=words):
        Formula.from_nnf(written(tmp_path, NNF[words]))


def test_determinism_is_found_without_a_literal_that_decides(tmp_path):
    # x1 = x2, or x1 != x2: conflicts only by both parts together
    text = "L 1\nL -1\nL 2\nL -2\nA 2 0 2\nA 2 1 3\nO 0 2 4 5\nA 2 0 3\nA 2 1 2\n"
    text += "O 0 2 7 8\nL 3\nA 2 6 10\nA 2 9 10\nO 0 2 11 12"
    formula = Formula.from_nnf(written(tmp_path, "nnf 14 12 3\n" + text))
    assert formula.count == 4
    # (x1 = x2, x3 != x4) or (x1 = x3, x2 = x4): by trying all assignments
    lines = [f"L {s * v}" for v in range(1, 5) for s in (1, -1)]

    def equal(a, b, flip=0):
        first = len(lines)
        lines.append(f"A 2 {2 * a - 2} {2 * b - 2 + flip}")
        lines.append(f"A 2 {2 * a - 1} {2 * b - 1 - flip}")
        lines.append(f"O 0 2 {first} {first + 1}")
        return first + 2

    pairs = [[equal(1, 2), equal(3, 4, flip=1)], [equal(1, 3), equal(2, 4)]]
    lines += [f"A 2 {a} {b}" for a, b in pairs]
    lines.append(f"O 0 2 {len(lines) - 2} {len(lines) - 1}")
    text = "\n".join([f"nnf {len(lines)} 0 4", *lines])
    assert Formula.from_nnf(written(tmp_path, text)).count == 8
    # and where it finds a common model
    text = (
        "L 1\nL 2\nL 3\nL -1\nL -2\nL -3\nA 2 0 1\nA 2 3 2\nO 1 2 6 7\n"  # ite(1,2,3)
    )
    text += "A 2 1 5\nA 2 4 3\nO 2 2 9 10\nO 0 2 8 11"  # ite(2, -3, -1)
    with pytest.raises(ValueError, match=r"two parts hold in the model \[1, 2, -3\]"):
        Formula.from_nnf(written(tmp_path, "nnf 13 12 3\n" + text))


def test_determinism_that_cannot_be_told_is_refused(tmp_path):
    # one of two lists of 20 literals, of different variables
    lines = [f"L {v}" for v in range(1, 41)]
    lines += [f"A 20 {' '.join(map(str, range(a, a + 20)))}" for a in (0, 20)]
    text = "\n".join(["nnf 43 42 40", *lines, "O 0 2 40 41"])
    with pytest.raises(ValueError, match="one over 40 variables for which this is not"):
        Formula.from_nnf(written(tmp_path, text))


@pytest.mark.parametrize(
    ("clauses", "options", "kind", "message"),
    [
        ([[1, 0]], {}, ValueError, "clauses: "),
        ([[1, -4]], {"variables": 3}, ValueError, "from 1 to 3 .* got -4"),
        ([[1.0]], {}, TypeError, "clauses: "),
        ([[1], [-1]], {}, ValueError, "formula: "),
        ([[]], {"variables": 2}, ValueError, "formula: "),
        ([[1, 2], [3, 4]], {"most_nodes": 3}, ValueError, "at most 3 nodes"),
        ([[1]], {"most_nodes": 0}, ValueError, "most_nodes: "),
        ([], {"variables": -1}, ValueError, "variables: "),
        ([], {"variables": True}, TypeError, "variables: "),
        ([[1]], {"variables": 2.0}, TypeError, "variables: "),
        ([[0]], {}, ValueError, "clauses: "),
        ([[10**12]], {}, ValueError, "clauses: "),
        ([1], {}, TypeError, "clauses: "),
        (["12"], {}, TypeError, "clauses: "),
        (None, {}, TypeError, "clauses: "),
    ],
)
def test_wrong_clauses_are_named(clauses, options, kind, message):
    with pytest.raises(kind, match=message):
        Formula.from_clauses(clauses, **options)


def test_wrong_arguments_are_named(tmp_path):
    formula = Formula.from_clauses([[1, 2]])
    for scores in (drawn(2, 3, 2), drawn(2, 2), drawn(2, 2, 3)):
        with pytest.raises(ValueError, match="scores: "):
            formula(scores)
    with pytest.raises(TypeError, match="scores: "):
        formula(drawn(2, 2, 2).long())
    path = written(tmp_path, "nnf 1 0 3\nL 2")
    with pytest.raises(ValueError, match="variables: "):
        Formula.from_nnf(path, variables=2)
    with pytest.raises(TypeError, match="variables: "):
        Formula.from_nnf(path, variables="3")
    assert Formula.from_nnf(path).count == 4
    with pytest.raises(ValueError, match="y: "):
        formula(drawn(1, 2, 2)).score(torch.tensor([[0, 0]]))
