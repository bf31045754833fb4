"""What colour something is, as people would name it."""

from __future__ import annotations

import colorsys
import re

from playwright.sync_api import Locator

_NAMES = ((18, "red"), (65, "amber"), (170, "green"), (265, "blue"), (330, "purple"), (361, "red"))


def rgb(locator: Locator, what: str = "color") -> tuple[float, float, float]:
    """As it is computed, from 0 to 255; drawn on a canvas, so that it does not matter how it was said."""
    said = locator.evaluate(
        """(element, what) => {
            const canvas = document.createElement("canvas").getContext("2d");
            canvas.fillStyle = getComputedStyle(element)[what];
            canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data].join(",");
        }""",
        what,
    )
    red, green, blue, _ = map(float, re.split(",", said))
    return red, green, blue


def color_name(color: tuple[float, float, float]) -> str:
    hue, _, saturation = colorsys.rgb_to_hls(*(part / 255 for part in color))
    if saturation < 0.15:
        return "grey"
    return next(name for limit, name in _NAMES if hue * 360 < limit)


def background(locator: Locator) -> tuple[float, float, float]:
    """What something stands on: the first background, from itself outwards, that is not see-through."""
    while locator.evaluate("one => getComputedStyle(one).backgroundColor") == "rgba(0, 0, 0, 0)":
        locator = locator.locator("..")
    return rgb(locator, "backgroundColor")


def contrast(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """How well one is read on the other, as WCAG counts it: from 1 to 21."""
    darker, lighter = sorted(_luminance(color) for color in (one, other))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: tuple[float, float, float]) -> float:
    parts = [part / 255 for part in color]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
