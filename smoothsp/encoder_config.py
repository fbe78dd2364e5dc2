"""Validation of encoder configurations from files, before transformers reads them."""

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

# Networks that are defined by their numbers alone: no files, hub, kernels or code.
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
# fields that these networks read, but their configuration classes do not declare
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
# fields that some version of transformers writes and no network reads
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
# fields that load code, files, or weights of another network
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
# bounds of a field's value: an edited file could otherwise request any memory
MAX_INTEGER, MAX_LAYERS, MAX_ENTRIES, MAX_CHARACTERS = 2**24, 1024, 1024, 100
# the product of these fields is the number of layers that are built
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
    """Return the module transformers; errors name the ``argument`` that needs it."""
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


def configuration(description: object, location: str, strict: bool = True) -> Any:
    """Return the configuration of a text encoder that a file describes.

    Only fields of the encoder's configuration class are used, with values within
    bounds. Fields that name code, files or a hub raise an error.

    Parameters
    ----------
    about
        JSON object with ``model_type`` and other fields.
    place
        File and field, for messages.
    strict
        If False, unknown fields are ignored, as files on the hub have many of them.
        Otherwise they raise an error.

    Raises
    ------
    ValueError
        If the model type is none of ``MODEL_TYPES``, a field is unknown, or its value
        is out of bounds. The message names place and field.
    """
    fields = validate_fields(description, location, strict)
    kind = fields.pop("model_type")
    try:
        return import_transformers("encoder").CONFIG_MAPPING[kind](**fields)
    # configuration classes raise exceptions of any type for invalid values
    except Exception as error:
        message = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{location}: expected a configuration of {kind}, got an invalid one"
            f" ({type(error).__name__}: {message})"
        ) from error


def validate_fields(
    description: object, location: str, strict: bool = True
) -> dict[str, Any]:
    """Return ``model_type`` and the allowed fields of a description, validated."""
    if not isinstance(description, Mapping):
        raise ValueError(
            f"{location}: expected a JSON object, got {type(description).__name__}"
        )
    kind: Any = description.get("model_type")
    require_text_encoder(kind, _field_location(location, "model_type"))
    allowed = _allowed_fields(kind)
    require_allowed_fields(description, location, allowed if strict else None, kind)
    fields = {name: value for name, value in description.items() if name in allowed}
    for name, value in fields.items():
        _require_bounded(_field_location(location, name), value)
        counts = name in SIZES or (name in REPEATED and not isinstance(value, list))
        if counts and value is not None and (type(value) is not int or value < 1):
            raise ValueError(
                f"{_field_location(location, name)}: expected 1 or more, got"
                f" {_shorten(value)}"
            )
    sizes = [fields.get(name) for name in REPEATED]
    sizes = [len(x) if isinstance(x, list) else x for x in sizes]
    layers = math.prod(x for x in sizes if isinstance(x, int))
    if layers > MAX_LAYERS:
        raise ValueError(
            f"{location}: expected at most {MAX_LAYERS} layers, got {layers} by "
            f"{', '.join(name for name in REPEATED if name in fields)}"
        )
    dtype = fields.get("dtype")
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(
            f"{_field_location(location, 'dtype')}: expected one of"
            f" {', '.join(DTYPES)}, got {_shorten(dtype)}"
        )
    return {"model_type": kind, **fields}


def require_text_encoder(kind: object, location: str) -> None:
    """Raise unless ``kind`` is in ``MODEL_TYPES`` and known to transformers."""
    available = [
        name
        for name in MODEL_TYPES
        if name in import_transformers("encoder").CONFIG_MAPPING
    ]
    if kind not in available:
        raise ValueError(
            f"{location}: expected a text encoder, got {_shorten(kind)}; known are"
            f" {', '.join(available)}"
        )


def require_allowed_fields(
    description: Mapping[str, Any], location: str, allowed: Set[str] | None, kind: str
) -> None:
    """Raise for fields that load code or files, and for fields not in ``allowed``."""
    for name, value in description.items():
        other = allowed is not None and name not in allowed and name not in UNUSED
        if (name in REFUSED or other) and value is not None:
            raise ValueError(
                f"{_field_location(location, name)}: expected fields of a {kind} only,"
                " got this"
                f" one with the value {_shorten(value)}; remove it if you trust the"
                " other fields"
            )


def loadable_fields(config: Any) -> dict[str, Any]:
    """Return the fields of ``config`` from which ``configuration`` rebuilds it."""
    allowed = _allowed_fields(config.model_type)
    written = json.loads(config.to_json_string(use_diff=False))
    fields = {name: x for name, x in written.items() if name in allowed}
    return {"model_type": config.model_type, **fields}


def _allowed_fields(kind: str) -> set[str]:
    """Return the names of the fields that a network of this model type reads."""
    declared = import_transformers("encoder").CONFIG_MAPPING[kind]().to_dict()
    undeclared = UNDECLARED.get(kind, set()) | {"dtype", "output_attentions"}
    return (set(declared) | undeclared) - UNUSED - REFUSED


def _require_bounded(location: str, value: Any, depth: int = 0) -> None:
    """Raise unless numbers, strings and containers in ``value`` are within bounds."""
    if isinstance(value, str):
        is_valid, expected = (
            len(value) <= MAX_CHARACTERS,
            f"at most {MAX_CHARACTERS} characters",
        )
    elif value is None or isinstance(value, bool):
        return
    elif isinstance(value, int):
        is_valid, expected = abs(value) <= MAX_INTEGER, f"at most {MAX_INTEGER}"
    elif isinstance(value, float):
        is_valid, expected = math.isfinite(value), "a finite number"
    elif isinstance(value, list | dict) and depth < 3:
        is_valid, expected = len(value) <= MAX_ENTRIES, f"at most {MAX_ENTRIES} entries"
        if is_valid:
            for part in value.values() if isinstance(value, dict) else value:
                _require_bounded(location, part, depth + 1)
    else:
        is_valid, expected = False, "numbers, strings, and lists of them"
    if not is_valid:
        raise ValueError(f"{location}: expected {expected}, got {_shorten(value)}")


def _field_location(location: str, name: str) -> str:
    """Return the name of a field of a file, or of a field of another field."""
    return f"{location}{': ' if location.endswith('.json') else '.'}{_shorten(name)}"


def _shorten(value: object) -> str:
    """Return the text of a value for a message, at most MAX_CHARACTERS long."""
    # unpaired surrogates cannot be printed
    text = value if isinstance(value, str) else repr(value)
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."
