"""Contextual word vectors: a pretrained encoder, read at first sub-words."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from smoothsp import encoder_config
from smoothsp.weight_files import build_on_meta, list_weight_files

__all__ = ["Encoder", "SubwordBatch"]

MAX_WINDOW = 512


class SubwordBatch(NamedTuple):
    """Sub-words of a batch: W windows of up to L, and N words."""

    ids: Tensor  # [W, L]
    mask: Tensor  # [W, L] int64
    window: Tensor  # [N] row of each real word, one sentence after another
    column: Tensor  # [N] column of its first sub-word


class SubwordWindows(NamedTuple):
    """Sub-words of a sentence, in overlapping windows."""

    windows: list[list[int]]
    starts: list[tuple[int, int]]
    """Window and column of the first sub-word of each word."""


class Encoder(nn.Module):
    """A transformer and its sub-word tokenizer.

    Long sentences are read in windows that overlap by half. A word has the vector of
    the window in which it is furthest from both ends.

    Parameters
    ----------
    model
        A transformers model with ``last_hidden_state``.
    tokenizer
        A ``tokenizers.Tokenizer``.
    longest
        Maximum number of sub-words of a window, including special ones.
    padding
        Index of the padding sub-word.
    mixed
        If True, vectors are a learned weighted mean over all layers, instead of those
        of the last layer.
        Source: Peters et al., "Deep contextualized word representations" (2018),
        equation 1.
    context
        Approximate number of sub-words of neighbouring sentences that are read
        together, so that words see the sentences around theirs. 0 reads each sentence
        by itself. Source: Schweter and Akbik, "FLERT: Document-Level Features for Named
        Entity Recognition" (2020).
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        longest: int,
        padding: int,
        mixed: bool = False,
        context: int = 0,
    ) -> None:
        super().__init__()
        self.mix: nn.Parameter | None = None
        if mixed:
            layers = int(model.config.num_hidden_layers)  # type: ignore[union-attr,arg-type]
            # One weight for the embeddings and each layer, and a scale of the mean.
            self.mix = nn.Parameter(torch.zeros(layers + 1))
            self.scale = nn.Parameter(torch.ones(()))
        self.model = model
        self.tokenizer = tokenizer
        self.longest, self.padding, self.context = longest, padding, context
        special = tokenizer.num_special_tokens_to_add(False)
        stride = max(0, (longest - special) // 2)
        tokenizer.enable_truncation(longest, stride=stride)
        tokenizer.no_padding()

    @classmethod
    def pretrained(
        cls, name: str | Path, mixed: bool = False, context: int = 0
    ) -> "Encoder":
        """Load an encoder of transformers by name or from a folder.

        Never runs code of the model, and opens no connection for a folder.

        Raises
        ------
        ModuleNotFoundError
            Without the extra ``hugging-face``.
        ValueError
            If there is no such model, if it is no text encoder of
            ``encoder_config.MODEL_TYPES``, or if its tokenizer is not a fast one.
        """
        transformers = encoder_config.import_transformers("encoder")
        options = encoder_config.safe_options(name)
        try:
            raw_config, _ = transformers.PretrainedConfig.get_config_dict(
                str(name), **options
            )
            config_path = f"{name}/config.json"
            config = encoder_config.configuration(raw_config, config_path, strict=False)
            if Path(name).is_dir():
                build_on_meta(
                    lambda: transformers.AutoModel.from_config(config), config_path
                )
                list_weight_files(Path(name))
                options["use_safetensors"] = True
            model = transformers.AutoModel.from_pretrained(
                str(name), config=config, dtype=torch.float32, **options
            )
            options.pop("use_safetensors", None)
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                str(name),
                config=config,
                use_fast=True,
                add_prefix_space=True,
                **options,
            )
        except (OSError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(
                "encoder: expected a folder or a name that AutoModel and "
                f"AutoTokenizer of transformers can load, got {str(name)!r} ({reason})"
            ) from error
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(
                f"encoder: expected a fast tokenizer, got {type(tokenizer).__name__};"
                " only fast tokenizers map sub-words to words"
            )
        max_positions = getattr(model.config, "max_position_embeddings", MAX_WINDOW)
        # RoBERTa models number positions from padding_idx + 1 = 2.
        if model.config.model_type in ("roberta", "xlm-roberta", "camembert"):
            max_positions -= 2
        max_length = min(tokenizer.model_max_length, max_positions, MAX_WINDOW)
        padding = tokenizer.pad_token_id or 0
        backend_tokenizer = tokenizer.backend_tokenizer
        return cls(model, backend_tokenizer, max_length, padding, mixed, context)

    @classmethod
    def from_description(cls, description: dict[str, Any], tokenizer: str) -> "Encoder":
        """Build the encoder of a ``description``, with random weights."""
        transformers = encoder_config.import_transformers("encoder")
        from tokenizers import Tokenizer

        if not isinstance(description, dict):
            type_name = type(description).__name__
            raise ValueError(f"encoder: expected a JSON object, got {type_name}")
        field_names = {"model", "longest", "padding", "mixed", "context"}
        encoder_config.require_allowed_fields(
            description, "encoder", field_names, "smoothsp encoder"
        )
        sizes: dict[str, Any] = {
            name: description.get(name) for name in ("longest", "padding", "context")
        }
        for name, value in sizes.items():
            max_value = encoder_config.MAX_INTEGER
            if type(value) is not int or not 0 <= value <= max_value:
                raise ValueError(
                    f"encoder.{name}: expected 0 to {max_value}, got {value!r}"
                )
        mixed = description.get("mixed")
        if not isinstance(mixed, bool):
            raise ValueError(f"encoder.mixed: expected true or false, got {mixed!r}")
        config = encoder_config.configuration(description.get("model"), "encoder.model")
        try:
            model = transformers.AutoModel.from_config(config, trust_remote_code=False)
            backend_tokenizer = Tokenizer.from_str(tokenizer)
            return cls(model, backend_tokenizer, mixed=mixed, **sizes)
        # Both libraries raise errors of any type for invalid sizes.
        except Exception as error:
            raise ValueError(
                "encoder: expected one that transformers builds, got "
                f"{type(error).__name__}: {error}"
            ) from error

    def description(self) -> dict[str, Any]:
        """Return configuration and options as JSON values; see ``from_description``."""
        return {
            "model": encoder_config.loadable_fields(self.model.config),
            "longest": self.longest,
            "padding": self.padding,
            "mixed": self.mix is not None,
            "context": self.context,
        }

    @property
    def size(self) -> int:
        """Dimension of word vectors."""
        return int(self.model.config.hidden_size)  # type: ignore[union-attr,arg-type]

    def split_subwords(self, sentences: list[list[str]]) -> list[SubwordWindows]:
        """Split sentences of words into windows of sub-words."""
        encodings = self.tokenizer.encode_batch(sentences, is_pretokenized=True)
        return [
            _find_word_starts([first, *first.overflowing], len(words))
            for first, words in zip(encodings, sentences, strict=True)
        ]

    def collate(self, sentences: list[SubwordWindows]) -> SubwordBatch:
        """Collate the windows of several sentences into a padded batch."""
        rows: list[list[int]] = []
        window: list[int] = []
        column: list[int] = []
        for sentence in sentences:
            for number, start in sentence.starts:
                window.append(len(rows) + number)
                column.append(start)
            rows += sentence.windows
        ids = torch.full((len(rows), max(map(len, rows), default=0)), self.padding)
        mask = torch.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.tensor(row)
            mask[number, : len(row)] = 1
        return SubwordBatch(ids, mask, torch.tensor(window), torch.tensor(column))

    def forward(self, pieces: SubwordBatch) -> Tensor:
        """Return word vectors ``(N, size)`` in float32.

        The encoder computes in bfloat16 on a GPU. So does training on a CPU with
        bfloat16 instructions, where it halves the time of a step.
        """
        device = pieces.ids.device
        use_bfloat16 = self.training and _cpu_has_bfloat16()
        use_bfloat16 = device.type == "cuda" or (device.type == "cpu" and use_bfloat16)
        with torch.autocast(device.type, torch.bfloat16, enabled=use_bfloat16):
            output = self.model(
                input_ids=pieces.ids,
                attention_mask=pieces.mask,
                output_hidden_states=self.mix is not None,
            )
        if self.mix is None:
            last: Tensor = output.last_hidden_state
            return last[pieces.window, pieces.column].float()
        layers = [h[pieces.window, pieces.column].float() for h in output.hidden_states]
        mean = torch.einsum("l,lnd->nd", self.mix.softmax(0), torch.stack(layers))
        return self.scale * mean


def _cpu_has_bfloat16() -> bool:
    """Return whether the CPU has bfloat16 instructions; without, it is slower."""
    # Older PyTorch has no get_capabilities.
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def _find_word_starts(windows: list[Any], num_words: int) -> SubwordWindows:
    """Find the first sub-word of each word, in the window that centres it best."""
    # A word whose characters are all dropped has no sub-word: it gets position (0, 0).
    starts, edge_distance = [(0, 0)] * num_words, [-1] * num_words
    for number, window in enumerate(windows):
        previous_word = None
        for column, word in enumerate(window.word_ids):
            if word is not None and word != previous_word:
                distance = min(column, len(window.ids) - 1 - column)
                # A window may begin within a word: such a start has distance 0.
                starts_inside_word = number > 0 and column == _first_word_column(window)
                distance = 0 if starts_inside_word else distance
                if distance > edge_distance[word]:
                    starts[word], edge_distance[word] = (number, column), distance
            previous_word = word
    return SubwordWindows([list(window.ids) for window in windows], starts)


def _first_word_column(window: Any) -> int:
    return next(n for n, word in enumerate(window.word_ids) if word is not None)
