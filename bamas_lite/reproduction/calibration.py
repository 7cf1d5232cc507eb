"""Fit the simulated LLMs to the baseline rows of BAMAS's tables; `python -m bamas_lite.reproduction.calibration`.

**What is fitted.** One least-squares problem over all data sets. Each row gives two numbers, the share of right answers
and the log of its cost; the closed form (`expected`) says what the simulated LLM gives there. Of system s with LLM m on
data set d:

    latent skill          skill[d, m] + system_shift[d, s]
    completion tokens     completion_tokens[d, m] * system_tokens[s]
    accuracy residual     (expected - p) / sqrt(p (1 - p) / n_test + ACCURACY_SD^2), p the published share
    cost residual         (log expected - log published) / COST_SD
    shift residual        system_shift[d, s] / SHIFT_SD: a ridge, one row of zero for each shift

The loss is soft_l1, so that rows that no parameters fit do not bend the others. naive is the reference: system_tokens
1, system_shift 0. The factors are shared over the data sets; the shifts are not: with one for all, MetaGPT's rows
contradict each other. Rows that the model cannot tell apart - Naive-CostAware from L2 on, where three agents run -
count together as one row: they err together.

**What is not.** All other parameters keep the values of `base`; `fixed` sets them otherwise. BAMAS never reaches the
fit: Naive-CostAware is the paper's own ablation of it, built from the same agents, so BAMAS takes naive's factor 1 and
shift 0; in draws (`Fit.draw`) the shift varies by the spread between systems. For the same reason Naive-CostAware is
played with BAMAS's limits on completion tokens. DeepSeek-V3 on MATH is in no baseline row: see CITED. The values of
`assumed` are no blind guesses: four rows of BAMAS were looked at when they were chosen (its head names them), so that
what is held out is held out from the fit, not from all that was ever chosen.

`second_fit` adds BAMAS's row at the lowest budget of each data set and with it BAMAS's own factor and shift.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bamas_lite.inputs import shown
from bamas_lite.reproduction.fit_problem import (
    CITED,
    COST_SD,
    NEUTRAL,
    SHIFT_SD,
    SYSTEM_KEYS,
    Name,
    Problem,
    Spread,
)
from bamas_lite.reproduction.published import BASELINES, DATASETS, LLMS, dataset
from bamas_lite.reproduction.tables import Number, check_table
from bamas_lite.simulation_parameters import SYSTEMS
from bamas_lite.tasks import Task, load_tasks

_RANGES = {"skill": [-3, 4], "completion_tokens": [10, 5000], "system_tokens": [0.05, 20], "system_shift": [-3, 3]}


@dataclass(frozen=True)
class Fit:
    """A fit, or a draw of its parameters.

    Attributes:
        names, theta: the free parameters, logs where `Name.is_log`.
        covariance: of theta, with the assumed errors of the rows.
        rows: the fitted rows: dataset, system, setting, weight, accuracy, accuracy_fit, accuracy_sd, cost, cost_fit,
            log_cost_residual (fit minus published).
        spread: see there.
        n_rows, n_free: rows (two numbers each) and free parameters; each shift also has a row of zero.
        bamas: log of BAMAS's factor, and its shift by data set, where they are not fitted.
    """

    names: tuple[Name, ...]
    theta: np.ndarray
    covariance: np.ndarray
    rows: pd.DataFrame
    spread: Spread
    bamas: tuple[float, Mapping[str, float]]
    cited: Mapping[tuple[str, str], float]
    _problem: Problem = field(repr=False)

    @property
    def n_rows(self) -> int:
        """Published rows that were fitted."""
        return len(self.rows)

    @property
    def n_free(self) -> int:
        """Free parameters."""
        return len(self.names)

    def value(self, entry: str, dataset_name: str, who: str) -> float:
        """A fitted, cited or derived value; of a system that was not fitted 1 or 0, or what `draw` drew for BAMAS.

        Args:
            entry: one of NEUTRAL.
            dataset_name: the data set, or "all" for what is shared.
            who: an LLM, or a system.

        Raises:
            ValueError: one of them is unknown.
            KeyError: the rows do not identify it.
        """
        whose = SYSTEMS if str(entry).startswith("system_") else LLMS
        for what, given, known in (("entry", entry, NEUTRAL), ("dataset_name", dataset_name, (*DATASETS, "all")),
                                   ("who", who, whose)):
            if not isinstance(given, str) or given not in known:
                raise ValueError(f"{what} = {shown(given)}: expected one of {', '.join(known)}")
        at = {name: float(math.exp(v) if name.is_log else v) for name, v in zip(self.names, self.theta, strict=True)}
        for place in (dataset_name, "all"):
            if (name := Name(entry, place, who)) in at:
                return at[name]
        if entry == "system_tokens":
            return math.exp(self.bamas[0]) if who == "bamas" else 1.0
        if entry == "system_shift":
            return self.bamas[1].get(dataset_name, 0.0) if who == "bamas" else 0.0
        if (dataset_name, who) not in self.cited:
            raise KeyError(f"{entry} of {who} on {dataset_name} is not identified by these rows")
        if entry == "skill":
            return self.cited[dataset_name, who]
        other = next(llm for llm in LLMS if llm != who)
        ratios = [at[name] / at[Name(entry, name.dataset, other)] for name in self.names
                  if name.entry == entry and name.who == who]
        return at[Name(entry, dataset_name, other)] * math.prod(ratios) ** (1 / len(ratios))

    def parameters(self, name: str = "fitted") -> dict[str, Any]:
        """A dict for `SimulatedLLM`: the base, what was fixed, and what was fitted."""
        entries: dict[str, Any] = {entry: {"value": {}} for entry in NEUTRAL}
        for data in self._problem.datasets:
            for entry in ("skill", "completion_tokens"):
                entries[entry]["value"][DATASETS[data].domain] = {
                    llm: self.value(entry, data, llm) for llm in LLMS if self._knows(entry, data, llm)}
            for entry in ("system_tokens", "system_shift"):
                entries[entry]["value"][DATASETS[data].domain] = {
                    system: self.value(entry, data, system) for system in SYSTEMS}
        for entry, content in entries.items():
            content |= {"status": "fitted", "range": _RANGES[entry], "source": self._source(entry)}
        return {"base": self._problem.base, "name": name, "description": self.description, **self._problem.fixed,
                **entries}

    @property
    def misfit(self) -> tuple[float, int]:
        """Chi-squared of the rows and the ridge's zeros, in units of their assumed errors, and its degrees of freedom.

        Rows that the model cannot tell apart count as one.
        """
        rows, shifts = self.rows, self.theta[[name.entry == "system_shift" for name in self.names]]
        squares = ((rows.accuracy_fit - rows.accuracy) / rows.accuracy_sd)**2 + (rows.log_cost_residual / COST_SD)**2
        total = float(rows.weight @ squares) + float(((shifts / SHIFT_SD)**2).sum())
        return total, 2 * round(rows.weight.sum()) + len(shifts) - self.n_free

    @property
    def description(self) -> str:
        """One line on what was fitted to what."""
        ridge = sum(n.entry == "system_shift" for n in self.names)
        return (f"{self.n_free} parameters fitted to {self.n_rows} rows ({2 * self.n_rows} numbers; {ridge} shifts "
                f"with a ridge) of BAMAS's tables: {', '.join(dict.fromkeys(self.rows.system))}")

    def refit(self, fixed: Mapping[str, Any]) -> Fit:
        """The fit of the same rows with other values for parameters that are not fitted, as in `fit`.

        Raises:
            ValueError: no mapping, an entry that is fitted, or the rows leave a parameter open.
            RuntimeError: the fit does not converge.
        """
        problem = self._problem.with_fixed(fixed)
        return _finished(problem, *problem.solve(self.theta, problem.published, near=False, tolerance=1e-4))

    def draw(self, rng: np.random.Generator, *, fixed: Mapping[str, Any] | None = None,
             tokens_sd: float = 0.0, shift_sd: float | None = None) -> Fit:
        """Draw parameters: every published number and every zero of the ridge is moved by its error, then refitted.

        Args:
            rng: source of the draw.
            fixed: other values for parameters that are not fitted, as in `fit`; None: those of this fit.
            tokens_sd: spread of the log of BAMAS's factor, where it is not fitted. 0: its agents are naive's, whose
                factor is the reference; `spread.tokens_system` is that between systems whose agents differ.
            shift_sd: spread of BAMAS's shift in each data set, where it is not fitted; None: `spread.shift_system`.

        Raises:
            ValueError: as `refit`; no Generator, or a spread that is not a finite number of at least 0.
            RuntimeError: the fit does not converge.
        """
        if not isinstance(rng, np.random.Generator):
            raise ValueError(f"rng = {shown(rng)}: expected a Generator, as np.random.default_rng(seed) makes it")
        for what, sd in (("tokens_sd", tokens_sd), ("shift_sd", 0.0 if shift_sd is None else shift_sd)):
            if not _is_finite(sd) or sd < 0:
                raise ValueError(f"{what} = {shown(sd)}: expected a finite number of at least 0")
        problem = self._problem if fixed is None else self._problem.with_fixed(fixed)
        # 1e-4: far within the standard errors.
        drawn = _finished(problem, *problem.solve(self.theta, problem.moved(rng), near=fixed is None, tolerance=1e-4))
        own = any(name.who == "bamas" for name in self.names)
        sd_t = 0.0 if own else tokens_sd
        sd_s = 0.0 if own else self.spread.shift_system if shift_sd is None else shift_sd
        normal = rng.standard_normal(1 + len(DATASETS) + len(CITED))
        shifts = {data: sd_s * float(z) for data, z in zip(DATASETS, normal[1:], strict=False)}
        cited = {key: value + CITED[key].sd * float(z)
                 for (key, value), z in zip(drawn.cited.items(), normal[1 + len(DATASETS):], strict=False)}
        return replace(drawn, bamas=(sd_t * float(normal[0]), shifts), cited=cited)

    def _knows(self, entry: str, data: str, llm: str) -> bool:
        return Name(entry, data, llm) in self.names or (data, llm) in self.cited

    def _source(self, entry: str) -> str:
        source = "rows of BAMAS, Tables 1, 2 and 4: " + ", ".join(dict.fromkeys(self.rows.system))
        for data, llm in self.cited:
            if entry == "skill":
                source += f"; {llm} on {data} is in no row: cited, {CITED[data, llm].source}"
            elif entry == "completion_tokens":
                source += f"; {llm} on {data} is in no row: by the ratio of the LLMs on the other data sets"
        if entry.startswith("system_") and not any(name.who == "bamas" for name in self.names):
            source += "; naive is the reference, and bamas takes its value"
        return source


def baseline_rows(published: pd.DataFrame) -> pd.DataFrame:
    """The rows that a fit may see: those of the baselines.

    Raises:
        ValueError: there are none, or no table with a column `system`.
    """
    check_table(published, "published", texts=("system",))
    rows = published[published.system.isin(BASELINES)]
    if rows.empty:
        raise ValueError(f"published: has no row of {', '.join(BASELINES)}")
    return rows


def fit(rows: pd.DataFrame, tasks_by_dataset: Mapping[str, Sequence[Task]] | None = None, *,
        base: str | Path = "assumed", fixed: Mapping[str, Any] | None = None,
        start: Mapping[str, float] | Fit | None = None) -> Fit:
    """Fit the simulated LLMs to rows of the baselines.

    Args:
        rows: `baseline_rows(load_published())`, or others of the same columns.
        tasks_by_dataset: the tasks that stand for each data set; None: our own committed sets.
        base: parameters that are not fitted: name or path.
        fixed: what differs from them: entries as in a parameter file, for example {"plan_more": {"value": 0.3}}.
        start: a value for each entry instead of NEUTRAL, or a fit of the same rows to start from.

    Raises:
        ValueError: no rows, a row of BAMAS, a row given twice, an unknown data set, system or setting, a cost or a
            percentage that can be none, fewer rows than free parameters, a data set without tasks, a fixed entry that
            is fitted, a start that cannot be one.
        SimulationError: base or fixed values that cannot be used.
        RuntimeError: the fit does not converge.
    """
    check_table(rows, "rows", texts=_KEY, numbers=_NUMBERS, key=_KEY, known=_KNOWN)
    if held_out := [s for s in rows.system if s not in BASELINES]:
        raise ValueError(f"rows hold {held_out[0]}: it is held out; give baseline_rows(...)")
    return _fit(rows, tasks_by_dataset, base, fixed, start)


def second_fit(published: pd.DataFrame, tasks_by_dataset: Mapping[str, Sequence[Task]] | None = None, *,
               base: str | Path = "assumed", fixed: Mapping[str, Any] | None = None,
               start: Mapping[str, float] | Fit | None = None) -> Fit:
    """`fit` with BAMAS's row at the lowest budget of each data set, and BAMAS's own factor and shift.

    The team of that budget is two copies of one LLM; it plays TOPOLOGIES_MIXED in equal shares.

    Raises:
        ValueError: as `fit`; a data set without that row.
    """
    check_table(published, "published", texts=_KEY, numbers=_NUMBERS, key=_KEY, known=_KNOWN)
    rows = [baseline_rows(published)]
    for name in dict.fromkeys(rows[0].dataset):
        setting = f"budget {min(dataset(name).budgets)}"
        own = published[(published.dataset == name) & (published.system == "BAMAS") & (published.setting == setting)]
        if own.empty:
            raise ValueError(f"published: has no row of BAMAS on {name} with {setting}")
        rows.append(own)
    return _fit(pd.concat(rows), tasks_by_dataset, base, fixed, start)


_KEY = ("dataset", "system", "setting")
_NUMBERS = {"avg_cost_microusd": Number(0, above=True), "accuracy_percent": Number(0, 100)}
_KNOWN = {"dataset": DATASETS, "system": SYSTEM_KEYS}


def _is_finite(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _fit(rows: pd.DataFrame, tasks_by_dataset: Mapping[str, Sequence[Task]] | None, base: str | Path,
         fixed: Mapping[str, Any] | None, start: Mapping[str, float] | Fit | None) -> Fit:
    if tasks_by_dataset is None:
        tasks_by_dataset = own_tasks(dict.fromkeys(rows.dataset))
    problem = Problem(rows.reset_index(drop=True), tasks_by_dataset, base, {} if fixed is None else fixed)
    if len(rows) < len(problem.names):
        raise ValueError(f"rows: {len(rows)} rows for {len(problem.names)} free parameters; expected at least as many")
    if isinstance(start, Fit):
        if start.names != problem.names:
            raise ValueError("start: is a fit of other rows; its parameters are not the same")
        theta = start.theta
    else:
        values = {**NEUTRAL, **_checked_start({} if start is None else start)}
        theta = np.array([math.log(values[n.entry]) if n.is_log else values[n.entry] for n in problem.names])
    return _finished(problem, *problem.solve(theta, problem.published, near=isinstance(start, Fit)))


def _checked_start(start: Mapping[str, float]) -> Mapping[str, float]:
    if not isinstance(start, Mapping):
        raise ValueError(f"start = {shown(start)}: expected values by entry, or a Fit")
    for entry, value in start.items():
        if entry not in NEUTRAL:
            raise ValueError(f"start holds {shown(entry)}: expected some of {', '.join(NEUTRAL)}")
        is_log = Name(entry, "all", "").is_log
        if not _is_finite(value) or (is_log and value <= 0):
            raise ValueError(f"start[{entry!r}] = {shown(value)}: expected a finite number{' above 0' * is_log}")
    return start


def own_tasks(names: Sequence[str] | Mapping[str, Any]) -> dict[str, tuple[Task, ...]]:
    """Our own committed tasks that stand for these data sets."""
    return {name: tuple(load_tasks(dataset(name).own_tasks)) for name in names}


def _finished(problem: Problem, theta: np.ndarray, jac: np.ndarray) -> Fit:
    covariance, rows = problem.covariance(jac), problem.residuals(theta)
    return Fit(problem.names, theta, covariance, rows, problem.spread(theta, jac, covariance, rows), (0.0, {}),
               problem.cited(), problem)


if __name__ == "__main__":
    from bamas_lite.reproduction.calibration_files import main
    sys.exit(main())
