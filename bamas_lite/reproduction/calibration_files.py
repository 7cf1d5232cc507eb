"""The files of the fit in `data/simulation/`: what was fitted, to which rows, and what is left.

`fitted.yaml` and `fitted_one_bamas_row.yaml` are parameters of the simulated LLM. For both fits, `fit_rows.csv` has the
rows with their residuals, `fit_parameters.csv` every parameter with its status and its error from the curvature of the
loss (which is flatter than squares, so that the spread of draws, `Fit.draw`, is smaller for some), and
`fit_summary.csv` the counts and spreads. Numbers are rounded, so that another processor writes the same files.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from bamas_lite.inputs import command, in_folder, out_folder
from bamas_lite.paths import BUILD, DATA
from bamas_lite.reproduction.calibration import Fit, baseline_rows, fit, own_tasks, second_fit
from bamas_lite.reproduction.fit_problem import CITED
from bamas_lite.reproduction.published import DATASETS, load_published
from bamas_lite.tasks import Task, TaskFileError, load_tasks

_DIGITS = {"skill": 3, "completion_tokens": 1, "system_tokens": 3, "system_shift": 3}
_HEAD = """# Written by `make calibrate`: do not edit. {description}.
# What this file does not state keeps the value of its base. Residuals, errors and spreads: fit_*.csv.
"""


def both_fits(published: pd.DataFrame, tasks: Mapping[str, Sequence[Task]] | None = None) -> dict[str, Fit]:
    """The fit to the baselines and the second one, by the name of their file."""
    first = fit(baseline_rows(published), tasks)
    return {"fitted": first, "fitted_one_bamas_row": second_fit(published, tasks)}


def file_texts(fits: Mapping[str, Fit]) -> dict[str, str]:
    """File name -> content."""
    texts = {f"{name}.yaml": _yaml(f, name) for name, f in fits.items()}
    for kind, table in (("rows", rows_table), ("parameters", parameters_table), ("summary", summary_table)):
        texts[f"fit_{kind}.csv"] = table(fits).to_csv(index=False, lineterminator="\n")
    return texts


def _yaml(f: Fit, name: str) -> str:
    content: dict[str, Any] = f.parameters(name)
    for entry, digits in _DIGITS.items():
        value = content[entry]["value"]
        content[entry]["value"] = {domain: {who: _rounded(v, digits) for who, v in by_who.items()}
                                   for domain, by_who in value.items()}
    text = yaml.safe_dump(content, sort_keys=False, width=10**6, default_flow_style=None, allow_unicode=True)
    return _HEAD.format(description=f.description) + text


def _rounded(value: float, digits: int) -> float:
    return round(float(value), digits) + 0.0  # no -0.0


def rows_table(fits: Mapping[str, Fit]) -> pd.DataFrame:
    """The fitted rows: percent, u$, and how far off the fit is, also in standard deviations of the number."""
    parts = []
    for name, f in fits.items():
        r = f.rows
        off = r.accuracy_fit - r.accuracy
        parts.append(pd.DataFrame({
            "fit": name, "dataset": r.dataset, "system": r.system, "setting": r.setting, "weight": r.weight.round(3),
            "accuracy": (100 * r.accuracy).round(1), "accuracy_fit": (100 * r.accuracy_fit).round(2),
            "accuracy_residual": (100 * off).round(2), "accuracy_z": (off / r.accuracy_sd).round(2),
            "cost": r.cost.round(1), "cost_fit": r.cost_fit.round(1),
            "log_cost_residual": r.log_cost_residual.round(3)}))
    return pd.concat(parts, ignore_index=True).replace(-0.0, 0.0)


def parameters_table(fits: Mapping[str, Fit]) -> pd.DataFrame:
    """Every fitted, cited or derived number; the error of a log is relative."""
    lines = []
    for name, f in fits.items():
        errors = np.sqrt(np.diag(f.covariance))
        for n, error in zip(f.names, errors, strict=True):
            value = f.value(n.entry, n.dataset, n.who)
            lines.append((name, n.entry, n.dataset, n.who, _rounded(value, _DIGITS[n.entry]),
                          _rounded(error * (value if n.is_log else 1), _DIGITS[n.entry]), "fitted",
                          "ridge" if n.entry == "system_shift" else ""))
        for data, llm in f.cited:
            skill, tokens = f.value("skill", data, llm), f.value("completion_tokens", data, llm)
            lines.append((name, "skill", data, llm, _rounded(skill, 3), CITED[data, llm].sd, "cited",
                          f"in no row; {CITED[data, llm].source}; its error is assumed"))
            lines.append((name, "completion_tokens", data, llm, _rounded(tokens, 1), math.nan, "not identified",
                          "in no row; by the ratio of the LLMs on the other data sets"))
    columns = ["fit", "parameter", "dataset", "llm_or_system", "value", "curvature_error", "status", "note"]
    table = pd.DataFrame(lines, columns=columns)
    order = {"skill": 0, "completion_tokens": 1, "system_tokens": 2, "system_shift": 3}
    return table.sort_values(["fit", "parameter"], key=lambda c: c.map(order).fillna(0) if c.name == "parameter" else c,
                             kind="stable", ignore_index=True)


def summary_table(fits: Mapping[str, Fit]) -> pd.DataFrame:
    """Counts, how far off the fit is on the whole, and the spreads."""
    lines = []
    for name, f in fits.items():
        r, w = f.rows, f.rows.weight
        values = {
            "rows": f.n_rows, "rows the model can tell apart": round(float(w.sum())), "numbers": 2 * f.n_rows,
            "free parameters": f.n_free,
            "of them shifts with a row of zero": sum(n.entry == "system_shift" for n in f.names),
            "root mean square of accuracy residuals, points":
                round(100 * float(np.sqrt(np.average((r.accuracy_fit - r.accuracy)**2, weights=w))), 2),
            "root mean square of log cost residuals":
                round(float(np.sqrt(np.average(r.log_cost_residual**2, weights=w))), 3),
            "the same, each row counted once": round(float(np.sqrt((r.log_cost_residual**2).mean())), 3),
            **{f"spread {key}": round(value, 4) for key, value in asdict(f.spread).items()}}
        lines += [(name, key, value) for key, value in values.items()]
    return pd.DataFrame(lines, columns=["fit", "quantity", "value"])


def real_tasks(folder: str | Path) -> dict[str, tuple[Task, ...]]:
    """The real benchmarks' test tasks that stand for each data set.

    Raises:
        TaskFileError: no folder, or a file in it is missing or broken.
    """
    folder = in_folder(folder, "benchmarks", TaskFileError)
    return {name: tuple(load_tasks(data.real_tasks, split="test", path=folder)) for name, data in DATASETS.items()}


@command
def main(arguments: Sequence[str] | None = None) -> int:
    """Fit and write; prints the tables."""
    parser = argparse.ArgumentParser(prog="python -m bamas_lite.reproduction.calibration", description=main.__doc__)
    parser.add_argument("--benchmarks", help="folder with the real benchmarks; default: our own task sets")
    parser.add_argument("--published", help="another file of published rows")
    parser.add_argument("--out", help="folder of the results (default data/simulation; with --benchmarks or "
                                      "--published build/simulation)")
    options = parser.parse_args(arguments)
    ours = options.benchmarks is None and options.published is None
    default = (DATA if ours else BUILD) / "simulation"
    out = out_folder(default if options.out is None else options.out, "--out")
    published = load_published(options.published)
    tasks = own_tasks(DATASETS) if options.benchmarks is None else real_tasks(options.benchmarks)
    fits = both_fits(published, tasks)
    for file, text in file_texts(fits).items():
        (out / file).write_text(text, encoding="utf-8", newline="\n")
    with pd.option_context("display.width", 200, "display.max_rows", None, "display.max_columns", None):
        for table in (summary_table(fits), parameters_table(fits).drop(columns="note"), rows_table(fits)):
            print(table.to_string(index=False), end="\n\n")
    return 0
