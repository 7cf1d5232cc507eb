"""The committed results in one table, and what README.md says of them."""

from __future__ import annotations

from math import exp
from pathlib import Path

import pandas as pd

from bamas_lite.inputs import in_folder
from bamas_lite.paths import DATA
from bamas_lite.reproduction.draws import ASSUMED
from bamas_lite.reproduction.exports import to_markdown
from bamas_lite.reproduction.findings import reproduction_table, status_summary
from bamas_lite.reproduction.published import check_published, load_published
from bamas_lite.reproduction.results import load_results
from bamas_lite.reproduction.tables import check_table

BEGIN = "<!-- reproduction: written by `make reproduce`, compared by a test -->"
END = "<!-- end of reproduction -->"
RESULTS = DATA / "reproduction"
README = DATA.parent / "README.md"
"""Not there where the package is installed from a wheel."""


def committed_table(published: pd.DataFrame | None = None, folder: str | Path | None = None) -> pd.DataFrame:
    """`reproduction_table` of the committed results, or of those in `folder`.

    Args:
        published: other published rows; None: those of the paper.
        folder: where a run of your own wrote rows, paired, draws and prediction.

    Raises:
        ValueError: a result file is missing, or a table in it cannot be used; the message names file or folder.
        PublishedFileError: published rows that cannot be used.
    """
    folder = RESULTS if folder is None else in_folder(folder, "folder")
    published = load_published() if published is None else published
    check_published(published)
    tables = {name: load_results(name, folder) for name in ("paired", "draws", "prediction", "headlines")}
    try:
        for name in ("prediction", "headlines"):
            check_table(tables[name], name, texts=("given",))
            # Intervals of rows are those of the fit's errors: over all ranges they would be too wide to tell anything.
            tables[name] = tables[name][tables[name]["given"] == ASSUMED]
        return reproduction_table(load_results("rows", folder), published, **tables)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def readme_block() -> str:
    """The status of all claims, and the coverage of fitted and held-out rows, in Markdown (simulated)."""
    statuses = status_summary(committed_table())
    found = load_results("coverage")
    found = found.assign(
        covered=[f"{row.covered:.0f} of {row.rows}" for row in found.itertuples()],
        error=[f"{row.error:.1f} points" if row.metric == "accuracy" else f"factor {exp(row.error):.2f}"
               for row in found.itertuples()],
        width=[f"{row.width:.1f} points" if row.metric == "accuracy" else f"factor {row.width:.1f}"
               for row in found.itertuples()])
    return (f"{to_markdown(statuses)}\n"
            f"{to_markdown(found[['given', 'kind', 'metric', 'covered', 'error', 'width']])}").strip()


def check_readme(readme: Path = README) -> str | None:
    """The text of the README that the block can be written to, or None where there is none.

    To be called before a long run, whose last step is `write_readme`.

    Raises:
        ValueError: not readable, or without the two marks, each once and in their order.
    """
    if not readme.exists():
        return None
    try:
        text = readme.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ValueError(f"{readme}: cannot be read ({problem})") from None
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"{readme}: expected the line {BEGIN} once and, after it, {END} once")
    return text


def write_readme(readme: Path = README) -> None:
    """Put the block between its marks; does nothing where there is no README.

    Raises:
        ValueError: as `check_readme`; nothing is written.
    """
    text = check_readme(readme)
    if text is not None:
        before, _, rest = text.partition(BEGIN)
        block, after = readme_block(), rest.partition(END)[2]
        readme.write_text(f"{before}{BEGIN}\n\n{block}\n\n{END}{after}", encoding="utf-8")
