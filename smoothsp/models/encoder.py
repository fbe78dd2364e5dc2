"""Vectors of words in their context: a pretrained encoder at first sub-words."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from smoothsp import encoder_config
from smoothsp.weight_files import build_on_meta, list_weight_files

__all__ = ["Encoder", "SubwordBatch"]

LONGEST_WINDOW = 512


class SubwordBatch(NamedTuple):
    """Sub-words of a batch, in windows."""

    ids: Tensor  # [W, L]
    mask: Tensor  # [W, L] int64
    window: Tensor  # [N] of each real word, one sentence after another
    column: Tensor  # [N] of its first sub-word


class SubwordWindows(NamedTuple):
    """Sub-words of a sentence."""

    windows: list[list[int]]
    places: list[tuple[int, int]]
    """Of each word the window and the column of its first sub-word."""


class Encoder(nn.Module):
    """A transformer, and the sub-words that it reads.

    A sentence that is too long for it is read in windows that overlap by half. A word
    has the vector of the window in which it is furthest from an end.

    Parameters
    ----------
    model
        A model of transformers with ``last_hidden_state``.
    tokenizer
        A ``tokenizers.Tokenizer``.
    longest
        Most sub-words of a window, special ones included.
    padding
        The number of the sub-word that pads.
    mixed
        Whether vectors are a weighted mean of those of all layers, with weights that
        are learned, not those of the last layer.
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
            # of the embeddings and each layer, and the scale of the mean
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
        """Load the encoder that transformers finds under a name or in a folder.

        Code from there never runs, and a folder opens no connection.

        Raises
        ------
        ModuleNotFoundError
            Without the extra ``hugging-face``.
        ValueError
            If there is none, if it is no text encoder of
            ``encoder_config.MODEL_TYPES``, or if its tokenizer is not a fast one.
        """
        hub = encoder_config.import_transformers("encoder")
        safe = encoder_config.safe_options(name)
        try:
            found, _ = hub.PretrainedConfig.get_config_dict(str(name), **safe)
            place = f"{name}/config.json"
            about = encoder_config.configuration(found, place, strict=False)
            if Path(name).is_dir():
                build_on_meta(lambda: hub.AutoModel.from_config(about), place)
                list_weight_files(Path(name))
                safe["use_safetensors"] = True
            model = hub.AutoModel.from_pretrained(
                str(name), config=about, dtype=torch.float32, **safe
            )
            safe.pop("use_safetensors", None)
            tokenizer = hub.AutoTokenizer.from_pretrained(
                str(name), config=about, use_fast=True, add_prefix_space=True, **safe
            )
        except (OSError, ValueError, KeyError) as error:
            said = " ".join(str(error).split())[:200]
            raise ValueError(
                "encoder: expected a folder or a name that AutoModel and "
                f"AutoTokenizer of transformers can load, got {str(name)!r} ({said})"
            ) from error
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(
                f"encoder: expected a fast tokenizer, got {type(tokenizer).__name__};"
                " only fast tokenizers map sub-words to words"
            )
        most = getattr(model.config, "max_position_embeddings", LONGEST_WINDOW)
        # Those of RoBERTa's family start to count positions after the padding's.
        if model.config.model_type in ("roberta", "xlm-roberta", "camembert"):
            most -= 2
        longest = min(tokenizer.model_max_length, most, LONGEST_WINDOW)
        padding = tokenizer.pad_token_id or 0
        cut = tokenizer.backend_tokenizer
        return cls(model, cut, longest, padding, mixed, context)

    @classmethod
    def described(cls, about: dict[str, Any], tokenizer: str) -> "Encoder":
        """Create the network of a ``description``, with random weights."""
        hub = encoder_config.import_transformers("encoder")
        from tokenizers import Tokenizer

        if not isinstance(about, dict):
            found = type(about).__name__
            raise ValueError(f"encoder: expected a JSON object, got {found}")
        known = {"model", "longest", "padding", "mixed", "context"}
        encoder_config.require_allowed_fields(
            about, "encoder", known, "smoothsp encoder"
        )
        sizes: dict[str, Any] = {
            name: about.get(name) for name in ("longest", "padding", "context")
        }
        for name, value in sizes.items():
            most = encoder_config.MAX_INTEGER
            if type(value) is not int or not 0 <= value <= most:
                raise ValueError(f"encoder.{name}: expected 0 to {most}, got {value!r}")
        mixed = about.get("mixed")
        if not isinstance(mixed, bool):
            raise ValueError(f"encoder.mixed: expected true or false, got {mixed!r}")
        config = encoder_config.configuration(about.get("model"), "encoder.model")
        try:
            model = hub.AutoModel.from_config(config, trust_remote_code=False)
            cut = Tokenizer.from_str(tokenizer)
            return cls(model, cut, mixed=mixed, **sizes)
        # both libraries raise errors of any kind for wrong numbers
        except Exception as error:
            raise ValueError(
                "encoder: expected one that transformers builds, got "
                f"{type(error).__name__}: {error}"
            ) from error

    def description(self) -> dict[str, Any]:
        """Description besides weights and tokenizer, as JSON values."""
        return {
            "model": encoder_config.loadable_fields(self.model.config),
            "longest": self.longest,
            "padding": self.padding,
            "mixed": self.mix is not None,
            "context": self.context,
        }

    @property
    def size(self) -> int:
        """Columns of a vector."""
        return int(self.model.config.hidden_size)  # type: ignore[union-attr,arg-type]

    def cut(self, sentences: list[list[str]]) -> list[SubwordWindows]:
        """Words as sub-words."""
        whole = self.tokenizer.encode_batch(sentences, is_pretokenized=True)
        return [
            _cut([first, *first.overflowing], len(words))
            for first, words in zip(whole, sentences, strict=True)
        ]

    def join(self, cuts: list[SubwordWindows]) -> SubwordBatch:
        """The sub-words of several sentences."""
        rows: list[list[int]] = []
        window: list[int] = []
        column: list[int] = []
        for cut in cuts:
            for number, place in cut.places:
                window.append(len(rows) + number)
                column.append(place)
            rows += cut.windows
        ids = torch.full((len(rows), max(map(len, rows), default=0)), self.padding)
        mask = torch.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.tensor(row)
            mask[number, : len(row)] = 1
        return SubwordBatch(ids, mask, torch.tensor(window), torch.tensor(column))

    def forward(self, pieces: SubwordBatch) -> Tensor:
        """``(words, size)``, in float32.

        On a GPU the encoder computes in bfloat16. It also does so in training on a
        processor with bfloat16 products, where a step takes half the time.
        """
        device = pieces.ids.device
        short = self.training and _multiplies_bfloat16()
        short = device.type == "cuda" or (device.type == "cpu" and short)
        with torch.autocast(device.type, torch.bfloat16, enabled=short):
            out = self.model(
                input_ids=pieces.ids,
                attention_mask=pieces.mask,
                output_hidden_states=self.mix is not None,
            )
        if self.mix is None:
            last: Tensor = out.last_hidden_state
            return last[pieces.window, pieces.column].float()
        layers = [h[pieces.window, pieces.column].float() for h in out.hidden_states]
        mean = torch.einsum("l,lnd->nd", self.mix.softmax(0), torch.stack(layers))
        return self.scale * mean


def _multiplies_bfloat16() -> bool:
    """Whether this processor does; one that cannot is slower in bfloat16."""
    # older PyTorch does not tell
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def _cut(windows: list[Any], words: int) -> SubwordWindows:
    """Starts of the words, each as far from the ends of a window as possible."""
    # a word without a sub-word, of characters that are dropped, has the first one
    places, room = [(0, 0)] * words, [-1] * words
    for number, window in enumerate(windows):
        before = None
        for column, word in enumerate(window.word_ids):
            if word is not None and word != before:
                distance = min(column, len(window.ids) - 1 - column)
                # a window may begin within a word
                inside = number > 0 and column == _first_real(window)
                distance = 0 if inside else distance
                if distance > room[word]:
                    places[word], room[word] = (number, column), distance
            before = word
    return SubwordWindows([list(window.ids) for window in windows], places)


def _first_real(window: Any) -> int:
    return next(n for n, word in enumerate(window.word_ids) if word is not None)
