"""An encoder under a tagger: its windows, its vectors, its folder and its training."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

import conll_ner
from smoothsp import checkpoints
from smoothsp.models import Tagger, load
from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.network import TaggerNetwork, TaggerSizes
from tests.models.encoders import LETTERS, write_encoder
from tests.recipes.runs import write_corpus

pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("blank")
LABELS = ["O", "B-X", "I-X", "E-X", "S-X"]
LONG = [[word for n in range(9) for word in ("ada", "met", f"{LETTERS[n]}o", "of")]]
SHORT = [["bo", "met", "ada"], ["of"], ["\u200b", "ada"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("tiny"), (12, 4, 1))


@pytest.fixture
def encoder(folder):
    return Encoder.pretrained(folder).eval()


def test_every_word_is_read_at_its_first_sub_word(encoder):
    first = {word: encoder.tokenizer.token_to_id(word[0]) for word in ("ada", "bo")}
    first |= {word: encoder.tokenizer.token_to_id(word) for word in ("met", "of")}
    first |= {f"{x}o": encoder.tokenizer.token_to_id(x) for x in LETTERS}
    for words in (*LONG, *SHORT[:2]):
        [cut] = encoder.split_subwords([words])
        assert all(len(window) <= 20 for window in cut.windows)
        found = [cut.windows[window][column] for window, column in cut.starts]
        assert found == [first[word] for word in words]
    # in a window that is not the last of several, a word is not near its end
    [cut] = encoder.split_subwords(LONG)
    assert len(cut.windows) > 3
    for window, column in cut.starts:
        inner = 0 < window < len(cut.windows) - 1
        assert not inner or 4 <= column < 16


def test_a_word_of_no_sub_word_has_the_first_place(encoder):
    [cut] = encoder.split_subwords([SHORT[2]])
    assert cut.starts == [(0, 0), (0, 1)]


def test_vectors_are_those_of_the_transformer(encoder, folder):
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        found = encoder(encoder.collate(encoder.split_subwords(SHORT[:2])))
        expected = []
        for words in SHORT[:2]:
            batch = tokenizer(words, is_split_into_words=True, return_tensors="pt")
            hidden = model(**batch).last_hidden_state[0]
            ids = batch.word_ids()
            expected += [hidden[ids.index(n)] for n in range(len(words))]
    torch.testing.assert_close(found, torch.stack(expected))


def test_mixed_layers_begin_as_their_mean_and_learn(folder):
    plain, mixed = (Encoder.pretrained(folder, mixed).eval() for mixed in (False, True))
    pieces = plain.collate(plain.split_subwords(SHORT[:2]))
    out = plain.model(pieces.ids, pieces.mask, output_hidden_states=True)
    layers = torch.stack(out.hidden_states)[:, pieces.window, pieces.column]
    assert len(layers) == 3
    found = mixed(pieces)
    torch.testing.assert_close(found, layers.mean(0))
    found[0, 0].backward()
    assert mixed.mix.grad.abs().min() > 0 and mixed.scale.grad.abs() > 0
    with torch.no_grad():
        mixed.mix.copy_(torch.tensor([-30.0, -30.0, 30.0]))
        mixed.scale.fill_(2.0)
        torch.testing.assert_close(mixed(pieces), 2 * plain(pieces))


@pytest.mark.parametrize("name", ["avx512_bf16", "amx_bf16", "avx512_f", None])
def test_a_processor_that_multiplies_bfloat16_trains_in_it(encoder, name, monkeypatch):
    if name is None:  # a PyTorch that does not tell
        monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    else:
        found = {name: True}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)
    seen = []
    inner = encoder.model.encoder.layer[0].intermediate.dense
    inner.register_forward_hook(lambda module, given, out: seen.append(out.dtype))
    pieces = encoder.collate(encoder.split_subwords(SHORT[:2]))
    vectors = [encoder.train(trained)(pieces) for trained in (True, False)]
    short = name is not None and name.endswith("bf16")
    assert seen == [torch.bfloat16 if short else torch.float32, torch.float32]
    assert all(found.dtype == torch.float32 for found in vectors)
    vectors[0].sum().backward()
    assert all(weight.grad.dtype == torch.float32 for weight in inner.parameters())


def test_a_tagger_with_an_encoder_is_a_folder(encoder, tmp_path):
    sentences = [*SHORT, *LONG]
    vocabulary = Vocabulary.from_sentences(sentences, [])
    torch.manual_seed(1)
    network = TaggerNetwork(vocabulary, LABELS, TaggerSizes(4, 5), encoder)
    tagger = Tagger(network, vocabulary, LABELS)
    tagger.save(tmp_path)
    again = load(tmp_path, "cpu")
    options = {"nbest": 2, "confidence": True}
    assert again.tag(sentences, **options) == tagger.tag(sentences, **options)
    assert (tmp_path / "tokenizer.json").is_file()
    # the encoder matters
    before = network(Corpus(vocabulary, SHORT, None, encoder).batch(torch.arange(3)))
    with torch.no_grad():
        encoder.model.embeddings.word_embeddings.weight.normal_()
    after = network(Corpus(vocabulary, SHORT, None, encoder).batch(torch.arange(3)))
    assert not torch.allclose(before, after)


def test_batches_have_like_numbers_of_sub_words(folder):
    encoder = Encoder.pretrained(folder)
    # of as many words, with 3 and 18 sub-words
    sentences = [["of"], ["abcdefghijklmnop"]] * 8
    corpus = Corpus(Vocabulary.from_sentences(sentences, []), sentences, None, encoder)
    batches = [corpus.batch(numbers) for numbers in corpus.shuffled_batches(4)]
    assert sorted(batch.subwords.ids.shape for batch in batches) == [
        (4, 3), (4, 3), (4, 18), (4, 18)
    ]  # fmt: skip


def test_a_context_is_the_sentences_around_of_a_document(folder, tmp_path):
    encoder = Encoder.pretrained(folder, context=12).eval()
    # 7, 5, 6 and 6 sub-words, those of begin and end included
    sentences = [
        ["of", "met", "ada"],
        ["bo", "met"],
        ["met", "of", "bo"],
        ["ada", "of"],
    ]
    documents = [0, 0, 0, 1]
    vocabulary = Vocabulary.from_sentences(sentences, [])
    corpus = Corpus(vocabulary, sentences, None, encoder, documents)
    assert [sum(map(len, cut.windows)) for cut in corpus.subword_windows] == [7, 9, 6]
    stretches = [[0], [1, 2], [3]]
    for found in (corpus.shuffled_batches(1), [*corpus.batches_by_length(1)]):
        assert sorted(numbers.tolist() for numbers in found) == stretches
    assert sorted(torch.cat(corpus.shuffled_batches(3)).tolist()) == [0, 1, 2, 3]
    batch = corpus.batch(torch.tensor([3, 1, 2]))
    joined = encoder.collate(
        encoder.split_subwords([sentences[3], sentences[1] + sentences[2]])
    )
    torch.testing.assert_close(encoder(batch.subwords), encoder(joined))

    torch.manual_seed(1)
    network = TaggerNetwork(vocabulary, LABELS, TaggerSizes(4, 5), encoder)
    Tagger(network, vocabulary, LABELS).save(tmp_path)
    tagger = load(tmp_path, "cpu")
    assert tagger.network.encoder.context == 12

    def scores(sentences, **options):
        return [tagged.score for tagged in tagger.tag(sentences, **options)]

    together, apart = scores(sentences[:2]), scores([sentences[0], [], sentences[1]])
    assert apart == pytest.approx([*scores(sentences[:1]), 0, *scores(sentences[1:2])])
    assert together != pytest.approx(apart[::2])
    assert scores(sentences, batch_size=1) == pytest.approx(scores(sentences))


def test_the_recipe_reads_the_sentences_around(folder, tmp_path, tiny):
    sentences = (Path(tiny) / "train.txt").read_text().split("\n\n")
    data = tmp_path / "documents"
    data.mkdir()
    for name in ("train", "dev"):
        parts = ("\n\n".join(part) for part in (sentences[:6], sentences[6:]))
        (data / f"{name}.txt").write_text("\n\n-DOCSTART-\tO\n\n".join(parts))
    config = conll_ner.Config(str(data), out=tmp_path, steps=2, context=True)
    with pytest.raises(ValueError, match="context: expected an encoder beside it"):
        conll_ner.main(config)
    result = conll_ner.main(dataclasses.replace(config, encoder=str(folder)))
    assert load(tmp_path / "model", "cpu").network.encoder.context > 0
    found = load(tmp_path / "model").evaluate(data / "dev.txt")
    assert found["f1"] == result["dev_f1"]


def test_the_recipe_trains_an_encoder_along(folder, tmp_path, tiny):
    config = conll_ner.Config(tiny, encoder=str(folder), steps=8, out=tmp_path)
    conll_ner.main(config)
    state = json.loads((tmp_path / "metrics.json").read_text())
    assert state["settings"]["encoder"] == str(folder)
    assert load(tmp_path / "model", "cpu").network.encoder is not None
    weights = checkpoints.read(tmp_path / "checkpoint.ckpt")["state_dict"]
    fresh = Encoder.pretrained(folder).state_dict()
    moved = [
        not torch.equal(weights[f"network.encoder.{n}"], x) for n, x in fresh.items()
    ]
    assert sum(moved) > len(moved) / 2


def test_two_rates_rise_and_fall_together(folder, tiny):
    pl = pytest.importorskip("pytorch_lightning")
    rates = []

    class Rates(pl.Callback):
        def on_train_batch_start(self, trainer, *_):
            groups = trainer.optimizers[0].param_groups[:2]
            rates.append([group["lr"] for group in groups])

    options = {"steps": 40, "encoder_rate": 1e-4, "rate": 1e-3}
    data, trainer = Path(tiny) / "train.txt", {"callbacks": Rates()}
    Tagger.train(data, encoder=str(folder), trainer=trainer, **options)
    new, old = zip(*rates, strict=True)
    assert all(abs(a - 10 * b) < 1e-9 for a, b in zip(new, old, strict=True))
    peak = max(range(40), key=new.__getitem__)
    assert peak == 3
    assert list(new[:4]) == sorted(new[:4])
    assert list(new[3:]) == sorted(new[3:], reverse=True)


def test_an_encoder_that_is_none_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="encoder: expected a folder or a name that"):
        Encoder.pretrained(tmp_path)
