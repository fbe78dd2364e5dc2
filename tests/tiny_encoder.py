"""An encoder of a few letters with random weights, saved as transformers saves one."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ("met", "of")


def save(place, **settings):
    from transformers import BertConfig, BertModel

    tokenizer = wordpiece()
    about = {
        "vocab_size": len(tokenizer),
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 32,
    }
    BertModel(BertConfig(**about | settings)).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def wordpiece():
    """Letters, letters within a word, and two whole words."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *LETTERS]
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
    return PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=20, **special)
