"""A tiny encoder with random weights, as transformers saves one."""

from pathlib import Path

import torch

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def write_encoder(place: Path, **settings: int) -> Path:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "met", "of", *LETTERS]
    pieces += [f"##{letter}" for letter in LETTERS]
    numbers = {piece: number for number, piece in enumerate(pieces)}
    raw = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    raw.normalizer = normalizers.BertNormalizer()
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    special |= {"cls_token": "[CLS]", "sep_token": "[SEP]"}
    made = PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=20, **special)
    torch.manual_seed(0)
    about = {
        "vocab_size": len(pieces),
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 32,
    }
    BertModel(BertConfig(**about | settings)).save_pretrained(place)
    made.save_pretrained(place)
    return place
