"""A table as CSV, Markdown and LaTeX, whatever its texts hold; needs nothing beside pandas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bamas_lite.inputs import shown

_LATEX = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
          "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
          "|": r"\textbar{}", '"': r"\textquotedbl{}", "[": "{[}", "]": "{]}"}
"""Brackets in braces: at the start of a line LaTeX would read them as an option of the line before."""


def to_csv(table: pd.DataFrame, path: str | Path | None = None) -> str:
    """The table as CSV, UTF-8; written to `path` too if one is given.

    Raises:
        ValueError: no DataFrame, or one without columns; likewise the others here.
    """
    return _write(_some(table, None).to_csv(index=False, lineterminator="\n"), path)


def to_markdown(table: pd.DataFrame, path: str | Path | None = None, columns: Sequence[str] | None = None) -> str:
    """The table (or some columns of it) as a Markdown table; written to `path` too if one is given.

    Characters that Markdown would read as markup are escaped, dollars too: two of them would enclose a formula.
    """
    header, body = _texts(table, columns, lambda text: "".join(f"\\{c}" if c in r"\`*_|<>$[]~#" else c for c in text))
    lines = [header, ["---"] * len(header), *body]
    return _write("".join(f"| {' | '.join(line)} |\n" for line in lines), path)


def to_latex(table: pd.DataFrame, path: str | Path | None = None, columns: Sequence[str] | None = None, *,
             caption: str = "") -> str:
    """The table (or some columns of it) as a LaTeX longtable with booktabs rules; written to `path` too if given.

    The preamble needs `\\usepackage{longtable,booktabs}` and, for the column widths, nothing else.
    """
    header, body = _texts(table, columns, lambda text: "".join(_LATEX.get(c, c) for c in text))
    width = round(1 / len(header) - 0.02, 3)
    head = " & ".join(header) + " \\\\\n"
    return _write(
        "% needs \\usepackage{longtable,booktabs}\n"
        f"\\begin{{longtable}}{{*{{{len(header)}}}{{p{{{width}\\linewidth}}}}}}\n"
        + (f"\\caption{{{''.join(_LATEX.get(c, c) for c in caption)}}} \\\\\n" if caption else "")
        + f"\\toprule\n{head}\\midrule\n\\endhead\n"
        + "".join(" & ".join(line) + " \\\\\n" for line in body) + "\\bottomrule\n\\end{longtable}\n", path)


def _texts(table: pd.DataFrame, columns: Sequence[str] | None,
           escape: Callable[[str], str]) -> tuple[list[str], list[list[str]]]:
    """Header and body, escaped; each cell on one line."""
    table = _some(table, columns)

    def cell(value: object) -> str:
        if pd.api.types.is_scalar(value) and pd.isna(value):
            return ""
        return escape(" ".join((f"{value:g}" if isinstance(value, float) else str(value)).split()))
    return [cell(name) for name in table.columns], [[cell(v) for v in row] for row in table.itertuples(index=False)]


def _some(table: Any, columns: Any) -> pd.DataFrame:
    """The table, or some columns of it."""
    if not isinstance(table, pd.DataFrame) or not len(table.columns):
        raise ValueError(f"table = {shown(table)}: expected a DataFrame with at least one column")
    if columns is None:
        return table
    there = list(table.columns)
    if isinstance(columns, str) or not len(columns) or any(column not in there for column in columns):
        raise ValueError(f"columns = {shown(columns)}: expected some of {', '.join(map(str, there))}")
    return table[list(columns)]


def _write(text: str, path: str | Path | None) -> str:
    if path is not None:
        Path(path).write_text(text, encoding="utf-8", newline="\n")
    return text
