# SPDX-License-Identifier: BSD-3-Clause
"""What the pictures share: the style, and how they are saved.

They are narrow, so that a telephone shows them with legible letters, and lines differ in their
markers, too.
"""

import os
import re
from xml.sax.saxutils import escape

from . import core

FOLDER = os.path.dirname(os.path.abspath(__file__))
OURS, SECOND, THIRD, FOURTH = "#2f81f7", "#e36209", "#8b949e", "#2da44e"
TEXT = "#24292f"  # it becomes the page's own colour: dark on a light page, light on a dark one
_STYLE = """
<style>
:root {color: #24292f; font-family: sans-serif}
@media (prefers-color-scheme: dark) {:root {color: #e6edf3}}
</style>"""


# What to leave out of matplotlib's file, and the text colour, which has to follow the page.
_SHORTER = (
    (r"<metadata>.*?</metadata>\s*", ""),
    (r"<!DOCTYPE.*?>\n", ""),
    (r"font-family: [^;]*; ", ""),
    (r"(\d\.\d\d)\d+", r"\1"),
    (r" *\n(?=[MLz\"])", " "),
    (r" transform=\"rotate\(-0 [^)]*\)\"", ""),
    (TEXT, "currentColor"),
    (r"^(.*?<svg .*?>)", r"\1" + _STYLE),
)


def figure(height):
    """An empty picture, and its axes."""
    try:
        import matplotlib
    except ImportError as error:
        raise core.Unavailable("--plot needs matplotlib: {}".format(error)) from error
    matplotlib.use("svg")
    from matplotlib import pyplot

    colours = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "text.color")
    pyplot.rcParams.update(dict.fromkeys(colours, TEXT))
    pyplot.rcParams.update(
        {
            "axes.spines.right": False,
            "axes.spines.top": False,
            "font.size": 9,
            "grid.alpha": 0.3,
            "svg.fonttype": "none",
            "svg.hashsalt": "the same names each time",
        }
    )
    return pyplot.subplots(figsize=(4.2, height), layout="constrained")


def save(picture, path, title):
    picture.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    with open(path, encoding="utf-8") as file:
        text = file.read()
    titled = (r"^(.*?<svg .*?>)", r"\1\n<title>%s</title>" % escape(title))
    for pattern, replacement in (*_SHORTER, titled):
        text = re.sub(pattern, replacement, text, flags=re.S)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(line.rstrip() for line in text.splitlines()) + "\n")


def microseconds(number):
    """An amount of time for an axis or a label."""
    if number >= 1000:
        return "{:.3g} ms".format(number / 1000)
    return "{:.3g} µs".format(number)


def in_time(axis):
    """Label a logarithmic axis, in microseconds."""
    axis.set_major_formatter(lambda number, _: microseconds(number))
    axis.set_minor_formatter(lambda number, _: "")
