# SPDX-License-Identifier: Apache-2.0
"""The pages: rendered, photographed, from the user's files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFont

from aioascend.demo.pages import (
    Page,
    characters_right,
    default_pages,
    photographed_page,
    read_page,
    rendered_pages,
    wrap,
)


def test_the_default_is_one_photograph_and_ten_rendered_pages(pages: list[Page]) -> None:
    assert [page.truth is None for page in pages] == [True] + [False] * 10
    for page in pages:
        assert page.image.dtype == np.uint8
        assert page.image.ndim == 3
        assert page.image.flags.c_contiguous
    assert photographed_page().image.shape == (573, 1152, 3)


def test_a_seed_gives_the_same_pixels_and_another_seed_others(pages: list[Page]) -> None:
    again = list(rendered_pages(2, seed=7))
    other = list(rendered_pages(2, seed=8))
    for ours, same, different in zip(pages[1:3], again, other, strict=True):
        np.testing.assert_array_equal(ours.image, same.image)
        assert ours.truth == same.truth == different.truth
        assert (ours.image != different.image).any()


def test_more_pages_than_there_is_text_for() -> None:
    with pytest.raises(ValueError, match="11 rendered pages asked for, there is text for 0 to 10"):
        default_pages(rendered=11)


def test_wrapping_keeps_the_words_and_the_width() -> None:
    font = ImageFont.load_default(20)
    assert isinstance(font, ImageFont.FreeTypeFont)
    text = "one two three four five six seven eight nine ten"
    wrapped = wrap(text, font, 120)
    assert " ".join(wrapped) == text
    assert len(wrapped) > 1
    assert all(font.getlength(line) <= 120 for line in wrapped)
    assert all(font.getlength(f"{line} {following.split()[0]}") > 120 for line, following in pairwise(wrapped))


@pytest.mark.parametrize(
    ("read", "right"),
    [
        (["abc def", "ghi"], 11),
        (["abcdef", "ghi"], 10),
        (["abc def ghi"], 11),
        (["abX def", "ghi"], 10),
        (["abc def"], 7),
        (["abc def", "ghi", "jkl"], 7),
        ([], 0),
        (["completely different and longer"], 0),
    ],
)
def test_characters_right_is_what_the_edit_distance_leaves(read: list[str], right: int) -> None:
    counted, total = characters_right(["abc def", "ghi"], read)
    assert total == 11
    if right:
        assert counted == right
    else:
        assert 0 <= counted < 4


def test_an_image_is_read_in_opencv_order_and_enlarged_only_if_small(tmp_path: Path) -> None:
    blue = np.zeros((700, 800, 3), np.uint8)
    blue[..., 2] = 255  # Pillow has red first
    Image.fromarray(blue).save(tmp_path / "blue.png")
    page = read_page(tmp_path / "blue.png")
    assert page.name == "blue.png"
    assert page.truth is None
    assert page.image.shape == (700, 800, 3)
    assert page.image[0, 0].tolist() == [255, 0, 0]

    Image.fromarray(blue[:100, :400]).save(tmp_path / "strip.png")
    assert read_page(tmp_path / "strip.png").image.shape == (300, 1200, 3)


def test_a_photograph_taken_sideways_is_set_upright(tmp_path: Path) -> None:
    picture = Image.new("RGB", (800, 600))
    exif = picture.getexif()
    exif[0x0112] = 6  # orientation: to be turned by 90 degrees
    picture.save(tmp_path / "sideways.jpg", exif=exif)
    assert read_page(tmp_path / "sideways.jpg").image.shape == (800, 600, 3)


def test_files_that_are_no_images_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no such image: .*missing\.png"):
        read_page(tmp_path / "missing.png")
    text = tmp_path / "text.png"
    text.write_text("no image")
    with pytest.raises(ValueError, match=r"not an image that can be read: .*text\.png"):
        read_page(text)
    Image.new("L", (2000, 2000), 7).save(tmp_path / "whole.png")
    cut = tmp_path / "cut.png"
    cut.write_bytes((tmp_path / "whole.png").read_bytes()[:-60])
    with pytest.raises(ValueError, match=r"not an image that can be read: .*cut\.png"):
        read_page(cut)
