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
# characters of a value in a message
LONGEST = 60
SPECIAL, INSIDE, FIRST = range(3)
# how tokenizers that are no WordPiece write that there was a blank before a sub-word
BLANKS = ("▁", "Ġ")
# what a loader of transformers hands on to whatever it loads
OF_THE_HUB = ("cache_dir", "force_download", "local_files_only", "revision", "token")
# options that an encoder's configuration keeps
OF_THE_ENCODER = ("attn_implementation", "output_attentions", "output_hidden_states")
LABELS = ("id2label", "label2id", "num_labels")


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
        For an unknown loss, for an encoder that is none of
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
    # a Trainer collects all others as predictions
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["emissions", "words"]

    def __init__(
        self,
        encoder: Any = None,
        structured_loss: LossName = "crf",
        constrained: bool = True,
        classifier_dropout: float = 0.1,
        **others: Any,
    ) -> None:
        known = get_args(LossName)
        if structured_loss not in known:
            raise ValueError(
                f"structured_loss: expected one of {', '.join(known)}, got "
                f"{_shown(structured_loss)}"
            )
        if not isinstance(constrained, bool):
            raise ValueError(
                f"constrained: expected True or False, got {_shown(constrained)}"
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
        given = {name: others.pop(name) for name in LABELS if name in others}
        super().__init__(**others, **_numbered(**given))

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **options: Any) -> Any:
        """Create a configuration of the fields of a file, if all are known."""
        _require_known(config_dict, "config.json")
        names = {"id2label", "label2id"}
        labels = {key: options.pop(key) for key in names & options.keys()}
        if any(value is not None for value in labels.values()):
            kept = {x: value for x, value in config_dict.items() if x not in LABELS}
            config_dict = kept | labels
        return super().from_dict(config_dict, **options)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; the encoder's are those that load again."""
        found: dict[str, Any] = super().to_dict()
        if self.encoder is not None:
            found["encoder"] = encoder_config.loadable_fields(self.encoder)
        # of labels that were renamed since
        found["label2id"] = {label: n for n, label in self.id2label.items()}
        return found

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
    """Of each layer of the encoder, if asked for."""
    attentions: tuple[Tensor, ...] | None = None
    """Of each layer of the encoder, if asked for."""
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
    saved chain that asks for code is refused; such fields of an encoder, as many on the
    hub have, are ignored.

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
    # the loss is a mean over words, which a Trainer scales as it accumulates gradients
    accepts_loss_kwargs = False

    def __init__(self, config: ChainConfig, encoder: nn.Module | None = None) -> None:
        if not isinstance(config, ChainConfig):
            raise TypeError(
                f"config: expected a ChainConfig, got {type(config).__name__}. For an"
                " encoder with random weights pass ChainConfig(config, id2label=...);"
                " for a pretrained one call from_pretrained"
            )
        super().__init__(config)
        about = config.encoder
        if encoder is None:
            # the dtype of the whole model, which a loader sets, not the encoder's own
            encoder = transformers.AutoModel.from_config(
                about, dtype=torch.get_default_dtype(), **_no_pooler(about)
            )
        self.encoder = encoder
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(about.hidden_size, config.num_labels)
        self.chain = LinearChain(config.num_labels, _rules(config))
        roles = torch.full((about.vocab_size,), FIRST, dtype=torch.int8)
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
        _refuse_code(options)
        safe = encoder_config.safe_options(name)
        hub = {key: options[key] for key in OF_THE_HUB if key in options} | {
            key: value for key, value in safe.items() if value or key not in options
        }
        options |= hub
        config = options.pop("config", None)
        if config is None:
            config = _described(name, hub, options)
        about = getattr(config, "encoder", config)
        for key in OF_THE_ENCODER:
            if key in options:
                key_there = f"_{key}" if key == "attn_implementation" else key
                setattr(about, key_there, options.pop(key))
        if not isinstance(config, ChainConfig):
            return cls._over(name, tokenizer, config, hub, options)
        if Path(name).is_dir():
            _require_no_code(Path(name))
            _require_weights(Path(name), config)
        del options["trust_remote_code"]
        found = super().from_pretrained(
            name, *args, config=config, use_safetensors=True, **options
        )
        model = found[0] if isinstance(found, tuple) else found
        # these are in no file, and transformers leaves what is in none uninitialised
        rules = LinearChain(model.config.num_labels, _rules(model.config))
        for key in ("allowed_start", "allowed_transitions", "allowed_end"):
            value = getattr(rules, key)
            at = model.chain.transitions.device
            setattr(model.chain, key, None if value is None else value.to(at))
        return found

    @classmethod
    def _over(
        cls,
        name: Any,
        tokenizer: Any,
        about: Any,
        hub: dict[str, Any],
        options: dict[str, Any],
    ) -> Any:
        """A fresh chain over a pretrained encoder."""
        names = (*LABELS, "return_dict", *inspect.signature(ChainConfig).parameters)
        own = {key: options.pop(key) for key in names if key in options}
        if not any(own.get(key) for key in LABELS):
            raise ValueError(
                f"id2label: expected the labels of the chain over {name}, as in"
                ' {0: "O", 1: "B-PER", 2: "I-PER"}, got none'
            )
        # before the weights, which may have to be downloaded
        config = ChainConfig(about, **own)
        _rules(config)
        if Path(name).is_dir():
            options["use_safetensors"] = True
            _require_encoder(Path(name), about)
        encoder = transformers.AutoModel.from_pretrained(
            name, config=about, **_no_pooler(about), **options
        )
        if tokenizer is None:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                name, config=about, **hub
            )
        config.encoder = encoder.config
        model = cls(config, encoder)
        model.roles.copy_(_roles(tokenizer, len(model.roles)))
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
            labels; special tokens are then not told from other sub-words.
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
        asked = {
            "output_attentions": output_attentions,
            "output_hidden_states": output_hidden_states,
        }
        for key, value in asked.items():
            # where neither is set, the encoder's own configuration holds
            inputs[key] = (
                (getattr(self.config, key) or None) if value is None else value
            )
        given = input_ids if input_ids is not None else inputs_embeds
        if given is None:
            raise ValueError("input_ids: expected them or inputs_embeds, got neither")
        if input_ids is None and labels is None and word_starts is None:
            raise ValueError(
                "word_starts: expected beside inputs_embeds, which do not show where"
                " words begin, got none"
            )
        if attention_mask is None:
            attention_mask = torch.ones(
                given.shape[:2], dtype=torch.long, device=given.device
            )
        known = {key: value for key, value in inputs.items() if value is not None}
        seen = self.encoder(attention_mask=attention_mask, return_dict=True, **known)
        emissions = self.classifier(self.dropout(seen.last_hidden_state))
        real = attention_mask.bool()
        if input_ids is not None:
            real = real & (self.roles[input_ids] != SPECIAL)
        if word_starts is not None:
            first = word_starts.bool()
        elif labels is not None:
            first = labels != IGNORED
        else:
            first = real & (self.roles[input_ids] == FIRST)
            # of a text that no blank begins, and of a window that begins within a word
            first |= real & (real.cumsum(1) == 1)
        loss = logits = None
        if labels is not None:
            loss = self._loss(emissions, labels, first)
        if labels is None or not self.training:
            logits = self._logits(emissions, first, real)
        found = ChainOutput(
            loss=loss,
            logits=logits,
            hidden_states=seen.hidden_states,
            attentions=seen.attentions,
            emissions=emissions,
            words=first,
        )
        as_it_is = self.config.return_dict if return_dict is None else return_dict
        return found if as_it_is else found.to_tuple()

    def _loss(self, emissions: Tensor, labels: Tensor, first: Tensor) -> Tensor:
        """Mean over words that have labels; those of other words are summed out."""
        name = self.config.structured_loss
        unknown = first & (labels == IGNORED)
        if not bool(unknown.any()):
            return self.chain.loss(
                emissions, labels, first, name, reduction="token_mean"
            )
        numbers = torch.arange(emissions.shape[2], device=labels.device)
        allowed = (labels[..., None] == numbers) | unknown[..., None]
        wrong = first & ~allowed.any(2)
        if bool(wrong.any()):
            raise ValueError(
                f"labels: expected 0 to {len(numbers) - 1}, or {IGNORED}, got"
                f" {int(labels[wrong][0])}"
            )
        total: Tensor = _of_partial(name)(
            self.chain.structure(emissions, first), allowed
        )
        return total / (first & ~unknown).sum().clamp_min(1)

    @torch.no_grad()
    def _logits(self, emissions: Tensor, first: Tensor, real: Tensor) -> Tensor:
        """Max-marginals of words, and of their other sub-words."""
        best = self.chain.structure(emissions, first).max_marginals()
        places = torch.arange(first.shape[1], device=first.device).expand_as(first)
        word = places.masked_fill(~first, -1).cummax(1).values
        of_word = best.take_along_dim(word.clamp_min(0)[..., None], 1)
        goes_on = torch.tensor(_inside(self.config.labels), device=first.device)
        others = torch.full_like(of_word, -torch.inf).scatter_reduce(
            2, goes_on.expand_as(of_word), of_word, "amax"
        )
        found = torch.where(first[..., None], best, others)
        return found.masked_fill(~(first | real & (word >= 0))[..., None], 0)


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
        for place, word in enumerate(batch.word_ids(row)):
            if word is not None and word != before:
                batch["word_starts"][row, place] = 1
                if labels is not None:
                    batch["labels"][row, place] = labels[row][word]
            before = word
    return batch


def _described(name: Any, hub: dict[str, Any], options: dict[str, Any]) -> Any:
    """The configuration in a folder or on the hub: of a chain, or of an encoder."""
    path = Path(name, "config.json")
    if path.is_file():
        found = read_json(path)
    else:
        found, _ = transformers.PretrainedConfig.get_config_dict(name, **hub)
    if found.get("model_type") != ChainConfig.model_type:
        return encoder_config.configuration(found, str(path), strict=False)
    _require_known(found, str(path))
    try:
        config = ChainConfig.from_dict(found)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    labels = {key: options.pop(key) for key in LABELS if key in options}
    if any(value is not None for value in labels.values()):
        labels = _numbered(**labels)
        count = labels.get("num_labels", len(labels.get("id2label", ())))
        if count != config.num_labels:
            raise ValueError(
                f"id2label: expected the {config.num_labels} labels of {name}, got"
                f" {count}. For other labels begin with the encoder"
            )
        for key in ("id2label", "label2id"):
            if key in labels:
                setattr(config, key, labels[key])
    for key in ("return_dict", *inspect.signature(ChainConfig).parameters):
        if key in options:
            setattr(config, key, options.pop(key))
    return config


def _require_known(found: Mapping[str, Any], place: str) -> None:
    """Raise for fields of a ``config.json`` that no configuration of a chain has."""
    own = set(inspect.signature(ChainConfig).parameters) - {"others"}
    known = own | set(transformers.PretrainedConfig().to_dict())
    # a Trainer writes those of its tokenizer, and whether layers keep keys
    known |= {f"{x}_token_id" for x in ("bos", "eos", "pad", "sep")} | {"use_cache"}
    encoder_config.require_allowed_fields(found, place, known, ChainConfig.model_type)
    dtype = found.get("dtype")
    if dtype is not None and dtype not in encoder_config.DTYPES:
        raise ValueError(
            f"{place}: dtype: expected one of {', '.join(encoder_config.DTYPES)}, got"
            f" {_shown(dtype)}"
        )


def _require_no_code(place: Path) -> None:
    """Raise if a tokenizer beside a chain asks for code, which no tokenizer needs."""
    path = place / "tokenizer_config.json"
    found = read_json(path) if path.is_file() else {}
    for key in ("auto_map", "custom_pipelines", "trust_remote_code"):
        if found.get(key):
            raise ValueError(
                f"{path}: {key}: expected a tokenizer without code, got"
                f" {_shown(found[key])}; remove it if you trust the rest"
            )


def _require_encoder(place: Path, about: Any) -> None:
    """Raise unless transformers builds the encoder, and the files are safetensors."""
    weight_files.build_on_meta(
        lambda: transformers.AutoModel.from_config(about),
        str(place / "config.json"),
    )
    weight_files.list_weight_files(place)


def _require_weights(place: Path, config: ChainConfig) -> None:
    """Raise unless the files hold weights of these shapes, before memory is taken."""
    rows = {"chain.start_transitions": (config.num_labels,)}
    weight_files.require_shapes(place, rows)
    about = f"{place / 'config.json'}: encoder"
    sketch = weight_files.build_on_meta(
        lambda: ChainForTokenClassification(config), about
    )
    weight_files.require_weights(place, sketch.state_dict())


def _numbered(
    id2label: Any = None, label2id: Any = None, num_labels: int | None = None
) -> dict[str, Any]:
    """``id2label`` and ``label2id``, or ``num_labels`` alone, if they do not differ."""
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
            f"id2label: expected labels by number, got {_shown(id2label or label2id)}"
        ) from error
    names = [numbers.get(n) for n in range(len(numbers))]
    if not all(isinstance(label, str) for label in names) or not names:
        raise ValueError(
            f"id2label: expected strings for 0 to {max(len(names) - 1, 0)}, got"
            f" {_shown(numbers)}"
        )
    by_label = {label: n for n, label in enumerate(names)}
    if len(by_label) < len(names):
        twice = next(label for n, label in enumerate(names) if by_label[label] != n)
        raise ValueError(
            f"id2label: expected each label once, got {_shown(twice)} twice"
        )
    if label2id is not None and dict(label2id) != by_label:
        raise ValueError(
            f"label2id: expected {_shown(by_label)}, the inverse of id2label, got"
            f" {_shown(label2id)}"
        )
    if num_labels is not None and num_labels != len(names):
        raise ValueError(
            f"num_labels: expected {len(names)} as in id2label, got"
            f" {_shown(num_labels)}"
        )
    return {"id2label": dict(enumerate(names)), "label2id": by_label}


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _of_partial(name: LossName) -> nn.Module:
    """The loss of this name where words may have several labels; a sum."""
    if name == "crf":
        return losses.MarginalLikelihood(reduction="sum")
    if name == "perceptron":
        return losses.LatentHinge(cost=None, reduction="sum")
    smoothing = {"hinge-l2": losses.L2(1.0, 5), "hinge-entropy": losses.Entropy(1.0)}
    chosen: Any = smoothing.get(name)
    return losses.LatentHinge(chosen, reduction="sum")


def _usual(labels: list[str]) -> list[str]:
    """Labels of spans as B-PER and I-PER, also where they are written as b_per."""
    notation = schemes.notation_of(labels)
    found = [notation.normalise(label) for label in labels]
    spans = not notation.only_types and any(x.startswith(("B-", "I-")) for x in found)
    return found if spans else labels


def _rules(config: ChainConfig) -> constraints.Constraints | None:
    """Rules of the labels' scheme, if they have one and it is to be followed."""
    labels = _usual(config.labels)
    spans = any(label.startswith(("B-", "I-")) for label in labels)
    if not config.constrained or not spans or schemes.detect([labels]) == schemes.PLAIN:
        return None
    try:
        return constraints.bio(labels)
    except ValueError as error:
        why = str(error).removeprefix("labels: ").partition(";")[0][:200]
        raise ValueError(
            f"id2label: {why}. Remove the label, or pass constrained=False to allow "
            "every order of labels"
        ) from None


def _inside(labels: list[str]) -> list[int]:
    """Label that continues each label within a word: I-PER for B-PER."""
    labels = _usual(labels)
    numbers = {label: number for number, label in enumerate(labels)}
    return [
        numbers.get(f"I{label[1:]}", number) if label[:1] == "B" else number
        for number, label in enumerate(labels)
    ]


def _roles(tokenizer: Any, size: int) -> Tensor:
    """Return True for sub-words that begin a word in the tokenizer's notation."""
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"tokenizer: expected a fast one, got {type(tokenizer).__name__}"
        )
    if len(tokenizer) > size:
        raise ValueError(
            f"tokenizer: expected at most the {size} sub-words of the encoder, got "
            f"{len(tokenizer)}. Resize the embeddings of the encoder and save it first"
        )
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    if model["type"] == "WordPiece":
        prefix = model["continuing_subword_prefix"]
        begins = [not piece.startswith(prefix) for piece in pieces]
    elif any(piece.startswith(BLANKS) for piece in pieces):
        # punctuation is a word of its own, as in corpora, though no blank is before it
        begins = [
            piece.startswith(BLANKS) or not any(map(str.isalnum, piece))
            for piece in pieces
        ]
    elif model["type"] == "WordLevel":
        begins = [True] * len(pieces)
    else:
        raise ValueError(
            "tokenizer: expected WordPiece, WordLevel, or sub-words that begin with "
            f"{' or '.join(BLANKS)} after a blank, got {model['type']} without them"
        )
    roles = torch.full((size,), INSIDE, dtype=torch.int8)
    roles[: len(pieces)][torch.tensor(begins)] = FIRST
    # what is unknown is part of the text all the same
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    roles[sorted(special)] = SPECIAL
    return roles


def _no_pooler(about: Any) -> dict[str, bool]:
    """Arguments that leave out the pooler, which nothing here would train."""
    kind = transformers.MODEL_MAPPING.get(type(about), nn.Module)
    has_one = "add_pooling_layer" in inspect.signature(kind.__init__).parameters
    return {"add_pooling_layer": False} if has_one else {}


def _refuse_code(options: dict[str, Any]) -> None:
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
