"""A linear-chain head for transformers. Requires the extra ``hugging-face``."""

import inspect
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor, nn

try:
    import transformers
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'smoothsp.hugging_face: needs {error.name}: pip install "smoothsp[hugging-face'
        ']"',
        name=error.name,
    ) from error

from transformers.modeling_outputs import TokenClassifierOutput

from smoothsp import constraints, encoder_config, losses, schemes, weight_files
from smoothsp.json_files import read_json
from smoothsp.layers import LinearChain, LossName

__all__ = ["ChainConfig", "ChainForTokenClassification", "ChainOutput", "encode_words"]

IGNORED = -100
# longest text of a value in a message, in characters
MAX_SHOWN = 60
# roles of sub-words in the buffer ``roles``
SPECIAL, INSIDE, FIRST = range(3)
# markers of a preceding blank in SentencePiece and byte-level BPE vocabularies
BLANK_MARKERS = ("▁", "Ġ")
# options that are passed to the loaders of configuration, weights and tokenizer
HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "revision", "token")
# options that are stored in the configuration of the encoder
ENCODER_OPTIONS = ("attn_implementation", "output_attentions", "output_hidden_states")
LABEL_OPTIONS = ("id2label", "label2id", "num_labels")


class ChainConfig(transformers.PretrainedConfig):  # type: ignore[misc]
    """Configuration of a ``ChainForTokenClassification``.

    Parameters
    ----------
    encoder
        Configuration of the encoder, or its ``to_dict()``.
    structured_loss
        Training loss, a name of ``LinearChain.loss``: ``"crf"``, ``"hinge-l2"`` (the
        smoothed structural hinge), ``"hinge"``, ``"hinge-entropy"``, ``"perceptron"``.
    constrained
        If True, labels such as ``B-PER`` obey the rules of their scheme in training and
        decoding. Labels without prefixes have no rules.
    classifier_dropout
        Dropout probability of the encoder's output.
    **others
        Arguments of ``PretrainedConfig``, such as ``id2label``, ``label2id`` or
        ``num_labels``.

    Raises
    ------
    ValueError
        For an unknown loss, for an encoder other than
        ``smoothsp.encoder_config.MODEL_TYPES``, for labels that contradict each
        other, and if ``id2label`` has labels of several schemes, or nearly of one.

    Examples
    --------
    >>> from transformers import BertConfig
    >>> from smoothsp.hugging_face import ChainConfig
    >>> labels = {0: "O", 1: "B-PER", 2: "I-PER"}
    >>> ChainConfig(BertConfig(), id2label=labels).labels
    ['O', 'B-PER', 'I-PER']
    """

    model_type = "smoothsp-chain"
    has_no_defaults_at_init = True
    # a Trainer collects all other outputs as predictions
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["emissions", "words"]

    def __init__(
        self,
        encoder: Any = None,
        structured_loss: LossName = "crf",
        constrained: bool = True,
        classifier_dropout: float = 0.1,
        **others: Any,
    ) -> None:
        loss_names = get_args(LossName)
        if structured_loss not in loss_names:
            raise ValueError(
                f"structured_loss: expected one of {', '.join(loss_names)}, got "
                f"{_shorten(structured_loss)}"
            )
        if not isinstance(constrained, bool):
            raise ValueError(
                f"constrained: expected True or False, got {_shorten(constrained)}"
            )
        if isinstance(encoder, dict):
            encoder = encoder_config.configuration(encoder, "encoder")
        elif encoder is not None:
            kind = getattr(encoder, "model_type", encoder)
            encoder_config.require_text_encoder(kind, "encoder")
        self.encoder = encoder
        self.structured_loss = structured_loss
        self.constrained = constrained
        self.classifier_dropout = classifier_dropout
        label_options = {
            name: others.pop(name) for name in LABEL_OPTIONS if name in others
        }
        super().__init__(**others, **_consistent_label_options(**label_options))

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **options: Any) -> Any:
        """Create a configuration from the fields of a file; unknown ones raise."""
        _require_allowed_fields(config_dict, "config.json")
        names = {"id2label", "label2id"}
        labels = {key: options.pop(key) for key in names & options.keys()}
        if any(value is not None for value in labels.values()):
            other_fields = {
                x: value for x, value in config_dict.items() if x not in LABEL_OPTIONS
            }
            config_dict = other_fields | labels
        return super().from_dict(config_dict, **options)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values, for the encoder those that load again."""
        fields: dict[str, Any] = super().to_dict()
        if self.encoder is not None:
            fields["encoder"] = encoder_config.loadable_fields(self.encoder)
        # the labels may have been renamed since label2id was set
        fields["label2id"] = {label: n for n, label in self.id2label.items()}
        return fields

    @property
    def labels(self) -> list[str]:
        """Labels in the order of their numbers."""
        return [self.id2label[number] for number in range(self.num_labels)]


@dataclass
class ChainOutput(TokenClassifierOutput):  # type: ignore[misc]
    """Output of a ``ChainForTokenClassification``.

    ``model.chain.marginals(output.emissions, output.words)`` are the probabilities of
    labels, and ``model.chain.structure(output.emissions, output.words)`` is the chain.

    Examples
    --------
    >>> import torch
    >>> words = torch.ones(1, 2, dtype=torch.bool)
    >>> output = ChainOutput(emissions=torch.zeros(1, 2, 3), words=words)
    >>> LinearChain(3).marginals(output.emissions, output.words).shape
    torch.Size([1, 2, 3])
    """

    loss: Tensor | None = None
    """Mean over words, if there are labels."""
    logits: Tensor | None = None
    """``(batch, time, label)`` max-marginals, in evaluation or without labels."""
    hidden_states: tuple[Tensor, ...] | None = None
    """Of each layer of the encoder, if requested."""
    attentions: tuple[Tensor, ...] | None = None
    """Of each layer of the encoder, if requested."""
    emissions: Tensor | None = None
    """``(batch, time, label)`` scores of labels."""
    words: Tensor | None = None
    """``(batch, time)`` bool: the first sub-word of each word."""


class ChainForTokenClassification(transformers.PreTrainedModel):  # type: ignore[misc]
    r"""An encoder, a linear layer, and a linear-chain head over the words.

    The chain has one position per word, at its first sub-word. The linear layer
    computes the emissions; the transitions are parameters.

    Parameters
    ----------
    config
        Configuration of the encoder and the head.
    encoder
        The encoder; if absent, it is created with random weights.

    Notes
    -----
    ``logits`` are max-marginals,

    .. math:: \ell_t(s) = \max_{y : y_t = s} s(y)

    so ``logits.argmax(-1)`` is the best label sequence unless two are equally good.
    Code for independent labels therefore decodes correctly without changes. The softmax
    of max-marginals, which a pipeline reports as score, is not a marginal probability.
    A sub-word within a word has the logits of the word, with I- in place of B-; special
    tokens and padding have zeros.

    ``from_pretrained`` with a plain encoder reads from the tokenizer's vocabulary which
    sub-words begin a word. It stores them in the buffer ``roles``.

    Loading never runs code from a folder or repository, and unpickles tensors only. A
    saved chain with fields that name code raises an error; in the configuration of an
    encoder, where they are common on the hub, such fields are ignored.

    Examples
    --------
    >>> import torch
    >>> from transformers import BertConfig
    >>> from smoothsp.hugging_face import ChainConfig, ChainForTokenClassification
    >>> encoder = BertConfig(
    ...     vocab_size=16,
    ...     hidden_size=8,
    ...     num_hidden_layers=1,
    ...     num_attention_heads=2,
    ...     intermediate_size=8,
    ... )
    >>> config = ChainConfig(encoder, id2label={0: "O", 1: "B-PER", 2: "I-PER"})
    >>> model = ChainForTokenClassification(config).eval()
    >>> starts = torch.ones(1, 5, dtype=torch.long)
    >>> model(torch.zeros(1, 5, dtype=torch.long), word_starts=starts).logits.shape
    torch.Size([1, 5, 3])
    """

    roles: Tensor

    config_class = ChainConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    # the loss is a mean over words; the Trainer rescales means for accumulated
    # gradients
    accepts_loss_kwargs = False

    def __init__(self, config: ChainConfig, encoder: nn.Module | None = None) -> None:
        if not isinstance(config, ChainConfig):
            raise TypeError(
                f"config: expected a ChainConfig, got {type(config).__name__}. For an"
                " encoder with random weights pass ChainConfig(config, id2label=...);"
                " for a pretrained one call from_pretrained"
            )
        super().__init__(config)
        encoder_settings = config.encoder
        if encoder is None:
            # from_pretrained sets the default dtype to that of the model
            encoder = transformers.AutoModel.from_config(
                encoder_settings,
                dtype=torch.get_default_dtype(),
                **_pooler_options(encoder_settings),
            )
        self.encoder = encoder
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(encoder_settings.hidden_size, config.num_labels)
        self.chain = LinearChain(config.num_labels, _build_constraints(config))
        roles = torch.full((encoder_settings.vocab_size,), FIRST, dtype=torch.int8)
        self.register_buffer("roles", roles)
        self.post_init()

    @classmethod
    def from_pretrained(
        cls,
        name: str | os.PathLike[str],
        *args: Any,
        tokenizer: Any = None,
        **options: Any,
    ) -> Any:
        """Load a saved model, or add a new chain to a pretrained encoder.

        Parameters
        ----------
        name
            Folder, or name on the hub: of a saved model of this class, or of a text
            encoder that ``AutoModel`` loads. A folder opens no connection.
        tokenizer
            Tokenizer of the encoder; if absent, the tokenizer called ``name``.
        **options
            Arguments of ``ChainConfig``: ``id2label``, ``label2id`` or ``num_labels``
            for an encoder; for a saved model they rename its labels. Others are passed
            to ``PreTrainedModel.from_pretrained``.

        Raises
        ------
        ValueError
            If the options allow remote code, if there is no ``id2label``, if the
            tokenizer does not mark which sub-words begin a word, or if ``config.json``
            describes anything but a text encoder of
            ``smoothsp.encoder_config.MODEL_TYPES`` and a chain.
        """
        _reject_remote_code(options)
        safe = encoder_config.safe_options(name)
        hub_options = {key: options[key] for key in HUB_OPTIONS if key in options} | {
            key: value for key, value in safe.items() if value or key not in options
        }
        options |= hub_options
        config = options.pop("config", None)
        if config is None:
            config = _load_config(name, hub_options, options)
        encoder_settings = getattr(config, "encoder", config)
        for key in ENCODER_OPTIONS:
            if key in options:
                attribute = f"_{key}" if key == "attn_implementation" else key
                setattr(encoder_settings, attribute, options.pop(key))
        if not isinstance(config, ChainConfig):
            return cls._from_encoder(name, tokenizer, config, hub_options, options)
        if Path(name).is_dir():
            _require_tokenizer_without_code(Path(name))
            _require_matching_weights(Path(name), config)
        del options["trust_remote_code"]
        loaded = super().from_pretrained(
            name, *args, config=config, use_safetensors=True, **options
        )
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        # non-persistent buffers are not saved: transformers leaves them uninitialised
        rules = LinearChain(model.config.num_labels, _build_constraints(model.config))
        for key in ("allowed_start", "allowed_transitions", "allowed_end"):
            value = getattr(rules, key)
            device = model.chain.transitions.device
            setattr(model.chain, key, None if value is None else value.to(device))
        return loaded

    @classmethod
    def _from_encoder(
        cls,
        name: Any,
        tokenizer: Any,
        encoder_settings: Any,
        hub_options: dict[str, Any],
        options: dict[str, Any],
    ) -> Any:
        """Create a model with new chain parameters on a pretrained encoder."""
        names = (
            *LABEL_OPTIONS,
            "return_dict",
            *inspect.signature(ChainConfig).parameters,
        )
        chain_options = {key: options.pop(key) for key in names if key in options}
        if not any(chain_options.get(key) for key in LABEL_OPTIONS):
            raise ValueError(
                f"id2label: expected the labels of the chain over {name}, as in"
                ' {0: "O", 1: "B-PER", 2: "I-PER"}, got none'
            )
        # validate the labels before the weights are downloaded
        config = ChainConfig(encoder_settings, **chain_options)
        _build_constraints(config)
        if Path(name).is_dir():
            options["use_safetensors"] = True
            _require_loadable_encoder(Path(name), encoder_settings)
        encoder = transformers.AutoModel.from_pretrained(
            name,
            config=encoder_settings,
            **_pooler_options(encoder_settings),
            **options,
        )
        if tokenizer is None:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                name, config=encoder_settings, **hub_options
            )
        config.encoder = encoder.config
        model = cls(config, encoder)
        model.roles.copy_(_subword_roles(tokenizer, len(model.roles)))
        return model.to(encoder.device, encoder.dtype)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        word_starts: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> ChainOutput | tuple[Any, ...]:
        """Return the loss, and in evaluation mode the logits.

        Parameters
        ----------
        input_ids, attention_mask, token_type_ids, position_ids
            ``(batch, time)``, as returned by a tokenizer.
        labels
            ``(batch, time)``: the label of each word at its first sub-word, -100
            elsewhere, as returned by ``encode_words``. A word with -100 is in the chain
            if ``word_starts`` has it, and any label is right there.
        word_starts
            ``(batch, time)`` of 0 and 1: 1 at the first sub-word of each word. If
            absent, the positions with labels; without labels, the positions given by
            the vocabulary.
        inputs_embeds
            ``(batch, time, size)`` in place of ``input_ids``. Needs ``word_starts`` or
            labels; special tokens then count as sub-words of the text.
        output_attentions, output_hidden_states, return_dict
            As in ``AutoModelForTokenClassification``.

        Returns
        -------
        ChainOutput
            Or a tuple of its values if ``return_dict`` is False.
        """
        inputs: dict[str, Any] = {
            "input_ids": input_ids,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
        }
        output_flags = {
            "output_attentions": output_attentions,
            "output_hidden_states": output_hidden_states,
        }
        for key, value in output_flags.items():
            # None leaves the choice to the configuration of the encoder
            inputs[key] = (
                (getattr(self.config, key) or None) if value is None else value
            )
        tokens = input_ids if input_ids is not None else inputs_embeds
        if tokens is None:
            raise ValueError("input_ids: expected them or inputs_embeds, got neither")
        if input_ids is None and labels is None and word_starts is None:
            raise ValueError(
                "word_starts: expected beside inputs_embeds, which do not show where"
                " words begin, got none"
            )
        if attention_mask is None:
            attention_mask = torch.ones(
                tokens.shape[:2], dtype=torch.long, device=tokens.device
            )
        encoder_inputs = {
            key: value for key, value in inputs.items() if value is not None
        }
        encoded = self.encoder(
            attention_mask=attention_mask, return_dict=True, **encoder_inputs
        )
        emissions = self.classifier(self.dropout(encoded.last_hidden_state))
        is_real = attention_mask.bool()
        if input_ids is not None:
            is_real = is_real & (self.roles[input_ids] != SPECIAL)
        if word_starts is not None:
            is_word_start = word_starts.bool()
        elif labels is not None:
            is_word_start = labels != IGNORED
        else:
            is_word_start = is_real & (self.roles[input_ids] == FIRST)
            # the first real sub-word has no blank before it, and a window of a long
            # text may begin within a word
            is_word_start |= is_real & (is_real.cumsum(1) == 1)
        loss = logits = None
        if labels is not None:
            loss = self._mean_word_loss(emissions, labels, is_word_start)
        if labels is None or not self.training:
            logits = self._subword_logits(emissions, is_word_start, is_real)
        output = ChainOutput(
            loss=loss,
            logits=logits,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
            emissions=emissions,
            words=is_word_start,
        )
        as_output = self.config.return_dict if return_dict is None else return_dict
        return output if as_output else output.to_tuple()

    def _mean_word_loss(
        self, emissions: Tensor, labels: Tensor, is_word_start: Tensor
    ) -> Tensor:
        """Return the mean loss over labelled words; other words are marginalised."""
        name = self.config.structured_loss
        unknown = is_word_start & (labels == IGNORED)
        if not bool(unknown.any()):
            return self.chain.loss(
                emissions, labels, is_word_start, name, reduction="token_mean"
            )
        numbers = torch.arange(emissions.shape[2], device=labels.device)
        allowed = (labels[..., None] == numbers) | unknown[..., None]
        wrong = is_word_start & ~allowed.any(2)
        if bool(wrong.any()):
            raise ValueError(
                f"labels: expected 0 to {len(numbers) - 1}, or {IGNORED}, got"
                f" {int(labels[wrong][0])}"
            )
        total: Tensor = _partial_label_loss(name)(
            self.chain.structure(emissions, is_word_start), allowed
        )
        return total / (is_word_start & ~unknown).sum().clamp_min(1)

    @torch.no_grad()
    def _subword_logits(
        self, emissions: Tensor, is_word_start: Tensor, is_real: Tensor
    ) -> Tensor:
        """Return logits ``(batch, time, label)``: max-marginals of the words.

        A sub-word inside a word has those of its word, B- counted as I-. Special tokens
        and padding have zeros.
        """
        best = self.chain.structure(emissions, is_word_start).max_marginals()
        positions = torch.arange(
            is_word_start.shape[1], device=is_word_start.device
        ).expand_as(is_word_start)
        # position of the first sub-word of the current word, -1 before the first word
        word_start = positions.masked_fill(~is_word_start, -1).cummax(1).values
        word_scores = best.take_along_dim(word_start.clamp_min(0)[..., None], 1)
        continuations = torch.tensor(
            _continuation_labels(self.config.labels), device=is_word_start.device
        )
        # B-X and I-X of the word both become I-X: take the larger max-marginal
        inside_scores = torch.full_like(word_scores, -torch.inf).scatter_reduce(
            2, continuations.expand_as(word_scores), word_scores, "amax"
        )
        logits = torch.where(is_word_start[..., None], best, inside_scores)
        return logits.masked_fill(
            ~(is_word_start | is_real & (word_start >= 0))[..., None], 0
        )


def encode_words(
    tokenizer: Any,
    sentences: Sequence[Sequence[str]],
    labels: Sequence[Sequence[int]] | None = None,
    **options: Any,
) -> Any:
    """Encode sentences that are lists of words, with their labels.

    Parameters
    ----------
    tokenizer
        A fast tokenizer. Load tokenizers of RoBERTa's kind with
        ``add_prefix_space=True``.
    sentences
        Words of each sentence.
    labels
        Number of the label of each word.
    **options
        For the tokenizer, such as ``max_length``; ``padding`` and ``truncation`` are
        True if absent.

    Returns
    -------
    BatchEncoding
        The result of the tokenizer, ``(batch, sub-word)`` tensors, with
        ``word_starts``, 1 at first sub-words, and, if given, ``labels``, which are -100
        except at first sub-words. Words that are truncated or tokenized
        to nothing have no position.

    Raises
    ------
    ValueError
        If a sentence has more or fewer labels than words.

    Examples
    --------
    >>> encode_words(tokenizer, [["Ada", "met", "Bob"]], [[1, 0, 1]])  # doctest: +SKIP
    """
    for row, words in enumerate(sentences):
        if labels is not None and len(labels[row]) != len(words):
            raise ValueError(
                f"labels: expected one for each of the {len(words)} words of sentence "
                f"{row}, got {len(labels[row])}"
            )
    options = {"padding": True, "truncation": True} | options
    batch = tokenizer(
        [list(words) for words in sentences],
        is_split_into_words=True,
        return_tensors="pt",
        **options,
    )
    batch["word_starts"] = torch.zeros_like(batch["input_ids"])
    if labels is not None:
        batch["labels"] = torch.full_like(batch["input_ids"], IGNORED)
    for row in range(len(sentences)):
        before = None
        for position, word in enumerate(batch.word_ids(row)):
            if word is not None and word != before:
                batch["word_starts"][row, position] = 1
                if labels is not None:
                    batch["labels"][row, position] = labels[row][word]
            before = word
    return batch


def _load_config(
    name: Any, hub_options: dict[str, Any], options: dict[str, Any]
) -> Any:
    """Return the configuration in a folder or on the hub: of a chain or an encoder.

    Removes the options that belong to the configuration from ``options``.
    """
    path = Path(name, "config.json")
    if path.is_file():
        fields = read_json(path)
    else:
        fields, _ = transformers.PretrainedConfig.get_config_dict(name, **hub_options)
    if fields.get("model_type") != ChainConfig.model_type:
        return encoder_config.configuration(fields, str(path), strict=False)
    _require_allowed_fields(fields, str(path))
    try:
        config = ChainConfig.from_dict(fields)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    labels = {key: options.pop(key) for key in LABEL_OPTIONS if key in options}
    if any(value is not None for value in labels.values()):
        labels = _consistent_label_options(**labels)
        count = labels.get("num_labels", len(labels.get("id2label", ())))
        if count != config.num_labels:
            raise ValueError(
                f"id2label: expected the {config.num_labels} labels of {name}, got"
                f" {count}. For other labels, start from the encoder"
            )
        for key in ("id2label", "label2id"):
            if key in labels:
                setattr(config, key, labels[key])
    for key in ("return_dict", *inspect.signature(ChainConfig).parameters):
        if key in options:
            setattr(config, key, options.pop(key))
    return config


def _require_allowed_fields(fields: Mapping[str, Any], location: str) -> None:
    """Raise for fields of a ``config.json`` that ``ChainConfig`` does not have."""
    parameters = set(inspect.signature(ChainConfig).parameters) - {"others"}
    allowed = parameters | set(transformers.PretrainedConfig().to_dict())
    # a Trainer adds ids of special tokens and use_cache
    allowed |= {f"{x}_token_id" for x in ("bos", "eos", "pad", "sep")} | {"use_cache"}
    encoder_config.require_allowed_fields(
        fields, location, allowed, ChainConfig.model_type
    )
    dtype = fields.get("dtype")
    if dtype is not None and dtype not in encoder_config.DTYPES:
        raise ValueError(
            f"{location}: dtype: expected one of {', '.join(encoder_config.DTYPES)},"
            f" got {_shorten(dtype)}"
        )


def _require_tokenizer_without_code(folder: Path) -> None:
    """Raise if the tokenizer saved with a chain names code to run."""
    path = folder / "tokenizer_config.json"
    settings = read_json(path) if path.is_file() else {}
    for key in ("auto_map", "custom_pipelines", "trust_remote_code"):
        if settings.get(key):
            raise ValueError(
                f"{path}: {key}: expected a tokenizer without code, got"
                f" {_shorten(settings[key])}; remove it if you trust the other fields"
            )


def _require_loadable_encoder(folder: Path, encoder_settings: Any) -> None:
    """Raise unless transformers can build the encoder from safetensors files."""
    weight_files.build_on_meta(
        lambda: transformers.AutoModel.from_config(encoder_settings),
        str(folder / "config.json"),
    )
    weight_files.list_weight_files(folder)


def _require_matching_weights(folder: Path, config: ChainConfig) -> None:
    """Raise unless the files have the weights of this configuration.

    Shapes are compared before memory is allocated.
    """
    head_shapes = {"chain.start_transitions": (config.num_labels,)}
    weight_files.require_shapes(folder, head_shapes)
    location = f"{folder / 'config.json'}: encoder"
    meta_model = weight_files.build_on_meta(
        lambda: ChainForTokenClassification(config), location
    )
    weight_files.require_weights(folder, meta_model.state_dict())


def _consistent_label_options(
    id2label: Any = None, label2id: Any = None, num_labels: int | None = None
) -> dict[str, Any]:
    """Return consistent ``id2label`` and ``label2id``, or ``num_labels`` alone.

    Raises ValueError if the options contradict each other.
    """
    if id2label is None and label2id is None:
        return {} if num_labels is None else {"num_labels": num_labels}
    try:
        if id2label is None:
            numbers = {int(n): label for label, n in label2id.items()}
        else:
            listed = isinstance(id2label, list | tuple)
            pairs = enumerate(id2label) if listed else id2label.items()
            numbers = {int(n): label for n, label in pairs}
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"id2label: expected labels by number, got {_shorten(id2label or label2id)}"
        ) from error
    names = [numbers.get(n) for n in range(len(numbers))]
    if not all(isinstance(label, str) for label in names) or not names:
        raise ValueError(
            f"id2label: expected strings for 0 to {max(len(names) - 1, 0)}, got"
            f" {_shorten(numbers)}"
        )
    by_label = {label: n for n, label in enumerate(names)}
    if len(by_label) < len(names):
        twice = next(label for n, label in enumerate(names) if by_label[label] != n)
        raise ValueError(
            f"id2label: expected each label once, got {_shorten(twice)} twice"
        )
    if label2id is not None and dict(label2id) != by_label:
        raise ValueError(
            f"label2id: expected {_shorten(by_label)}, the inverse of id2label, got"
            f" {_shorten(label2id)}"
        )
    if num_labels is not None and num_labels != len(names):
        raise ValueError(
            f"num_labels: expected {len(names)} as in id2label, got"
            f" {_shorten(num_labels)}"
        )
    return {"id2label": dict(enumerate(names)), "label2id": by_label}


def _shorten(value: object) -> str:
    """Return the repr of a value for a message, at most MAX_SHOWN characters."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _partial_label_loss(name: LossName) -> nn.Module:
    """Return the summed loss for words with sets of allowed labels."""
    if name == "crf":
        return losses.MarginalLikelihood(reduction="sum")
    if name == "perceptron":
        return losses.LatentHinge(cost=None, reduction="sum")
    smoothing = {"hinge-l2": losses.L2(1.0, 5), "hinge-entropy": losses.Entropy(1.0)}
    chosen: Any = smoothing.get(name)
    return losses.LatentHinge(chosen, reduction="sum")


def _normalise_labels(labels: list[str]) -> list[str]:
    """Return span labels in the notation B-PER, I-PER; other labels unchanged."""
    notation = schemes.notation_of(labels)
    normalised = [notation.normalise(label) for label in labels]
    spans = not notation.only_types and any(
        x.startswith(("B-", "I-")) for x in normalised
    )
    return normalised if spans else labels


def _build_constraints(config: ChainConfig) -> constraints.Constraints | None:
    """Return the constraints of the tagging scheme of the labels, or None."""
    labels = _normalise_labels(config.labels)
    spans = any(label.startswith(("B-", "I-")) for label in labels)
    if not config.constrained or not spans or schemes.detect([labels]) == schemes.PLAIN:
        return None
    try:
        return constraints.bio(labels)
    except ValueError as error:
        reason = str(error).removeprefix("labels: ").partition(";")[0][:200]
        raise ValueError(
            f"id2label: {reason}. Remove the label, or pass constrained=False to allow "
            "every order of labels"
        ) from None


def _continuation_labels(labels: list[str]) -> list[int]:
    """Return the number of the label inside a word for each label: I-PER for B-PER."""
    labels = _normalise_labels(labels)
    numbers = {label: number for number, label in enumerate(labels)}
    return [
        numbers.get(f"I{label[1:]}", number) if label[:1] == "B" else number
        for number, label in enumerate(labels)
    ]


def _subword_roles(tokenizer: Any, vocab_size: int) -> Tensor:
    """Return the role ``(vocab_size,)`` of each sub-word: SPECIAL, INSIDE or FIRST."""
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"tokenizer: expected a fast one, got {type(tokenizer).__name__}"
        )
    if len(tokenizer) > vocab_size:
        raise ValueError(
            f"tokenizer: expected at most the {vocab_size} sub-words of the encoder,"
            " got "
            f"{len(tokenizer)}. Resize the embeddings of the encoder and save it first"
        )
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    subwords = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    if model["type"] == "WordPiece":
        prefix = model["continuing_subword_prefix"]
        begins_word = [not subword.startswith(prefix) for subword in subwords]
    elif any(subword.startswith(BLANK_MARKERS) for subword in subwords):
        # corpora separate punctuation into words, also without a blank before it
        begins_word = [
            subword.startswith(BLANK_MARKERS) or not any(map(str.isalnum, subword))
            for subword in subwords
        ]
    elif model["type"] == "WordLevel":
        begins_word = [True] * len(subwords)
    else:
        raise ValueError(
            "tokenizer: expected WordPiece, WordLevel, or sub-words that begin with "
            f"{' or '.join(BLANK_MARKERS)} after a blank, got {model['type']} without"
            " them"
        )
    roles = torch.full((vocab_size,), INSIDE, dtype=torch.int8)
    roles[: len(subwords)][torch.tensor(begins_word)] = FIRST
    # the unknown token stands for text, unlike other special tokens
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    roles[sorted(special)] = SPECIAL
    return roles


def _pooler_options(encoder_settings: Any) -> dict[str, bool]:
    """Return options that build the encoder without its pooler, which is not used."""
    model_class = transformers.MODEL_MAPPING.get(type(encoder_settings), nn.Module)
    has_pooler = (
        "add_pooling_layer" in inspect.signature(model_class.__init__).parameters
    )
    return {"add_pooling_layer": False} if has_pooler else {}


def _reject_remote_code(options: dict[str, Any]) -> None:
    """Raise if options allow remote code or unsafe unpickling; remove them."""
    for key, safe in (("trust_remote_code", False), ("weights_only", True)):
        if bool(options.pop(key, safe)) is not safe:
            raise ValueError(
                f"{key}: expected {safe}, got {not safe}. Loading never runs remote "
                "code; convert the weights to safetensors"
            )


transformers.AutoConfig.register(ChainConfig.model_type, ChainConfig, exist_ok=True)
transformers.AutoModelForTokenClassification.register(
    ChainConfig, ChainForTokenClassification, exist_ok=True
)
