# SPDX-License-Identifier: Apache-2.0
"""Cutting out a line and reading the answers of the classifier and the recogniser."""

from __future__ import annotations

import numpy as np
import pytest

from aioascend.demo import lines

ALPHABET = ("", "a", "b", "c", " ")


def answer_of(classes: str, likely: float = 0.9) -> lines.FloatArray:
    """A recogniser's answer: at each step one character is the likeliest; "-" stands for the blank."""
    steps = np.full((len(classes), len(ALPHABET)), (1 - likely) / (len(ALPHABET) - 1), np.float32)
    for step, character in enumerate(classes):
        steps[step, ALPHABET.index("" if character == "-" else character)] = likely
    return steps[None]


@pytest.mark.parametrize(
    ("classes", "text"),
    [
        ("abc", "abc"),
        ("-a-b-c-", "abc"),
        ("aaabbb", "ab"),
        ("a-a", "aa"),
        ("aa-aa-b", "aab"),
        ("a b", "a b"),
        ("ab ba", "ab ba"),
        ("-----", ""),
    ],
)
def test_repeats_are_one_character_unless_a_blank_is_between(classes: str, text: str) -> None:
    read, score = lines.read_text(answer_of(classes), ALPHABET)
    assert read == text
    assert score == pytest.approx(0.9 if text else 0.0)


def test_the_score_is_that_of_the_characters_not_of_the_blanks() -> None:
    answer = answer_of("-a--b-", likely=0.9)
    answer[0, 1, 1] = 0.5
    assert lines.read_text(answer, ALPHABET) == ("ab", pytest.approx(0.7))


def test_an_alphabet_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="5 classes, the alphabet 4"):
        lines.read_text(answer_of("abc"), ALPHABET[:4])


@pytest.mark.parametrize(
    ("upright", "upside_down", "expected"), [(0.9, 0.1, False), (0.05, 0.95, True), (0.2, 0.8, False)]
)
def test_a_line_is_turned_only_when_the_classifier_is_sure(upright: float, upside_down: float, expected: bool) -> None:
    assert lines.is_upside_down(np.array([[upright, upside_down]], np.float32)) is expected


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [(48, 1, 320), (48, 320, 320), (48, 321, 640), (24, 320, 640), (48, 1280, 1280), (10, 5000, 1280)],
)
def test_recognition_runs_at_the_smallest_width_that_holds_the_line(height: int, width: int, expected: int) -> None:
    line = np.full((height, width, 3), 255, np.uint8)
    tensor = lines.recogniser_input(line)
    assert tensor.shape == (1, 3, 48, expected)
    assert tensor.dtype == np.float32
    filled = min(expected, -(-width * 48 // height))
    assert (tensor[..., :filled] == 1.0).all()
    assert not tensor[..., filled:].any()


def test_the_classifier_sees_one_shape() -> None:
    for width in (10, 192, 900):
        assert lines.classifier_input(np.zeros((48, width, 3), np.uint8)).shape == (1, 3, 48, 192)


def test_cutting_out_keeps_the_pixels_of_a_straight_box() -> None:
    page = np.random.default_rng(5).integers(0, 256, (200, 300, 3), np.uint8)
    box = np.array([[40, 60], [240, 60], [240, 90], [40, 90]], np.float32)
    np.testing.assert_array_equal(lines.cut_out(page, box), page[60:90, 40:240])


def test_a_box_that_stands_upright_is_laid_down() -> None:
    page = np.random.default_rng(5).integers(0, 256, (300, 200, 3), np.uint8)
    box = np.array([[60, 40], [90, 40], [90, 240], [60, 240]], np.float32)
    np.testing.assert_array_equal(lines.cut_out(page, box), np.rot90(page[40:240, 60:90]))


def test_a_box_that_reaches_over_the_edge_is_continued_with_the_edge() -> None:
    page = np.full((50, 50, 3), 200, np.uint8)
    box = np.array([[-10, -5], [60, -5], [60, 20], [-10, 20]], np.float32)
    assert (lines.cut_out(page, box) == 200).all()
