# SPDX-License-Identifier: Apache-2.0
"""Pre- and post-processing of the detector, on maps whose boxes are known."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from aioascend.demo import detect


@pytest.mark.parametrize(
    ("height", "width", "size"),
    [
        (1, 1, (640, 640)),
        (640, 640, (640, 640)),
        (641, 640, (960, 736)),
        (573, 1152, (640, 1280)),
        (928, 704, (960, 736)),
        (1280, 960, (1280, 960)),
        (4000, 3000, (1280, 960)),
        (900, 4000, (640, 1280)),
    ],
)
def test_a_page_runs_at_the_smallest_size_that_holds_it(height: int, width: int, size: tuple[int, int]) -> None:
    assert detect.detector_size(height, width) == size


def test_sizes_are_what_the_detector_can_take() -> None:
    assert all(side % 32 == 0 for size in detect.SIZES for side in size)


def test_a_page_that_fits_is_neither_moved_nor_scaled() -> None:
    image = np.random.default_rng(1).integers(0, 256, (600, 500, 3), np.uint8)
    prepared = detect.detector_input(image)
    assert prepared.scale == 1.0
    assert prepared.tensor.dtype == np.float32
    assert prepared.tensor.shape == (1, 3, 640, 640)
    back = (prepared.tensor[0, :, :600, :500].transpose(1, 2, 0) + 1) * 127.5
    np.testing.assert_allclose(back, image, atol=1e-3)
    assert not prepared.tensor[0, :, 600:].any()
    assert not prepared.tensor[0, :, :, 500:].any()


def test_a_large_page_is_shrunk_and_its_boxes_are_not() -> None:
    prepared = detect.detector_input(np.full((2560, 1000, 3), 255, np.uint8))
    assert prepared.tensor.shape == (1, 3, 1280, 960)
    assert prepared.scale == 0.5
    assert (prepared.tensor[0, :, :1280, :500] == 1.0).all()
    assert not prepared.tensor[0, :, :, 501:].any()

    (box,) = detect.find_boxes(map_with(((100, 300), (200, 20), 0)), scale=0.5)
    np.testing.assert_allclose(box.mean(axis=0), (200, 600), atol=2)


def map_with(*cores: tuple[tuple[float, float], tuple[float, float], float], likely: float = 0.9) -> detect.FloatArray:
    """A detector's answer: `likely` inside rectangles given as centre, size and angle, 0 elsewhere."""
    heat = np.zeros((640, 640), np.float32)
    for core in cores:
        cv2.fillPoly(heat, [np.round(cv2.boxPoints(core)).astype(np.int32)], (likely,))
    return heat[None, None]


@pytest.mark.parametrize("angle", [-3.0, 0.0, 2.0])
def test_a_core_is_grown_on_all_sides_by_the_same(angle: float) -> None:
    (box,) = detect.find_boxes(map_with(((320, 200), (300, 20), angle)), scale=1.0)
    grown = detect.GROWTH * 300 * 20 / (300 + 20)
    top, right, bottom, left = np.linalg.norm(np.roll(box, -1, axis=0) - box, axis=1)
    np.testing.assert_allclose((top, bottom), 300 + grown, atol=6)
    np.testing.assert_allclose((left, right), 20 + grown, atol=6)
    np.testing.assert_allclose(box.mean(axis=0), (320, 200), atol=1.5)


def test_corners_go_clockwise_from_the_top_left() -> None:
    (box,) = detect.find_boxes(map_with(((320, 200), (300, 20), 2.0)), scale=1.0)
    (left_top, right_top, right_bottom, left_bottom) = box
    assert left_top[0] < right_top[0]
    assert left_bottom[0] < right_bottom[0]
    assert left_top[1] < left_bottom[1]
    assert right_top[1] < right_bottom[1]


def test_what_is_unlikely_or_thin_is_no_text() -> None:
    unsure = map_with(((320, 100), (300, 20), 0), likely=0.4)
    thin = map_with(((320, 100), (300, 0), 0))
    assert detect.find_boxes(unsure, scale=1.0) == []
    assert detect.find_boxes(thin, scale=1.0) == []
    assert detect.find_boxes(np.zeros((1, 1, 640, 640), np.float32), scale=1.0) == []


def test_a_curved_line_is_found_though_its_box_is_mostly_empty() -> None:
    x = np.arange(40, 600, 4)
    curve = np.stack([x, 200 + 40 * np.sin(x / 180)], axis=1).astype(np.int32)
    heat = np.zeros((640, 640), np.float32)
    cv2.polylines(heat, [curve], False, (0.9,), 12)
    assert len(detect.find_boxes(heat[None, None], scale=1.0)) == 1


@pytest.mark.parametrize("turn", [-2.0, 0.0, 2.0])
def test_reading_order_is_row_by_row_on_a_turned_page(turn: float) -> None:
    # Two columns whose rows drift by more than half a line because the page is turned.
    places = [(column, row) for row in (100, 140, 180) for column in (120, 500)]
    about = cv2.getRotationMatrix2D((320, 320), -turn, 1.0)
    centres = [about @ (x, y, 1) for x, y in places]
    boxes = [
        cv2.boxPoints(((float(x), float(y)), (200.0, 24.0), turn)).astype(np.float32)[[1, 2, 3, 0]] for x, y in centres
    ]
    shuffled = np.random.default_rng(3).permutation(len(boxes)).tolist()
    order = detect.reading_order([detect._clockwise(boxes[index]) for index in shuffled])
    assert [shuffled[index] for index in order] == list(range(len(boxes)))
