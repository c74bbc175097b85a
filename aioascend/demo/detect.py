# SPDX-License-Identifier: Apache-2.0
"""Text detection: a page becomes the detector's input, the detector's map of text becomes boxes.

The detector (PP-OCRv4, "differentiable binarization") answers for each pixel how likely it lies in the core
of a line of text: the line, thinned. So each connected core is a line, and its box has to be grown back.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from aioascend.demo.pages import PixelArray

FloatArray = NDArray[np.float32]

# The sizes (height, width) that detection runs at: a model compiled for an NPU has fixed ones.
SIZES = ((640, 640), (960, 736), (640, 1280), (1280, 960))

TEXT = 0.3  # a pixel at least this likely belongs to text
SURE = 0.5  # a core is kept if its pixels are this likely on average
GROWTH = 1.6  # how far cores are grown: growth x area / circumference pixels on each side
THINNEST = 3  # pixels of the detector's map: anything thinner is dirt


@dataclass(frozen=True)
class DetectorInput:
    """`tensor` is float32 [1, 3, H, W], (H, W) one of SIZES; `scale` (at most 1) tells how it was shrunk."""

    tensor: FloatArray
    scale: float


def detector_size(height: int, width: int) -> tuple[int, int]:
    """The smallest of SIZES that holds the page; if none does, the one in which it has to shrink least."""
    return max(SIZES, key=lambda size: (_fit(size, height, width), -size[0] * size[1]))


def _fit(size: tuple[int, int], height: int, width: int) -> float:
    return min(1.0, size[0] / height, size[1] / width)


def detector_input(image: PixelArray) -> DetectorInput:
    """Shrink the page into one of SIZES (never enlarge it), top left; the rest is grey."""
    height, width = image.shape[:2]
    size = detector_size(height, width)
    scale = _fit(size, height, width)
    if scale < 1.0:
        shape = max(1, round(width * scale)), max(1, round(height * scale))
        image = np.asarray(cv2.resize(image, shape, interpolation=cv2.INTER_AREA), np.uint8)
    tensor = np.zeros((1, 3, *size), np.float32)
    tensor[0, :, : image.shape[0], : image.shape[1]] = normalised(image)
    return DetectorInput(tensor, scale)


def normalised(image: PixelArray) -> FloatArray:
    """uint8 [H, W, 3] in 0..255 -> float32 [3, H, W] in -1..1, the range of all three models."""
    tensor: FloatArray = image.transpose(2, 0, 1).astype(np.float32)
    tensor /= 127.5
    tensor -= 1.0
    return tensor


def find_boxes(likely: FloatArray, scale: float) -> list[FloatArray]:
    """The boxes of the lines of text, in reading order.

    `likely` is the detector's answer, [1, 1, H, W]. A box is float32 [4, 2]: x and y of its corners in pixels
    of the page, from the top left one clockwise.
    """
    heat = likely[0, 0]
    # The dilation joins cores that touch only at a corner.
    mask = cv2.dilate((heat > TEXT).astype(np.uint8), np.ones((2, 2), np.uint8))
    outlines, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    boxes = []
    for outline in outlines:
        centre, (width, height), angle = cv2.minAreaRect(outline)
        if min(width, height) < THINNEST or _average_inside(heat, outline) < SURE:
            continue
        grown = GROWTH * width * height / (width + height)  # both sides together
        box = cv2.boxPoints((centre, (width + grown, height + grown), angle))
        boxes.append(_clockwise(np.asarray(box, np.float32)) / np.float32(scale))
    return [boxes[index] for index in reading_order(boxes)]


def _average_inside(heat: FloatArray, outline: cv2.typing.MatLike) -> float:
    """The average inside the outline itself, not inside its box: of a curved line's box most is empty."""
    left, top, width, height = cv2.boundingRect(outline)
    inside = np.zeros((height, width), np.uint8)
    cv2.fillPoly(inside, [outline], (1,), offset=(-left, -top))
    return float(cv2.mean(heat[top : top + height, left : left + width], inside)[0])


def _clockwise(corners: FloatArray) -> FloatArray:
    """Start with the top left corner: of the two leftmost corners the upper one."""
    left = corners[np.argsort(corners[:, 0], kind="stable")]
    top_left, bottom_left = left[:2][np.argsort(left[:2, 1], kind="stable")]
    top_right, bottom_right = left[2:][np.argsort(left[2:, 1], kind="stable")]
    return np.stack([top_left, top_right, bottom_right, bottom_left])


def reading_order(boxes: list[FloatArray]) -> list[int]:
    """Indices of the boxes row by row, each row from left to right, on a page that may be turned a little."""
    if not boxes:
        return []
    corners = np.stack(boxes)
    edges = corners[:, 1] - corners[:, 0]
    turn = np.median(np.arctan2(edges[:, 1], edges[:, 0]))
    straight = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    centres = corners.mean(axis=1) @ straight
    heights = np.linalg.norm(corners[:, 3] - corners[:, 0], axis=1)

    rows: list[list[int]] = []
    for index in np.argsort(centres[:, 1], kind="stable").tolist():
        first = rows[-1][0] if rows else None
        if first is not None and centres[index, 1] - centres[first, 1] < heights[first] / 2:
            rows[-1].append(index)
        else:
            rows.append([index])
    return [index for row in rows for index in sorted(row, key=lambda each: float(centres[each, 0]))]
