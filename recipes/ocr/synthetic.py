"""Invented words, drawn pixel by pixel: vowels and consonants in turn, noisy."""

import numpy as np

from ocr.letters import LetterWords

# seven rows of five pixels
GLYPHS = {
    "a": ".###. #...# #...# ##### #...# #...# #...#",
    "e": "##### #.... #.... ####. #.... #.... #####",
    "i": "..#.. ..#.. ..#.. ..#.. ..#.. ..#.. ..#..",
    "o": ".###. #...# #...# #...# #...# #...# .###.",
    "u": "#...# #...# #...# #...# #...# #...# .###.",
    "b": "####. #...# #...# ####. #...# #...# ####.",
    "d": "####. #...# #...# #...# #...# #...# ####.",
    "l": "#.... #.... #.... #.... #.... #.... #####",
    "n": "#...# ##..# ##..# #.#.# #..## #..## #...#",
    "r": "####. #...# #...# ####. #.#.. #..#. #...#",
    "s": ".#### #.... #.... .###. ....# ....# ####.",
    "t": "##### ..#.. ..#.. ..#.. ..#.. ..#.. ..#..",
}
VOWELS = 5
FOLDS = 10
# of a pixel, of a vowel after a consonant and the other way
PIXEL_NOISE, ALTERNATION = 0.15, 0.85


def draw(words: int, seed: int) -> LetterWords:
    """``words`` of three to eight letters; each tenth one is in fold 0."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 9, size=words)
    labels = np.concatenate([draw_letters(rng, length) for length in lengths])
    shapes = np.array(
        [[[c == "#" for c in row] for row in g.split()] for g in GLYPHS.values()]
    )
    images = np.zeros((len(labels), 9, 7), np.uint8)
    for image, label in zip(images, labels, strict=True):
        top, left = rng.integers(3, size=2)
        image[top : top + 7, left : left + 5] = shapes[label]
    images ^= (rng.random(images.shape) < PIXEL_NOISE).astype(np.uint8)
    return LetterWords(
        name="drawn words",
        alphabet="".join(GLYPHS),
        pixels=images.reshape(len(labels), -1),
        labels=labels,
        lengths=lengths,
        folds=np.arange(words) % FOLDS,
    )


def draw_letters(rng: np.random.Generator, length: int) -> list[int]:
    """Letters of a word."""
    vowel, word = bool(rng.integers(2)), []
    for _ in range(length):
        word.append(int(rng.integers(*((0, VOWELS) if vowel else (VOWELS, 12)))))
        vowel ^= bool(rng.random() < ALTERNATION)
    return word
