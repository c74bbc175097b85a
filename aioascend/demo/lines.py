# SPDX-License-Identifier: Apache-2.0
"""One line of text: cut it out of the page, make the inputs of its two models, read their answers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np

from aioascend.demo.detect import FloatArray, normalised
from aioascend.demo.pages import PixelArray

LINE_HEIGHT = 48  # pixels, what both models want
CLASSIFIER_WIDTH = 192
# The widths that recognition runs at: a model compiled for an NPU has fixed ones.
WIDTHS = (320, 640, 960, 1280)

UPSIDE_DOWN = 1  # the classifier's second class
SURE_OF_TURN = 0.9
SURE_OF_TEXT = 0.5  # below this a line is taken for something that is not text
BLANK = 0  # the recogniser's class for "no new character here"


def cut_out(image: PixelArray, box: FloatArray) -> PixelArray:
    """The part of the page inside `box` (see `detect.find_boxes`), straightened, and laid down if upright."""
    top, right, bottom, left = np.linalg.norm(np.roll(box, -1, axis=0) - box, axis=1)
    width, height = max(1, round(max(top, bottom))), max(1, round(max(left, right)))
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    line = cv2.warpPerspective(
        image,
        cv2.getPerspectiveTransform(box, corners),
        (width, height),
        flags=cv2.INTER_CUBIC,
        borderMode=cv2.BORDER_REPLICATE,
    )
    if height >= 1.5 * width:
        line = np.rot90(line)
    return np.ascontiguousarray(line, np.uint8)


def turned_around(line: PixelArray) -> PixelArray:
    """The line turned by 180 degrees."""
    return np.ascontiguousarray(line[::-1, ::-1])


def classifier_input(line: PixelArray) -> FloatArray:
    """float32 [1, 3, 48, 192]; a long line is squeezed, a short one padded."""
    return _line_tensor(line, CLASSIFIER_WIDTH)


def is_upside_down(answer: FloatArray) -> bool:
    """Read the classifier's answer, [1, 2]: how likely the line is upright, and upside down."""
    return float(answer[0, UPSIDE_DOWN]) > SURE_OF_TURN


def recogniser_width(line: PixelArray) -> int:
    """The smallest of WIDTHS that holds the line at its height of 48, at most the largest."""
    natural = math.ceil(line.shape[1] * LINE_HEIGHT / line.shape[0])
    return next((width for width in WIDTHS if natural <= width), WIDTHS[-1])


def recogniser_input(line: PixelArray) -> FloatArray:
    """float32 [1, 3, 48, W] with W one of WIDTHS; a line longer than the longest is squeezed."""
    return _line_tensor(line, recogniser_width(line))


def _line_tensor(line: PixelArray, width: int) -> FloatArray:
    natural = math.ceil(line.shape[1] * LINE_HEIGHT / line.shape[0])
    resized = cv2.resize(line, (min(width, natural), LINE_HEIGHT))
    tensor = np.zeros((1, 3, LINE_HEIGHT, width), np.float32)
    tensor[0, :, :, : resized.shape[1]] = normalised(np.asarray(resized, np.uint8))
    return tensor


def read_text(answer: FloatArray, alphabet: Sequence[str]) -> tuple[str, float]:
    """The text of the recogniser's answer and how sure it is of it, 0 to 1.

    `answer` is [1, T, classes], for each of T steps from left to right the likelihood of each class. A
    character lasts as long as its class stays the likeliest; a blank tells a double letter from a long one.
    """
    steps = answer[0]
    if steps.shape[1] != len(alphabet):
        raise ValueError(
            f"the recogniser has {steps.shape[1]} classes, the alphabet {len(alphabet)} characters: "
            "they do not belong together"
        )
    best = steps.argmax(axis=1)
    starts = np.flatnonzero((best != np.concatenate(([BLANK], best[:-1]))) & (best != BLANK))
    if not starts.size:
        return "", 0.0
    text = "".join(alphabet[index] for index in best[starts])
    return text, float(steps[starts, best[starts]].mean())
