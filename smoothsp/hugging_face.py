"""A linear-chain head for transformers. Requires the extra ``hugging-face``."""

import inspect
import json
import os
from collections.abc import Sequence
from typing import Any, get_args

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

from smoothsp import schemes
from smoothsp.layers import LinearChain, LossName

__all__ = ["ChainConfig", "ChainForTokenClassification", "encode_words"]

IGNORED = -100
SPECIAL, INSIDE, FIRST = range(3)
# how tokenizers that are no WordPiece write that there was a blank before a sub-word
BLANKS = ("▁", "Ġ")
# what a loader of transformers hands on to whatever it loads
OF_THE_HUB = ("cache_dir", "force_download", "local_files_only", "revision", "token")


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
        Arguments of ``PretrainedConfig``, such as ``id2label``.

    Raises
    ------
    ValueError
        For an unknown loss, and if ``id2label`` has labels of several schemes.

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
                f"{structured_loss!r}"
            )
        if isinstance(encoder, dict):
            encoder = transformers.AutoConfig.for_model(**encoder)
        self.encoder = encoder
        self.structured_loss = structured_loss
        self.constrained = constrained
        self.classifier_dropout = classifier_dropout
        super().__init__(**others)

    @property
    def labels(self) -> list[str]:
        """Labels in the order of their numbers."""
        return [self.id2label[number] for number in range(self.num_labels)]


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

    Loading never runs code from a folder or repository, and unpickles tensors only.

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
            encoder = transformers.AutoModel.from_config(about, **_no_pooler(about))
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
            Folder, or name on the hub: of a saved model of this class, or of any
            encoder that ``AutoModel`` loads.
        tokenizer
            Tokenizer of the encoder; if absent, the tokenizer called ``name``.
        **options
            For an encoder, ``id2label`` and other arguments of ``ChainConfig``. All
            others are passed to ``PreTrainedModel.from_pretrained``.

        Raises
        ------
        ValueError
            If the options allow remote code, if there is no ``id2label``, or if the
            tokenizer does not mark which sub-words begin a word.
        """
        _refuse_code(options)
        config = options.get("config")
        if config is None:
            hub = {key: options[key] for key in OF_THE_HUB if key in options}
            config = transformers.AutoConfig.from_pretrained(
                name, trust_remote_code=False, **hub
            )
        if not isinstance(config, ChainConfig):
            options["config"] = config
            return cls._over(name, tokenizer, options)
        found = super().from_pretrained(name, *args, **options)
        model = found[0] if isinstance(found, tuple) else found
        # these are in no file, and transformers leaves what is in none uninitialised
        rules = LinearChain(model.config.num_labels, _rules(model.config))
        for key in ("allowed_start", "allowed_moves", "allowed_end"):
            value = getattr(rules, key)
            at = model.chain.transitions.device
            setattr(model.chain, key, None if value is None else value.to(at))
        return found

    @classmethod
    def _over(cls, name: Any, tokenizer: Any, options: dict[str, Any]) -> Any:
        """A fresh chain over a pretrained encoder."""
        if options.get("id2label") is None:
            raise ValueError(
                f"id2label: expected the labels of the chain over {name}, as in"
                ' {0: "O", 1: "B-PER", 2: "I-PER"}, got none'
            )
        names = ("id2label", *inspect.signature(ChainConfig).parameters)
        own = {key: options.pop(key) for key in names if key in options}
        about = options["config"]
        encoder = transformers.AutoModel.from_pretrained(
            name, trust_remote_code=False, **_no_pooler(about), **options
        )
        if tokenizer is None:
            hub = {key: options[key] for key in OF_THE_HUB if key in options}
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                name, trust_remote_code=False, **hub
            )
        own["label2id"] = {label: int(n) for n, label in own["id2label"].items()}
        model = cls(ChainConfig(encoder.config, **own), encoder)
        model.roles.copy_(_roles(tokenizer, len(model.roles)))
        return model.to(encoder.device, encoder.dtype)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        word_starts: Tensor | None = None,
    ) -> TokenClassifierOutput:
        """Return the loss, and in evaluation mode the logits.

        Parameters
        ----------
        input_ids, attention_mask, token_type_ids
            ``(batch, time)``, as returned by a tokenizer.
        labels
            ``(batch, time)``: the label of each word at its first sub-word, -100
            elsewhere, as returned by ``encode_words``.
        word_starts
            ``(batch, time)`` of 0 and 1: 1 at the first sub-word of each word. If
            absent, the positions with labels; without labels, the positions given by
            the vocabulary.

        Returns
        -------
        TokenClassifierOutput
            ``loss``, the mean over words, if there are labels. ``logits``, float32
            ``(batch, time, label)``, in evaluation mode or without labels.
        """
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        hidden = self.encoder(**inputs).last_hidden_state
        emissions = self.classifier(self.dropout(hidden))
        real = attention_mask.bool() & (self.roles[input_ids] != SPECIAL)
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
            loss = self.chain.loss(
                emissions,
                labels,
                first,
                self.config.structured_loss,
                reduction="token_mean",
            )
        if labels is None or not self.training:
            logits = self._logits(emissions, first, real)
        return TokenClassifierOutput(loss=loss, logits=logits)

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


def _rules(config: ChainConfig) -> list[str] | None:
    """The labels, if they have a scheme whose rules are to be followed."""
    plain = schemes.detect([config.labels]) == schemes.PLAIN
    return None if plain or not config.constrained else config.labels


def _inside(labels: list[str]) -> list[int]:
    """Label that continues each label within a word: I-PER for B-PER."""
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
