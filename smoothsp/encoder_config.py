"""Configurations of text encoders as files have them, checked before transformers."""

import json
import math
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

__all__ = [
    "DTYPES",
    "MAX_INTEGER",
    "MODEL_TYPES",
    "UNUSED",
    "configuration",
    "loadable_fields",
    "validate_fields",
]
__all__ += [
    "import_transformers",
    "require_allowed_fields",
    "require_text_encoder",
    "safe_options",
]

# Networks that need nothing but numbers: no files, no hub, no kernels, no code.
MODEL_TYPES = (
    "albert",
    "bert",
    "bert-generation",
    "camembert",
    "convbert",
    "data2vec-text",
    "deberta",
    "deberta-v2",
    "distilbert",
    "electra",
    "ernie",
    "eurobert",
    "ibert",
    "longformer",
    "megatron-bert",
    "mobilebert",
    "modernbert",
    "mpnet",
    "nystromformer",
    "rembert",
    "roberta",
    "roberta-prelayernorm",
    "roformer",
    "squeezebert",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
)
# what these networks read from a configuration that has no default for it
UNDECLARED = {
    "bert": {"position_embedding_type"},
    "deberta": {"talking_head"},
    "deberta-v2": {
        "attention_head_size",
        "conv_act",
        "conv_groups",
        "conv_kernel_size",
        "norm_rel_ebd",
        "position_buckets",
        "share_att_key",
    },
    "electra": {"position_embedding_type"},
    "roberta": {"position_embedding_type"},
    "xlm-roberta": {"position_embedding_type"},
}
# what configurations of any version of transformers say besides, and no network needs
UNUSED = frozenset(
    {
        "_attn_implementation_autoset",
        "_commit_hash",
        "_name_or_path",
        "architectures",
        "bad_words_ids",
        "begin_suppress_tokens",
        "classifier_dropout",
        "cls_dropout",
        "cross_attention_hidden_size",
        "decoder_start_token_id",
        "directionality",
        "diversity_penalty",
        "do_sample",
        "early_stopping",
        "encoder_no_repeat_ngram_size",
        "exponential_decay_length_penalty",
        "finetuning_task",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "gradient_checkpointing",
        "id2label",
        "label2id",
        "length_penalty",
        "max_length",
        "min_length",
        "model_type",
        "no_repeat_ngram_size",
        "num_beam_groups",
        "num_beams",
        "num_labels",
        "num_return_sequences",
        "output_past",
        "output_scores",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
        "prefix",
        "problem_type",
        "pruned_heads",
        "remove_invalid_values",
        "repetition_penalty",
        "return_dict",
        "return_dict_in_generate",
        "suppress_tokens",
        "task_specific_params",
        "temperature",
        "tf_legacy_loss",
        "tie_encoder_decoder",
        "tokenizer_class",
        "top_k",
        "top_p",
        "torchscript",
        "transformers_version",
        "typical_p",
        "use_bfloat16",
    }
)
# what loads code, files or other numbers than those of the network
REFUSED = frozenset(
    {
        "_attn_implementation",
        "_attn_implementation_internal",
        "attn_implementation",
        "backbone",
        "backbone_config",
        "experts_implementation",
        "per_layer_config",
        "quantization_config",
        "transformers_weights",
        "use_pretrained_backbone",
    }
)
DTYPES = ("float16", "bfloat16", "float32", "float64")
MAX_INTEGER, MOST_LAYERS, MOST_LISTED, LONGEST = 2**24, 1024, 1024, 100
# their product is the number of layers, for each of which modules are made
REPEATED = (
    "inner_group_num",
    "languages",
    "n_layers",
    "num_feedforward_networks",
    "num_hidden_groups",
    "num_hidden_layers",
)
SIZES = (
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "vocab_size",
)


def import_transformers(argument: str) -> Any:
    """The module transformers; ``argument`` needs it."""
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'{argument}: needs {error.name}: pip install "smoothsp[hugging-face]"',
            name=error.name,
        ) from error
    return transformers


def safe_options(name: object) -> dict[str, Any]:
    """Return the options of loaders: no code, and no connection for a folder."""
    return {"trust_remote_code": False, "local_files_only": Path(str(name)).is_dir()}


def configuration(about: object, location: str, strict: bool = True) -> Any:
    """Return the configuration of a text encoder that a file describes.

    Only fields of the encoder's own configuration are taken, with numbers within
    bounds. Nothing in the description can name code, files or a hub.

    Parameters
    ----------
    about
        JSON object with ``model_type`` and other fields.
    place
        File and field, for messages.
    strict
        If False, unknown fields are left out, as in the files of the hub, which hold
        many. They are an error otherwise.

    Raises
    ------
    ValueError
        If the model type is none of ``MODEL_TYPES``, a field is unknown, or its value
        is out of bounds. The message names place and field.
    """
    found = validate_fields(about, location, strict)
    kind = found.pop("model_type")
    try:
        return import_transformers("encoder").CONFIG_MAPPING[kind](**found)
    # configurations raise errors of any kind for wrong numbers
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{location}: expected a configuration of {kind}, got an invalid one"
            f" ({type(error).__name__}: {said})"
        ) from error


def validate_fields(
    about: object, location: str, strict: bool = True
) -> dict[str, Any]:
    """Return the fields that ``configuration`` takes, checked."""
    if not isinstance(about, Mapping):
        raise ValueError(
            f"{location}: expected a JSON object, got {type(about).__name__}"
        )
    kind: Any = about.get("model_type")
    require_text_encoder(kind, _field(location, "model_type"))
    taken = _taken(kind)
    require_allowed_fields(about, location, taken if strict else None, kind)
    found = {name: value for name, value in about.items() if name in taken}
    for name, value in found.items():
        _require_bounded(_field(location, name), value)
        counts = name in SIZES or (name in REPEATED and not isinstance(value, list))
        if counts and value is not None and (type(value) is not int or value < 1):
            raise ValueError(
                f"{_field(location, name)}: expected 1 or more, got {_short(value)}"
            )
    sizes = [found.get(name) for name in REPEATED]
    sizes = [len(x) if isinstance(x, list) else x for x in sizes]
    layers = math.prod(x for x in sizes if isinstance(x, int))
    if layers > MOST_LAYERS:
        raise ValueError(
            f"{location}: expected at most {MOST_LAYERS} layers, got {layers} by "
            f"{', '.join(name for name in REPEATED if name in found)}"
        )
    dtype = found.get("dtype")
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(
            f"{_field(location, 'dtype')}: expected one of {', '.join(DTYPES)}, got"
            f" {_short(dtype)}"
        )
    return {"model_type": kind, **found}


def require_text_encoder(kind: object, location: str) -> None:
    """Raise unless it is one of ``MODEL_TYPES`` that this transformers has."""
    known = [
        name
        for name in MODEL_TYPES
        if name in import_transformers("encoder").CONFIG_MAPPING
    ]
    if kind not in known:
        raise ValueError(
            f"{location}: expected a text encoder, got {_short(kind)}; known are"
            f" {', '.join(known)}"
        )


def require_allowed_fields(
    about: Mapping[str, Any], location: str, allowed: Set[str] | None, kind: str
) -> None:
    """Raise for fields that load code or files, and for others than the known ones."""
    for name, value in about.items():
        other = allowed is not None and name not in allowed and name not in UNUSED
        if (name in REFUSED or other) and value is not None:
            raise ValueError(
                f"{_field(location, name)}: expected fields of a {kind} only, got this"
                f" one with the value {_short(value)}; remove it if you trust the rest"
            )


def loadable_fields(config: Any) -> dict[str, Any]:
    """Return the fields of a configuration that ``configuration`` takes back."""
    taken = _taken(config.model_type)
    written = json.loads(config.to_json_string(use_diff=False))
    found = {name: x for name, x in written.items() if name in taken}
    return {"model_type": config.model_type, **found}


def _taken(kind: str) -> set[str]:
    own = import_transformers("encoder").CONFIG_MAPPING[kind]().to_dict()
    more = UNDECLARED.get(kind, set()) | {"dtype", "output_attentions"}
    return (set(own) | more) - UNUSED - REFUSED


def _require_bounded(place: str, value: Any, depth: int = 0) -> None:
    """Raise unless a value is made of few numbers, none of them large."""
    if isinstance(value, str):
        good, expected = len(value) <= LONGEST, f"at most {LONGEST} characters"
    elif value is None or isinstance(value, bool):
        return
    elif isinstance(value, int):
        good, expected = abs(value) <= MAX_INTEGER, f"at most {MAX_INTEGER}"
    elif isinstance(value, float):
        good, expected = math.isfinite(value), "a finite number"
    elif isinstance(value, list | dict) and depth < 3:
        good, expected = len(value) <= MOST_LISTED, f"at most {MOST_LISTED} entries"
        if good:
            for part in value.values() if isinstance(value, dict) else value:
                _require_bounded(place, part, depth + 1)
    else:
        good, expected = False, "numbers, strings, and lists of them"
    if not good:
        raise ValueError(f"{place}: expected {expected}, got {_short(value)}")


def _field(place: str, name: str) -> str:
    """Name of a field in a file, or in another field."""
    return f"{place}{': ' if place.endswith('.json') else '.'}{_short(name)}"


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
