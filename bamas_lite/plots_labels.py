"""Names beside points and lines of a figure, where they cover nothing. All measure the layout as it is when called."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox
from scipy.optimize import isotonic_regression

INK = "#222222"


def name_points(ax: Axes, x: np.ndarray, y: np.ndarray, names: Sequence[str], sizes: Sequence[float]) -> None:
    """Names beside points of some radius: each at the first place of several that covers no point or name."""
    ax.figure.draw_without_rendering()     # so that the layout, and with it every place, is final
    centers = ax.transData.transform(np.column_stack([x, y]))
    halves = np.array(sizes) * ax.figure.dpi / 72
    taken = [Bbox.from_extents(*(c - half), *(c + half)) for c, half in zip(centers, halves, strict=True)]
    for i in np.argsort(x, kind="stable"):
        r = sizes[i] + 2
        tried: list[tuple[float, Annotation, Bbox]] = []
        for dx, dy, side in [(dx, dy, side) for far in range(4) for dx, dy, side in (
                (r, -3 + 6 * far, "left"), (-r, -3 + 6 * far, "right"), (0, r + 6 * far, "center"),
                (0, -r - 6 - 6 * far, "center"), (r, -9 - 6 * far, "left"), (-r, -9 - 6 * far, "right"))]:
            note = ax.annotate(names[i], (x[i], y[i]), (dx, dy), textcoords="offset points", size=7.5, ha=side,
                               color=INK, path_effects=[withStroke(linewidth=2, foreground="white")])
            box = note.get_window_extent()
            covered = sum(_overlap(box, other) for k, other in enumerate(taken) if k != i)
            covered += box.width * box.height - _overlap(box, ax.bbox)
            tried.append((covered, note, box))
            if not covered > 0:
                break
        least = min(tried, key=lambda place: place[0])
        for place in tried:
            if place is not least:
                place[1].remove()
        taken.append(least[2])


def _overlap(a: Bbox, b: Bbox) -> float:
    both = Bbox.intersection(a, b)
    return 0.0 if both is None else both.width * both.height


def name_ends(ax: Axes, x: float, ends: Sequence[tuple[float, str, str, bool]]) -> None:
    """Names of lines right of the axes, at the height of their ends but never closer than a line of text."""
    ax.figure.draw_without_rendering()
    size = 8
    least, most = ax.get_ylim()
    gap = 1.25 * size * ax.figure.dpi / 72 / ax.bbox.height * (most - least)
    ends = sorted(ends)
    at = apart(np.array([end[0] for end in ends]), gap)
    at -= max(0, at[-1] - most) if at[-1] - at[0] <= most - least else 0
    for (y, name, color, bold), height in zip(ends, at, strict=True):
        ax.annotate(name, (x, y), (1.03, (height - least) / (most - least)), textcoords="axes fraction", va="center",
                    size=size, color=color, fontweight="bold" if bold else "normal",
                    arrowprops={"arrowstyle": "-", "color": color, "lw": 0.6, "shrinkA": 1, "shrinkB": 1,
                                "relpos": (0, 0.5)})


def apart(heights: np.ndarray, gap: float) -> np.ndarray:
    """Sorted heights moved as little as possible (least squares) so that neighbors are at least `gap` apart."""
    steps = gap * np.arange(len(heights))
    return isotonic_regression(heights - steps).x + steps
