"""Colors of elements, with their common names."""

from __future__ import annotations

import colorsys
import re

from playwright.sync_api import Locator

_NAMES = ((18, "red"), (65, "amber"), (170, "green"), (265, "blue"), (330, "purple"), (361, "red"))


def rgb(locator: Locator, css_property: str = "color") -> tuple[float, float, float]:
    """Return the computed color, each channel from 0 to 255. A canvas converts every CSS notation."""
    channels = locator.evaluate(
        """(element, property) => {
            const canvas = document.createElement("canvas").getContext("2d");
            canvas.fillStyle = getComputedStyle(element)[property];
            canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data].join(",");
        }""",
        css_property,
    )
    red, green, blue, _ = map(float, re.split(",", channels))
    return red, green, blue


def color_name(color: tuple[float, float, float]) -> str:
    hue, _, saturation = colorsys.rgb_to_hls(*(part / 255 for part in color))
    if saturation < 0.15:
        return "grey"
    return next(name for limit, name in _NAMES if hue * 360 < limit)


def background(locator: Locator) -> tuple[float, float, float]:
    """Return the color behind the text of an element: its backgrounds and those around it, painted on each other."""
    channels = locator.evaluate(
        """(element) => {
            const colors = [];
            for (let one = element; one; one = one.parentElement) colors.unshift(getComputedStyle(one).backgroundColor);
            const canvas = document.createElement("canvas").getContext("2d");
            for (const color of ["white", ...colors]) {
                canvas.fillStyle = color;
                canvas.fillRect(0, 0, 1, 1);
            }
            return [...canvas.getImageData(0, 0, 1, 1).data].join(",");
        }"""
    )
    red, green, blue, _ = map(float, channels.split(","))
    return red, green, blue


def contrast(first: tuple[float, float, float], second: tuple[float, float, float]) -> float:
    """Return the contrast ratio of two colors as WCAG defines it, from 1 to 21."""
    darker, lighter = sorted(_luminance(color) for color in (first, second))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: tuple[float, float, float]) -> float:
    parts = [part / 255 for part in color]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
