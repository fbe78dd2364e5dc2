"""Folders of models that ask for code, the network, or more memory than they hold."""

import json
import socket
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from smoothsp import encoder_config
from smoothsp.models import ConstituencyParser, Tagger, files, load
from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Vocabulary
from smoothsp.models.network import TaggerNetwork, TaggerSizes
from smoothsp.models.span_scores import SpanScores
from smoothsp.models.word_vectors import ParserSizes
from tests.models.encoders import write_encoder
from tests.programs import run

pytest.importorskip("transformers")

import transformers

from smoothsp.hugging_face import ChainForTokenClassification

LABELS = ["O", "B-X", "I-X", "E-X", "S-X"]
CODE = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}
# fields of a configuration, and what the message says of them
ASKS = {
    "code": ({"auto_map": CODE}, "auto_map: expected fields of a bert only"),
    "code by another name": (
        {"auto_map": CODE, "model_type": "evil"},
        "model_type: expected a text encoder, got evil; known are albert, ",
    ),
    "code of a configuration that has none": (
        {"auto_map": CODE, "model_type": "clap_audio_model"},
        "model_type: expected a text encoder",
    ),
    "a backbone": (
        {"model_type": "detr", "use_pretrained_backbone": True},
        "model_type: expected a text encoder, got detr; known are albert, ",
    ),
    "a backbone of a text encoder": (
        {"use_pretrained_backbone": True, "backbone": "resnet50"},
        "use_pretrained_backbone: expected fields",
    ),
    "a kernel": (
        {"attn_implementation": "kernels-community/flash-attn2"},
        "attn_implementation: expected fields",
    ),
    "a kernel by another name": (
        {"_attn_implementation": "kernels-community/flash-attn2"},
        "_attn_implementation: expected fields",
    ),
    "a kernel inside": (
        {"_attn_implementation_internal": "kernels-community/flash-attn2"},
        "_attn_implementation_internal: expected fields",
    ),
    "a quantization": (
        {"quantization_config": {"quant_method": "gptq"}},
        "quantization_config: expected fields",
    ),
    "other weights": (
        {"transformers_weights": "../x.safetensors"},
        "transformers_weights: expected fields",
    ),
    "a configuration inside": (
        {"text_config": {"model_type": "detr", "auto_map": CODE}},
        "text_config: expected fields",
    ),
    "layers of other kinds": (
        {"per_layer_config": {"0": {"auto_map": CODE}}},
        "per_layer_config: expected fields",
    ),
    "a dtype": ({"dtype": "load"}, "dtype: expected one of float16, .*, got load"),
    "no type": ({"model_type": None}, "model_type: expected a text encoder"),
    "a type of lists": ({"model_type": ["bert"]}, "model_type: expected a text enc"),
    "a type of objects": ({"model_type": {"bert": 1}}, "model_type: expected a text"),
    "many layers": (
        {"num_hidden_layers": 10**9},
        "num_hidden_layers: expected at most",
    ),
    "layers": (
        {"num_hidden_layers": 10**6},
        "at most 1024 layers, got 1000000",
    ),
    "width": ({"hidden_size": 10**12}, "hidden_size: expected at most 16777216"),
    "words": ({"vocab_size": -(10**30)}, "vocab_size: expected at most 16777216"),
    "no number": ({"layer_norm_eps": float("nan")}, "layer_norm_eps: expected a fini"),
    "a text": ({"hidden_act": "x" * 10**6}, "hidden_act: expected at most 100 char"),
    "an act": ({"hidden_act": "os.system"}, "KeyError|invalid|expected"),
    "heads": ({"num_attention_heads": 0}, "expected"),
    "a number of lists": (
        {"hidden_size": [[[[[1]]]]]},
        "hidden_size: expected number",
    ),
    "a number in words": ({"hidden_size": "8"}, "expected"),
}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def tagger(encoder):
    vocabulary = Vocabulary.from_sentences([["ada", "met", "bo"]], [])
    torch.manual_seed(1)
    inner = Encoder.pretrained(encoder)
    network = TaggerNetwork(vocabulary, LABELS, TaggerSizes(4, 5), inner)
    return Tagger(network, vocabulary, LABELS)


@pytest.fixture(scope="module")
def parser(encoder):
    vocabulary = Vocabulary.from_sentences([["ada", "met", "bo"]], [])
    sizes = ParserSizes(word=4, hidden=5, arc=6)
    network = SpanScores(vocabulary, ["S"], sizes, Encoder.pretrained(encoder))
    return ConstituencyParser(network, vocabulary, ["S"])


@pytest.fixture(scope="module")
def chain(encoder):
    return ChainForTokenClassification.from_pretrained(encoder, id2label=LABELS)


@pytest.fixture
def no_network(monkeypatch):
    def refused(*given, **options):
        raise AssertionError("a connection")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refused)


def edited(path, *keys, **changes):
    config = json.loads(path.read_text())
    inner = config
    for key in keys:
        inner = inner[key]
    inner.update(changes)
    path.write_text(json.dumps(config))


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("asks", ASKS)
def test_a_folder_that_asks_for_more_is_refused_by_file_and_field(
    asks, tagger, chain, tmp_path
):
    changes, message = ASKS[asks]
    tagger.save(tmp_path / "tagger")
    path = tmp_path / "tagger/config.json"
    edited(path, "encoder", "model", **changes)
    with pytest.raises(ValueError, match=f"^{path}: .*encoder[.:].*(?:{message})"):
        load(tmp_path / "tagger", "cpu")
    # it can be saved to
    tagger.save(tmp_path / "tagger")
    load(tmp_path / "tagger", "cpu")
    chain.save_pretrained(tmp_path / "chain")
    path = tmp_path / "chain/config.json"
    edited(path, "encoder", **changes)
    with pytest.raises(ValueError, match=f"^{tmp_path}/chain.*: .*(?:{message})"):
        ChainForTokenClassification.from_pretrained(tmp_path / "chain")


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("asks", ["code", "a backbone", "many layers", "width"])
def test_a_constituency_parser_that_asks_for_more_is_refused(asks, parser, tmp_path):
    changes, message = ASKS[asks]
    parser.save(tmp_path)
    path = tmp_path / "config.json"
    edited(path, "encoder", "model", **changes)
    with pytest.raises(ValueError, match=f"^{path}: .*encoder[.:].*(?:{message})"):
        load(tmp_path, "cpu")
    parser.save(tmp_path)
    load(tmp_path, "cpu")


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["auto_map", "custom_pipelines", "trust_remote_code"])
def test_nothing_beside_the_encoder_asks_for_code(name, tagger, chain, tmp_path):
    for keys in ((), ("encoder",)):
        tagger.save(tmp_path / "tagger")
        path = tmp_path / "tagger/config.json"
        edited(path, *keys, **{name: CODE})
        with pytest.raises(ValueError, match=f"^{path}: .*{name}: expected fields of"):
            load(tmp_path / "tagger", "cpu")
    chain.save_pretrained(tmp_path / "chain")
    path = tmp_path / "chain/tokenizer_config.json"
    path.write_text(json.dumps({name: CODE}))
    with pytest.raises(ValueError, match=f"^{path}: {name}: expected a tokenizer with"):
        ChainForTokenClassification.from_pretrained(tmp_path / "chain")
    path.write_text("[]")
    with pytest.raises(ValueError, match=f"^{path}: expected a JSON object, got list"):
        ChainForTokenClassification.from_pretrained(tmp_path / "chain")


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"longest": 0.5}, r"encoder\.longest: expected 0 to 16777216, got 0\.5"),
        ({"padding": -1}, r"encoder\.padding: expected 0 to 16777216, got -1"),
        ({"context": 10**40}, r"encoder\.context: expected 0 to 16777216"),
        ({"mixed": "no"}, r"encoder\.mixed: expected true or false, got 'no'"),
        ({"model": None}, r"encoder\.model: expected a JSON object, got NoneType"),
    ],
)
def test_numbers_of_an_encoder_are_bounded(changes, message, tagger, tmp_path):
    tagger.save(tmp_path)
    edited(tmp_path / "config.json", "encoder", **changes)
    with pytest.raises(ValueError, match=message):
        load(tmp_path, "cpu")


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"auto_map": CODE}, "auto_map: expected fields of a smoothsp-chain only"),
        ({"attn_implementation": "a/b"}, "attn_implementation: expected fields"),
        ({"custom_pipelines": {"x": 1}}, "custom_pipelines: expected fields"),
        ({"transformers_weights": "x"}, "transformers_weights: expected fields"),
        ({"quantization_config": {}}, "quantization_config: expected fields"),
        ({"dtype": "load"}, "dtype: expected one of float16"),
        ({"structured_loss": ["crf"]}, "structured_loss: expected one of crf"),
        ({"constrained": "no"}, "constrained: expected True or False, got 'no'"),
        ({"id2label": {"0": "O", "2": "B-X"}}, "id2label: expected strings for 0 to 1"),
        ({"id2label": ["O"] * 9}, "id2label: expected each label once, got 'O' twice"),
        (
            {"id2label": dict(enumerate(map(str, range(10**5)))), "label2id": None},
            r"expected \(100000,\) for chain.start_transitions .* got \(5,\)",
        ),
        ({"encoder": None}, "encoder: expected"),
        ({"encoder": "bert-base-cased"}, "encoder: expected"),
    ],
)
def test_a_chain_takes_known_fields_only(changes, message, chain, tmp_path):
    chain.save_pretrained(tmp_path)
    edited(tmp_path / "config.json", **changes)
    with pytest.raises(ValueError, match=f"^{tmp_path}.*: {message}"):
        ChainForTokenClassification.from_pretrained(tmp_path)


@pytest.mark.usefixtures("no_network")
def test_sizes_are_compared_with_the_weights_before_memory_is_taken(
    tagger, chain, tmp_path
):
    vast = {"hidden_size": 2**20, "intermediate_size": 2**24, "vocab_size": 2**24}
    tagger.save(tmp_path / "tagger")
    edited(tmp_path / "tagger/config.json", "encoder", "model", **vast)
    with pytest.raises(ValueError, match=r"expected \(.*\) for .* got \("):
        load(tmp_path / "tagger", "cpu")
    chain.save_pretrained(tmp_path / "chain")
    edited(tmp_path / "chain/config.json", "encoder", **vast)
    with pytest.raises(ValueError, match=r"expected \(.*\) for .* got \("):
        ChainForTokenClassification.from_pretrained(tmp_path / "chain")


@pytest.mark.usefixtures("no_network")
def test_an_encoder_takes_what_its_network_reads_and_no_code(encoder, tmp_path):
    """Files of the hub have many other fields, which are left out."""
    place = write_encoder(tmp_path)
    edited(place / "config.json", auto_map=CODE, task_specific=[1], hidden_act="relu")
    found = Encoder.pretrained(place)
    assert found.model.config.hidden_act == "relu"
    assert not hasattr(found.model.config, "auto_map")
    own = {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}}
    edited(place / "tokenizer_config.json", **own)
    Encoder.pretrained(place)
    ChainForTokenClassification.from_pretrained(place, id2label=LABELS)
    edited(place / "config.json", use_pretrained_backbone=True, model_type="detr")
    with pytest.raises(ValueError, match=r"^encoder: .*config.json: model_type: expec"):
        Encoder.pretrained(place)
    with pytest.raises(ValueError, match=r"config.json: model_type: expected a text e"):
        ChainForTokenClassification.from_pretrained(place, id2label=LABELS)


HOSTILE = """
import os, socket, sys
import transformers
from smoothsp.hugging_face import ChainForTokenClassification
from smoothsp.models import load
from smoothsp.models.encoder import Encoder
def refused(*given, **options):
    raise AssertionError("a connection")
socket.socket = socket.create_connection = socket.getaddrinfo = refused
before = dict(os.environ)
for kind, folder in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        if kind == "tagger":
            load(folder, "cpu")
        elif kind == "chain":
            ChainForTokenClassification.from_pretrained(folder)
        elif kind == "over":
            ChainForTokenClassification.from_pretrained(folder, id2label=["O", "X"])
        else:
            Encoder.pretrained(folder)
        print("loaded", folder)
    except ValueError as error:
        print("refused", folder)
assert dict(os.environ) == before
assert len(sys.stdin.read().split()) == 1000, "something asked"
"""


def test_no_code_runs_though_the_first_line_of_the_users_text_says_y(
    tagger, chain, encoder, tmp_path
):
    mark, evil = tmp_path / "ran", "import transformers\nopen({!r}, 'w')\n"
    evil += "class Evil(transformers.PretrainedConfig): pass\n"
    tagger.save(tmp_path / "tagger")
    chain.save_pretrained(tmp_path / "chain")
    given = []
    for name, keys in (
        ("tagger", ("encoder", "model")),
        ("chain", ("encoder",)),
        ("over", ()),
        ("encoder", ()),
    ):
        place = tmp_path / name
        if not keys:
            write_encoder(place)
            edited(
                place / "tokenizer_config.json",
                auto_map={"AutoTokenizer": ["evil.Evil", "evil.Evil"]},
                tokenizer_class="EvilTokenizer",
            )
        edited(
            place / "config.json",
            *keys,
            auto_map={**CODE, "AutoTokenizer": ["evil.Evil", "evil.Evil"]},
            model_type="clap_audio_model" if keys else "evil",
            _name_or_path=str(place),
        )
        (place / "evil.py").write_text(evil.format(str(mark)))
        given += [name, str(place)]
    answers = tmp_path / "is_supported"
    answers.write_text("y\n" * 1000)
    started = ("sh", "-c", f'exec "$0" "$@" < {answers}', sys.executable)
    found = run(*started, "-c", HOSTILE, *given)
    assert found.stdout.split() == [x for p in given[1::2] for x in ("refused", p)]
    assert not mark.exists()


def test_every_model_type_is_written_and_read():
    for kind in encoder_config.MODEL_TYPES:
        if kind not in transformers.CONFIG_MAPPING:
            continue
        about = encoder_config.loadable_fields(transformers.CONFIG_MAPPING[kind]())
        again = encoder_config.configuration(json.loads(json.dumps(about)), "x")
        assert encoder_config.loadable_fields(again) == about


@pytest.mark.long
@pytest.mark.parametrize("kind", encoder_config.MODEL_TYPES)
def test_every_model_type_is_built_without_memory(kind):
    if kind not in transformers.CONFIG_MAPPING:
        pytest.skip("not of this transformers")
    config = transformers.CONFIG_MAPPING[kind]()
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config, trust_remote_code=False)
    assert all(x.is_meta for x in model.state_dict().values())
    assert config.hidden_size and config.vocab_size


def test_undeclared_fields_are_kept():
    config = transformers.DebertaV2Config(position_buckets=8, share_att_key=True)
    about = encoder_config.loadable_fields(config)
    assert (about["position_buckets"], about["share_att_key"]) == (8, True)
    again = encoder_config.configuration(about, "x")
    assert (again.position_buckets, again.share_att_key) == (8, True)


HEADERS = {
    "a header of a terabyte": (2**40).to_bytes(8, "little") + b"{}",
    "no header": b"",
    "half of one": (50).to_bytes(8, "little") + b'{"a": {"dtype": "F32"',
    "beyond the end": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]},
    "shorter than its shape": {"dtype": "F32", "shape": [9], "data_offsets": [0, 4]},
    "backwards": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
    "below zero": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
    "overflowing": {"dtype": "F32", "shape": [2**62] * 4, "data_offsets": [0, 4]},
    "of none": {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]},
    "of another kind": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]},
    "of few bits": {"dtype": "F4", "shape": [8], "data_offsets": [0, 4]},
    "complex": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]},
}


@pytest.mark.parametrize("lie", HEADERS)
def test_headers_that_lie_are_refused_in_one_sentence(lie, tagger, chain, tmp_path):
    header = HEADERS[lie]
    if isinstance(header, dict):
        text = json.dumps({"head.transitions": header}).encode()
        header = len(text).to_bytes(8, "little") + text
        header += bytes(max(0, min(header_end(HEADERS[lie]), 64)))
    tagger.save(tmp_path / "tagger")
    config, content = files.read(tmp_path / "tagger")
    files.write(tmp_path / "tagger", config, content | {"model.safetensors": header})
    with pytest.raises(ValueError, match=r"model.safetensors(: expected| has weights)"):
        load(tmp_path / "tagger", "cpu")
    chain.save_pretrained(tmp_path / "chain")
    (tmp_path / "chain/model.safetensors").write_bytes(header)
    with pytest.raises(ValueError, match=r"model.safetensors: expected "):
        ChainForTokenClassification.from_pretrained(tmp_path / "chain")


WRONG = {
    "NaN": (torch.full((5, 8), torch.nan), "expected numbers, got NaN or infinity in"),
    "infinity": (torch.full((5, 8), torch.inf), "expected numbers, got NaN or inf"),
    "integers": (torch.ones(5, 8, dtype=torch.int64), "expected torch.float32 for"),
    "complex": (torch.ones(5, 8, dtype=torch.complex64), "expected torch.float32 for"),
    "eight bits": (torch.ones(5, 8).to(torch.float8_e4m3fn), "expected torch.float32"),
}


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("wrong", WRONG)
def test_tensors_of_a_chain_are_finite_floats(wrong, chain, tmp_path):
    value, message = WRONG[wrong]
    chain.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    save_file(load_file(path) | {"classifier.weight": value}, path, {"format": "pt"})
    with pytest.raises(ValueError, match=f"^{path}: {message}.*classifier.weight"):
        ChainForTokenClassification.from_pretrained(tmp_path)


def test_tensors_of_a_chain_are_those_of_its_configuration(chain, tmp_path):
    chain.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    edited(tmp_path / "config.json", "encoder", num_hidden_layers=1)
    with pytest.raises(
        ValueError, match=f"^{path}: .* got encoder.encoder.layer.1.*too"
    ):
        ChainForTokenClassification.from_pretrained(tmp_path)
    for count in (0, -1, True, 1.5):
        edited(tmp_path / "config.json", "encoder", num_hidden_layers=count)
        with pytest.raises(ValueError, match="num_hidden_layers: expected 1 or more"):
            ChainForTokenClassification.from_pretrained(tmp_path)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize(
    "listed", [{}, [], 5, {"x": 5}, {"x": "../../x.safetensors"}, {"x": "none"}]
)
def test_an_index_names_files_of_its_folder(listed, chain, encoder, tmp_path):
    (tmp_path / "x.safetensors").write_bytes(
        (encoder / "model.safetensors").read_bytes()
    )
    chain.save_pretrained(tmp_path / "a/chain")
    write_encoder(tmp_path / "a/encoder")
    for name, given in (("chain", {}), ("encoder", {"id2label": LABELS})):
        place = tmp_path / "a" / name
        (place / "model.safetensors").unlink()
        index = place / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": listed}))
        with pytest.raises(ValueError, match=f"^{place}.*: expected .*, got"):
            ChainForTokenClassification.from_pretrained(place, **given)
    with pytest.raises(ValueError, match=f"{place}.*: expected .*, got"):
        Encoder.pretrained(place)


FIELDS = {
    "an act": ({"hidden_act": "os.system"}, "expected an encoder that"),
    "no layers": ({"num_hidden_layers": 0}, "num_hidden_layers: expected 1 or more"),
    "fewer": ({"vocab_size": -1}, "vocab_size: expected 1 or more, got -1"),
    "width": ({"hidden_size": 10**12}, "hidden_size: expected at most"),
    "a label": ({"num_labels": 10**9}, None),
    "a text": ({"num_labels": "x"}, None),
    "labels": ({"id2label": [[1]], "label2id": 3}, None),
    "names": ({"__class__": "x", "to_dict": 3, "sub_configs": {"a": 1}}, None),
}


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("fields", FIELDS)
def test_a_plain_encoder_takes_bounded_fields_only(fields, tmp_path):
    changes, message = FIELDS[fields]
    place = write_encoder(tmp_path)
    edited(place / "config.json", **changes)
    if message is None:
        found = ChainForTokenClassification.from_pretrained(place, id2label=LABELS)
        assert found.config.labels == LABELS
        Encoder.pretrained(place)
        return
    with pytest.raises(ValueError, match=f"^{place}/config.json: {message}"):
        ChainForTokenClassification.from_pretrained(place, id2label=LABELS)
    with pytest.raises(ValueError, match=f"^encoder: .*{message}"):
        Encoder.pretrained(place)


@pytest.mark.parametrize("lie", ["no header", "half of one", "a header of a terabyte"])
def test_files_of_a_plain_encoder_are_safetensors(lie, tmp_path):
    path = write_encoder(tmp_path) / "model.safetensors"
    path.write_bytes(HEADERS[lie])
    with pytest.raises(ValueError, match=f"^{path}: expected safetensors, got"):
        ChainForTokenClassification.from_pretrained(tmp_path, id2label=LABELS)
    path.rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"expected a file 'model.safetensors'"):
        ChainForTokenClassification.from_pretrained(tmp_path, id2label=LABELS)


def header_end(header):
    return header["data_offsets"][1]
