"""A chain over encoders of transformers: its answers, files, training and pipeline."""

import itertools
import json
import pickle

import numpy as np
import pytest
import torch

import smoothsp
from tests.models.encoders import write_encoder

transformers = pytest.importorskip("transformers")

from transformers import AutoModelForTokenClassification  # noqa: E402

from smoothsp.hugging_face import (  # noqa: E402
    ChainConfig,
    ChainForTokenClassification,
    encode_words,
)

LABELS = {0: "O", 1: "B-PER", 2: "I-PER"}
SENTENCES = [
    ["ada", "met", "king"],
    ["king", "of", "bob", "met", "ada", "king"],
    ["of"],
]
TAGS = [[1, 0, 0], [0, 0, 1, 0, 1, 2], [0]]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def tokenizer(encoder):
    return transformers.AutoTokenizer.from_pretrained(encoder)


def over(encoder, **options):
    """A chain over the encoder whose scores differ enough to be told apart."""
    torch.manual_seed(1)
    options = {"id2label": LABELS} | options
    model = ChainForTokenClassification.from_pretrained(encoder, **options).eval()
    for weight in (*model.classifier.parameters(), *model.chain.parameters()):
        torch.nn.init.normal_(weight)
    return model


def test_logits_are_the_max_marginals_of_the_words(encoder, tokenizer):
    model = over(encoder)
    batch = encode_words(tokenizer, SENTENCES)
    logits = model(**batch).logits
    hidden = model.encoder(batch["input_ids"], batch["attention_mask"])
    emissions = model.classifier(hidden.last_hidden_state).detach()
    chain, first = model.requires_grad_(False).chain, batch["word_starts"].bool()
    for row, words in enumerate(SENTENCES):
        best = np.full((len(words), 3), -np.inf)
        for tags in itertools.product(range(3), repeat=len(words)):
            moves = list(itertools.pairwise(tags))
            if tags[0] == 2 or (0, 2) in moves:
                continue
            score = chain.start_transitions[tags[0]] + chain.end_transitions[tags[-1]]
            score = score + sum(chain.transitions[i, j] for i, j in moves)
            own = emissions[row, first[row]]
            score = float(score + sum(own[n, tag] for n, tag in enumerate(tags)))
            for n, tag in enumerate(tags):
                best[n, tag] = max(best[n, tag], score)
        found = logits[row, first[row]].numpy()
        np.testing.assert_allclose(found, best, rtol=1e-5, atol=1e-5)
        # the zeros of special tokens and padding
        special = ~batch["attention_mask"][row].bool()
        special |= batch["input_ids"][row] == tokenizer.cls_token_id
        assert not logits[row, special].any()


def test_a_sub_word_goes_on_with_the_label_of_its_word(encoder, tokenizer):
    model = over(encoder)
    batch = encode_words(tokenizer, SENTENCES)
    logits = model(**batch).logits
    for row in range(len(SENTENCES)):
        for place, word in enumerate(batch.word_ids(row)):
            if word is None or batch["word_starts"][row, place]:
                continue
            outside, begins, inside = logits[row, batch.word_ids(row).index(word)]
            assert logits[row, place, 0] == outside
            assert logits[row, place, 1] == -torch.inf
            assert logits[row, place, 2] == max(begins, inside)


def test_words_are_found_by_labels_by_their_starts_and_by_the_vocabulary(
    encoder, tokenizer
):
    model = over(encoder)
    batch = encode_words(tokenizer, SENTENCES, TAGS)
    starts = batch.pop("word_starts")
    by_labels = model(**batch).logits
    del batch["labels"]
    torch.testing.assert_close(model(**batch, word_starts=starts).logits, by_labels)
    torch.testing.assert_close(model(**batch).logits, by_labels)


@pytest.mark.parametrize("name", ["crf", "hinge-l2"])
def test_the_loss_is_that_of_the_chain_over_words(encoder, tokenizer, name):
    model = over(encoder, structured_loss=name)
    batch = encode_words(tokenizer, SENTENCES, TAGS)
    found = model.train().requires_grad_(False)(**batch)
    assert found.logits is None
    model.eval()
    hidden = model.encoder(batch["input_ids"], batch["attention_mask"])
    emissions = model.classifier(hidden.last_hidden_state)
    first, total = batch["word_starts"].bool(), 0.0
    for row, tags in enumerate(TAGS):
        own, gold = emissions[row, first[row]], torch.tensor(tags)
        total += model.chain.loss(own[None], gold[None], loss=name)
    words = sum(map(len, TAGS))
    torch.testing.assert_close(model(**batch).loss, total / words)


def test_a_saved_model_is_the_same_and_holds_its_labels(encoder, tokenizer, tmp_path):
    model = over(encoder, structured_loss="hinge-l2", classifier_dropout=0.3)
    model.save_pretrained(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["id2label"] == {str(n): label for n, label in LABELS.items()}
    batch = encode_words(tokenizer, SENTENCES)
    logits = model(**batch).logits
    for loader in (ChainForTokenClassification, AutoModelForTokenClassification):
        loaded = loader.from_pretrained(tmp_path)
        assert isinstance(loaded, ChainForTokenClassification)
        assert loaded.config.structured_loss == "hinge-l2"
        assert loaded.config.classifier_dropout == 0.3
        assert loaded.config.labels == list(LABELS.values())
        torch.testing.assert_close(loaded(**batch).logits, logits, rtol=0, atol=0)
        for name, value in model.chain.named_buffers():
            assert loaded.chain.get_buffer(name).equal(value), name


def test_labels_without_prefixes_have_no_rules(encoder):
    plain = over(encoder, id2label={0: "NOUN", 1: "VERB"})
    assert plain.chain.allowed_transitions is None
    assert over(encoder, constrained=False).chain.allowed_transitions is None
    assert not over(encoder).chain.allowed_transitions[0, 2]


def trained(encoder, tokenizer, folder, **settings):
    """A model that a ``Trainer`` has trained on the sentences, and its evaluation."""

    def collate(rows):
        words, tags = zip(*rows, strict=True)
        return encode_words(tokenizer, words, tags)

    def f1(prediction):
        best = prediction.predictions.argmax(-1)
        gold, guess = (
            [
                [LABELS[tag] for tag in row[kept]]
                for row, kept in zip(side, prediction.label_ids != -100, strict=True)
            ]
            for side in (prediction.label_ids, best)
        )
        return {"f1": smoothsp.metrics.span_f1(gold, guess)[2]}

    torch.manual_seed(2)
    model = ChainForTokenClassification.from_pretrained(
        encoder, id2label=LABELS, structured_loss="hinge-l2"
    )
    corpus = list(zip(SENTENCES, TAGS, strict=True))
    trainer = transformers.Trainer(
        model,
        transformers.TrainingArguments(
            str(folder),
            remove_unused_columns=False,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            save_strategy="no",
            dataloader_pin_memory=False,
            **settings,
        ),
        train_dataset=corpus,
        eval_dataset=corpus,
        data_collator=collate,
        compute_metrics=f1,
        processing_class=tokenizer,
    )
    trainer.train()
    return trainer


def test_a_trainer_evaluates_during_training(encoder, tokenizer, tmp_path):
    settings = {"max_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    trainer = trained(encoder, tokenizer, tmp_path, **settings)
    assert any("eval_loss" in row for row in trainer.state.log_history)
    corpus = list(zip(SENTENCES, TAGS, strict=True))
    assert trainer.predict(corpus).predictions.shape[2] == len(LABELS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes_are_loaded_and_saved(dtype, encoder, tokenizer, tmp_path):
    model = over(encoder)
    batch = encode_words(tokenizer, SENTENCES)
    model.save_pretrained(tmp_path / "single")
    model = model.to(dtype)
    model.save_pretrained(tmp_path / "own")
    logits = model(**batch).logits
    for loader in (ChainForTokenClassification, AutoModelForTokenClassification):
        for place, options in (("single", {"dtype": dtype}), ("own", {})):
            loaded = loader.from_pretrained(tmp_path / place, **options)
            assert {x.dtype for x in loaded.parameters()} == {dtype}
            torch.testing.assert_close(loaded(**batch).logits, logits, rtol=0, atol=0)


@pytest.mark.long
def test_a_trainer_trains_it_and_a_pipeline_finds_the_spans(
    tmp_path_factory, tokenizer, tmp_path
):
    place = tmp_path_factory.mktemp("larger")
    write_encoder(place, hidden_size=32, intermediate_size=64)
    trainer = trained(
        place, tokenizer, tmp_path, num_train_epochs=60, learning_rate=5e-3
    )
    assert trainer.evaluate()["eval_f1"] == 1
    trainer.save_model(tmp_path / "model")
    find = transformers.pipeline(
        "token-classification",
        model=str(tmp_path / "model"),
        aggregation_strategy="simple",
        device="cpu",
    )
    text = "King of bob   met ada king"
    found = find(text)
    assert [text[x["start"] : x["end"]] for x in found] == ["bob", "ada king"]
    assert all(x["entity_group"] == "PER" and 0.5 < x["score"] <= 1 for x in found)


def test_no_code_of_a_folder_runs(encoder, tmp_path):
    for option in ({"trust_remote_code": True}, {"weights_only": False}):
        with pytest.raises(ValueError, match=f"^{next(iter(option))}: expected"):
            over(encoder, **option)
    mark = tmp_path / "ran"
    model = over(encoder)
    model.save_pretrained(tmp_path / "code")
    config = tmp_path / "code/config.json"
    about = json.loads(config.read_text())
    about["auto_map"] = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}
    config.write_text(json.dumps(about))
    (tmp_path / "code/evil.py").write_text(f"open({str(mark)!r}, 'w')\n")
    with pytest.raises(ValueError, match=r"config\.json: auto_map: expected fields of"):
        ChainForTokenClassification.from_pretrained(tmp_path / "code")
    model.save_pretrained(tmp_path / "code")
    (tmp_path / "code/model.safetensors").unlink()
    with open(tmp_path / "code/pytorch_model.bin", "wb") as file:
        pickle.dump(Writes(mark), file)
    with pytest.raises(ValueError, match=r"expected a file 'model.safetensors', "):
        ChainForTokenClassification.from_pretrained(tmp_path / "code")
    assert not mark.exists()


class Writes:
    """Unpickled, it writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_wrong_arguments_are_named(encoder, tokenizer):
    with pytest.raises(ValueError, match=r"^id2label: expected the labels of the chai"):
        ChainForTokenClassification.from_pretrained(encoder)
    with pytest.raises(ValueError, match=r"^structured_loss: expected one of crf"):
        ChainConfig(structured_loss="softmax")
    with pytest.raises(TypeError, match=r"^config: expected a ChainConfig, got BertC"):
        ChainForTokenClassification(transformers.BertConfig())
    with pytest.raises(ValueError, match="each of the 2 words of sentence 1, got 1"):
        encode_words(tokenizer, [["ada"], ["met", "bob"]], [[0], [0]])
    with pytest.raises(ValueError, match=r"^tokenizer: expected a fast one"):
        over(encoder, tokenizer=object())
    with pytest.raises(ValueError, match="expected at most the 58 sub-words of the en"):
        more = transformers.AutoTokenizer.from_pretrained(encoder)
        more.add_tokens(["ada"])
        over(encoder, tokenizer=more)


@pytest.mark.parametrize(
    "given",
    [
        {"id2label": LABELS, "label2id": {"O": 0, "B-PER": 1, "I-PER": 2}},
        {"id2label": LABELS, "label2id": {"I-PER": 2, "O": 0, "B-PER": 1}},
        {"id2label": LABELS, "num_labels": 3},
        {"id2label": {str(n): label for n, label in LABELS.items()}},
        {"id2label": None, "label2id": {"I-PER": 2, "O": 0, "B-PER": 1}},
        {"id2label": list(LABELS.values())},
    ],
)
def test_labels_are_given_as_to_any_head_of_transformers(given, encoder, tmp_path):
    model = over(encoder, **given)
    assert model.config.id2label == LABELS
    assert model.config.label2id == {label: n for n, label in LABELS.items()}
    model.save_pretrained(tmp_path)
    given = {key: value for key, value in given.items() if value}
    again = ChainForTokenClassification.from_pretrained(tmp_path, **given)
    assert again.config.id2label == LABELS
    renamed = {0: "O", 1: "B-LOC", 2: "I-LOC"}
    again = ChainForTokenClassification.from_pretrained(tmp_path, id2label=renamed)
    assert again.config.labels == ["O", "B-LOC", "I-LOC"]
    assert again.config.label2id["B-LOC"] == 1
    with pytest.raises(
        ValueError, match=r"^id2label: expected the 3 labels of .*, got 2"
    ):
        ChainForTokenClassification.from_pretrained(tmp_path, id2label={0: "O", 1: "X"})


def test_labels_may_have_numbers_only(encoder, tmp_path):
    model = over(encoder, id2label=None, num_labels=4)
    assert model.config.labels == ["LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"]
    model.save_pretrained(tmp_path)
    again = ChainForTokenClassification.from_pretrained(tmp_path, num_labels=4)
    assert again.config.labels == model.config.labels


def test_labels_renamed_by_the_loader_or_later_are_saved(encoder, tmp_path):
    over(encoder).save_pretrained(tmp_path)
    named = {0: "O", 1: "B-LOC", 2: "I-LOC"}
    for given in ({"id2label": named}, {"label2id": {x: n for n, x in named.items()}}):
        model = AutoModelForTokenClassification.from_pretrained(tmp_path, **given)
        assert model.config.labels == list(named.values())
        assert model.config.label2id == {"O": 0, "B-LOC": 1, "I-LOC": 2}
    model.config.id2label = named = {0: "O", 1: "B-ORG", 2: "I-ORG"}
    model.save_pretrained(tmp_path)
    again = ChainForTokenClassification.from_pretrained(tmp_path)
    assert again.config.labels == list(named.values())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"label2id": {"O": 0}},
            r"label2id: expected \{'O': 0, 'B-PER': 1, .* got ",
        ),
        ({"num_labels": 4}, "num_labels: expected 3 as in id2label, got 4"),
        ({"id2label": {0: "O", 2: "X"}}, "id2label: expected strings for 0 to 1"),
        ({"id2label": {0: "O", 1: "O"}}, "id2label: expected each label once, got 'O'"),
        ({"id2label": {0: "O", 1: 1}}, "id2label: expected strings for 0 to 1"),
        ({"id2label": {"a": "O"}}, "id2label: expected labels by number, got"),
        ({"id2label": 3}, "id2label: expected labels by number, got 3"),
    ],
)
def test_labels_that_contradict_each_other_are_named(given, message, encoder):
    with pytest.raises(ValueError, match=f"^{message}"):
        over(encoder, **given)


@pytest.mark.parametrize(
    "given",
    [
        {"id2label": dict.fromkeys(range(1, 501), "O")},
        {"id2label": ["O" * 10**4] * 2},
        {"id2label": "O" * 10**4},
        {"id2label": [f"B-{n}" for n in range(500)], "label2id": {"O": 0}},
        {"id2label": ["O"], "num_labels": "x" * 10**4},
        {"id2label": ["O"], "structured_loss": "x" * 10**4},
        {"id2label": ["O", "B-PER", "x" * 10**4]},
    ],
)
def test_long_values_are_cut_in_messages(given, encoder):
    with pytest.raises(ValueError, match=": ") as caught:
        over(encoder, **given)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "labels",
    [
        ["O", "b-per", "i-per"],
        ["O", "PER-B", "PER-I"],
        ["O", "B_PER", "I_PER"],
        ["0", "B:PER", "I:PER"],
    ],
)
def test_labels_in_another_notation_have_the_rules_of_their_scheme(labels, encoder):
    named = dict(enumerate(labels))
    allowed = over(encoder, id2label=named).chain.allowed_transitions
    assert torch.equal(
        allowed, smoothsp.constraints.bio(["O", "B-PER", "I-PER"]).transitions
    )
    model = over(encoder, id2label=named, constrained=False)
    assert model.chain.allowed_transitions is None


@pytest.mark.parametrize("odd", ["X", "PER", "0", "i-per"])
def test_labels_beside_a_scheme_are_not_taken_without_its_rules(odd, encoder):
    labels = ["O", "B-PER", "I-PER", odd]
    with pytest.raises(ValueError, match=f"^id2label: expected .*got '{odd}'. Remove"):
        over(encoder, id2label=labels)
    assert (
        over(encoder, id2label=labels, constrained=False).chain.allowed_transitions
        is None
    )


@pytest.mark.parametrize(
    "labels",
    [
        ["NOUN", "VERB"],
        ["O", "PER", "LOC"],
        ["X", "e_mail", "u_turn"],
        ["A-1"],
        ["U-bahn", "S-bahn"],
        ["O", "E-mail", "phone"],
    ],
)
def test_labels_of_no_scheme_have_no_rules(labels, encoder):
    assert over(encoder, id2label=labels).chain.allowed_transitions is None


@pytest.mark.parametrize("name", ["crf", "hinge", "perceptron"])
def test_a_word_without_a_label_may_have_any(encoder, tokenizer, name):
    model = over(encoder, structured_loss=name).requires_grad_(False).double()
    batch = encode_words(tokenizer, SENTENCES, TAGS)
    for row, column in ((0, 1), (1, 0), (1, 3)):
        place = batch["word_starts"][row].nonzero()[column, 0]
        batch["labels"][row, place] = -100
    hidden = model.encoder(batch["input_ids"], batch["attention_mask"])
    emissions = model.classifier(hidden.last_hidden_state)
    first, chain, total = batch["word_starts"].bool(), model.chain, 0.0
    for row, words in enumerate(SENTENCES):
        gold = batch["labels"][row, first[row]].tolist()
        every, right = [], []
        for tags in itertools.product(range(3), repeat=len(words)):
            moves = list(itertools.pairwise(tags))
            if tags[0] == 2 or (0, 2) in moves:
                continue
            score = chain.start_transitions[tags[0]] + chain.end_transitions[tags[-1]]
            score = score + sum(chain.transitions[i, j] for i, j in moves)
            own = emissions[row, first[row]]
            score = float(score + sum(own[n, tag] for n, tag in enumerate(tags)))
            wrong = sum(g not in (-100, t) for g, t in zip(gold, tags, strict=True))
            every.append(score + wrong * (name == "hinge"))
            right += [score] if not wrong else []
        most = torch.logsumexp if name == "crf" else torch.amax
        of_all, of_right = (most(torch.tensor(x).double(), 0) for x in (every, right))
        total += float(of_all - of_right)
    assert total > 0.1
    known = int((batch["labels"] != -100).sum())
    assert known == sum(map(len, TAGS)) - 3
    torch.testing.assert_close(float(model(**batch).loss), total / known)


def test_words_without_labels_alone_have_no_loss(encoder, tokenizer):
    model = over(encoder)
    batch = encode_words(tokenizer, SENTENCES, TAGS)
    batch["labels"][:] = -100
    loss = model.train()(**batch).loss
    loss.backward()
    assert loss == 0
    batch["labels"][0, 1] = 7
    with pytest.raises(ValueError, match=r"^labels: expected 0 to 2, or -100, got 7"):
        model(**batch)


def test_the_rest_is_that_of_any_head_for_tokens(encoder, tokenizer):
    options = {"attn_implementation": "eager"}
    model = over(encoder, **options)
    other = transformers.BertForTokenClassification.from_pretrained(
        encoder, num_labels=3, **options
    ).eval()
    other.classifier.load_state_dict(model.classifier.state_dict())
    batch = dict(encode_words(tokenizer, SENTENCES))
    starts = batch.pop("word_starts")
    asked = {"output_attentions": True, "output_hidden_states": True}
    places = torch.arange(batch["input_ids"].shape[1]).flip(0).expand_as(starts)
    embeds = other.get_input_embeddings()(batch["input_ids"])
    assert model.get_input_embeddings() is not None
    rows = [batch, {**batch, "position_ids": places}]
    rows.append({**rows[1], "input_ids": None, "inputs_embeds": embeds})
    for inputs in rows:
        found = model(**inputs, word_starts=starts, **asked)
        expected = other(**inputs, **asked)
        torch.testing.assert_close(found.emissions, expected.logits)
        assert len(found.hidden_states) == 3 and len(found.attentions) == 2
        torch.testing.assert_close(found.hidden_states, expected.hidden_states)
        torch.testing.assert_close(found.attentions, expected.attentions)
        assert found.words.equal(starts.bool())
        as_tuple = model(**inputs, word_starts=starts, **asked, return_dict=False)
        theirs = other(**inputs, **asked, return_dict=False)
        assert isinstance(as_tuple, tuple)
        assert as_tuple[0].equal(found.logits)
        torch.testing.assert_close(as_tuple[1:3], theirs[1:3])
    plain = model(**batch)
    assert plain.hidden_states is None and plain.attentions is None
    model.config.output_hidden_states = True
    assert len(model(**batch).hidden_states) == 3
    assert model(**batch, output_hidden_states=False).hidden_states is None
    model.config.return_dict = False
    assert isinstance(model(**batch), tuple)
    with pytest.raises(ValueError, match=r"^word_starts: expected beside inputs_em"):
        model(inputs_embeds=embeds)
    with pytest.raises(ValueError, match=r"^input_ids: expected them or inputs_em"):
        model()


def test_options_of_the_encoder_are_kept(encoder, tokenizer, tmp_path):
    over(encoder).save_pretrained(tmp_path)
    batch = encode_words(tokenizer, SENTENCES)
    options = {"output_attentions": True, "output_hidden_states": True}
    for place, more in ((encoder, {"id2label": LABELS}), (tmp_path, {})):
        model = ChainForTokenClassification.from_pretrained(
            place, attn_implementation="eager", **options, **more
        )
        found = model.eval()(**batch)
        assert len(found.hidden_states) == 3 and len(found.attentions) == 2
        assert isinstance(
            ChainForTokenClassification.from_pretrained(
                place, return_dict=False, **more
            )(**batch),
            tuple,
        )


def test_probabilities_come_from_the_output(encoder, tokenizer):
    model = over(encoder)
    batch = encode_words(tokenizer, SENTENCES)
    found = model(**batch)
    chances = model.chain.marginals(found.emissions, found.words)
    words = batch["word_starts"].bool()
    torch.testing.assert_close(chances.sum(2), words.to(chances.dtype))
    tags, _ = model.chain.decode(found.emissions, found.words)
    assert tags[words].equal(found.logits.argmax(2)[words])


def byte_pairs(blank):
    """A tokenizer that writes a blank before a word into its first sub-word."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    pieces = ["<s>", "<unk>", f"{blank}ada", "s", ".", f"{blank}met", "ada"]
    raw = Tokenizer(
        models.Unigram([(piece, -float(n)) for n, piece in enumerate(pieces)], 1)
    )
    raw.pre_tokenizer = pre_tokenizers.Metaspace(blank)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<s>", unk_token="<unk>"
    )


@pytest.mark.parametrize("blank", ["▁", "Ġ"])
def test_blanks_in_sub_words_show_where_words_begin(encoder, blank):
    tokenizer = byte_pairs(blank)
    model = over(encoder, tokenizer=tokenizer)
    # special 0, within a word 1, first 2: punctuation is a word of its own
    assert model.roles[:7].tolist() == [0, 1, 2, 1, 2, 2, 1]
    # the first sub-word of a text begins a word, with a blank before it or not
    numbers = tokenizer.convert_tokens_to_ids
    ids = torch.tensor([[0, *numbers(["ada", "s", f"{blank}met", "."])]])
    starts = torch.tensor([[0, 1, 0, 1, 1]])
    with_starts = model(ids, word_starts=starts).logits
    assert model(ids).logits.equal(with_starts)
    silent = byte_pairs("_")
    with pytest.raises(ValueError, match="that begin with ▁ or Ġ after a blank, got U"):
        over(encoder, tokenizer=silent)


def test_a_real_encoder(tmp_path):
    minilm = pytest.importorskip("all_minilm_l6_v2")
    place = minilm.extract_model(str(tmp_path))
    torch.manual_seed(0)
    model = ChainForTokenClassification.from_pretrained(place, id2label=LABELS)
    tokenizer = transformers.AutoTokenizer.from_pretrained(place)
    words = [["Ada", "Lovelace", "met", "Charles", "Babbage", "in", "Marylebone", "."]]
    batch = encode_words(tokenizer, words, [[1, 2, 0, 1, 2, 0, 0, 0]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(10):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    model.eval().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    find = transformers.pipeline(
        "token-classification",
        model=str(tmp_path / "model"),
        aggregation_strategy="simple",
        device="cpu",
    )
    text = "Ada Lovelace met Charles Babbage in Marylebone."
    found = [text[x["start"] : x["end"]] for x in find(text)]
    assert found == ["Ada Lovelace", "Charles Babbage"]
