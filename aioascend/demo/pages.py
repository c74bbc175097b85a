# SPDX-License-Identifier: Apache-2.0
"""The pages that the demo reads: one photographed, ten rendered from a known text, or the user's own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps, UnidentifiedImageError
from rapidfuzz.distance import Levenshtein

from aioascend.demo.files import package_file
from aioascend.demo.prose import PAGES

PixelArray = NDArray[np.uint8]

ENLARGE_BELOW = 560  # pixels of the shorter side; the text of a smaller page is too fine for the detector
ENLARGE_UP_TO = 1280  # pixels of the longer side

PAGE_WIDTH, PAGE_HEIGHT = 704, 928
MARGIN = 56
LINE_SPACING = 1.55
MAX_TURN = 2.0  # degrees, either way
NOISE = 6.0  # standard deviation, in grey levels

FACES = (
    ("font_source_serif_pro", "files/SourceSerifPro-Regular.ttf"),
    ("font_source_sans_pro", "files/SourceSansPro-Semibold.ttf"),
    ("font_caladea", "files/Caladea-Regular.ttf"),
    ("font_source_serif_pro", "files/SourceSerifPro-It.ttf"),
    ("font_caladea", "files/Caladea-Bold.ttf"),
)
SIZES = (30, 28, 32)  # pixels


@dataclass(frozen=True)
class Page:
    """One page: `image` is uint8 [height, width, 3], BGR as in OpenCV; `truth` its lines, where known."""

    name: str
    image: PixelArray
    truth: tuple[str, ...] | None = None


def default_pages(rendered: int = len(PAGES), seed: int = 7) -> list[Page]:
    """The photographed page and `rendered` pages made here; the same seed gives the same pixels."""
    return [photographed_page(), *rendered_pages(rendered, seed)]


def photographed_page() -> Page:
    """The photographed page of a book that scikit-image brings, enlarged until its text can be detected."""
    return read_page(package_file("skimage", "data/page.png"), name="photograph")


def read_page(path: Path, name: str | None = None) -> Page:
    """Read an image file of any format that Pillow knows; enlarge a small one. `ValueError` if it is none."""
    if not path.is_file():
        raise ValueError(f"no such image: {path}")
    try:
        with Image.open(path) as picture:
            upright = ImageOps.exif_transpose(picture).convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"not an image that can be read: {path} (PNG and JPEG can): {error}") from error
    return Page(name or path.name, _enlarged(np.asarray(upright, np.uint8)[:, :, ::-1]))


def rendered_pages(count: int, seed: int) -> Iterator[Page]:
    """Pages printed in several faces and sizes, turned a little and noised a little."""
    if not 0 <= count <= len(PAGES):
        raise ValueError(f"{count} rendered pages asked for, there is text for 0 to {len(PAGES)}")
    random = np.random.default_rng(seed)
    for number, text in enumerate(PAGES[:count]):
        package, file = FACES[number % len(FACES)]
        font = ImageFont.truetype(str(package_file(package, file)), SIZES[number % len(SIZES)])
        yield render(f"page {number + 1}", text, font, random)


def render(name: str, text: str, font: ImageFont.FreeTypeFont, random: np.random.Generator) -> Page:
    """Print `text` on one page, wrapped at the margin, then spoil the page as a scanner would."""
    sheet = Image.new("L", (PAGE_WIDTH, PAGE_HEIGHT), 244)
    draw = ImageDraw.Draw(sheet)
    lines = wrap(text, font, PAGE_WIDTH - 2 * MARGIN)
    pitch = round(font.size * LINE_SPACING)
    if MARGIN + pitch * len(lines) > PAGE_HEIGHT:
        raise ValueError(f"{name}: {len(lines)} lines, {pitch} pixels each, do not fit on {PAGE_HEIGHT} pixels")
    for row, line in enumerate(lines):
        draw.text((MARGIN, MARGIN + row * pitch), line, fill=24, font=font)
    turned = sheet.rotate(random.uniform(-MAX_TURN, MAX_TURN), Image.Resampling.BICUBIC, fillcolor=244)
    noised = np.asarray(turned, np.float32) + random.normal(0.0, NOISE, (PAGE_HEIGHT, PAGE_WIDTH))
    grey = np.clip(noised, 0, 255).astype(np.uint8)
    return Page(name, np.repeat(grey[:, :, None], 3, axis=2), tuple(lines))


def wrap(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """Break `text` into lines that are at most `width` pixels wide in `font`."""
    lines: list[str] = []
    for word in text.split():
        if lines and font.getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def characters_right(truth: Sequence[str], read: Sequence[str]) -> tuple[int, int]:
    """How many of the characters of `truth` (spaces included) were read right, and how many there are.

    What is wrong is the edit distance: each missing, superfluous or mistaken character counts once.
    """
    expected = " ".join(truth)
    wrong = Levenshtein.distance(expected, " ".join(read))
    return max(0, len(expected) - wrong), len(expected)


def _enlarged(image: PixelArray) -> PixelArray:
    shorter, longer = sorted(image.shape[:2])
    factor = min(math.ceil(ENLARGE_BELOW / shorter), ENLARGE_UP_TO // longer)
    if factor <= 1:
        return np.ascontiguousarray(image)
    larger = cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC)
    return np.asarray(larger, np.uint8)
