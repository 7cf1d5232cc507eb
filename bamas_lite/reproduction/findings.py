"""Each claim of the paper beside what we found: paper, ours, 95% interval, status, reason.

How a status follows from data; nothing else decides it:

- Rows (accuracy and cost), headlines (accuracy difference and saving) and out-of-budget counts are `reproduced` if
  every published number lies inside our 95% interval for it; for headlines also if the whole interval is better than
  the published number. Otherwise they are `differs`.
- Interval: the prediction interval that is handed in for the row; without one, the row's own interval made wider
  because the published number is itself a mean over a sample of tasks (`results.widened`).
- A row, headline or count whose team holds an LLM that no baseline row of its data set uses is `not identified`:
  no row of the paper fixes how good that LLM is there. (Unless its skill is `cited`.)
- Findings about topologies, the published shares, and headlines wherever draws hold their systems must hold in at least
  `ENOUGH` of at least `LEAST_DRAWS` draws of what no row identifies to be `reproduced`. In at most 1 - ENOUGH of them:
  `differs`. In between: `depends on <parameter>`, the one that separates the draws best
  (`predicates.separating_parameter`), or `depends on several parameters or the seed` where none does on its own. (The
  seed decides the initial weights of a policy.)
- What we have no result for, too few draws, and what is published as a picture only is `not testable here`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom

from bamas_lite.casting import TOPOLOGIES
from bamas_lite.inputs import shown
from bamas_lite.reproduction import predicates
from bamas_lite.reproduction.exports import to_csv, to_latex, to_markdown
from bamas_lite.reproduction.predicates import ENOUGH, FINDINGS, LEAST_DRAWS, OURS, PUBLISHED
from bamas_lite.reproduction.published import (
    DATASETS,
    check_counts,
    check_published,
    check_shares,
    load_counts,
    load_published,
    load_shares,
)
from bamas_lite.reproduction.results import Interval, Results, check_rows, widened
from bamas_lite.reproduction.tables import check_table

__all__ = ["HEADLINES", "Headline", "check_rows", "reproduction_table", "status_of_share", "status_summary", "to_csv",
           "to_latex", "to_markdown"]

REPRODUCED, DIFFERS = "reproduced", "differs"
NOT_TESTABLE, NOT_IDENTIFIED = "not testable here", "not identified"
DEPENDS = "depends on "
"""Followed by the name of a parameter, or by SEVERAL."""
SEVERAL = "several parameters or the seed"

COLUMNS = ("kind", "dataset", "claim", "system", "paper", "ours", "interval", "status", "reason")
KINDS = ("row, fitted", "row, held out", "headline", "finding", "share", "count")
SHARE_MARGIN = 0.10
"""A published topology share holds in a draw if ours is within this of it."""
_NORMAL_95 = 1.959964


@dataclass(frozen=True)
class Headline:
    """BAMAS at one budget against one baseline with one LLM; all figures come from the published rows."""

    dataset: str
    budget: int
    against: str
    llm: str


HEADLINES = (Headline("MBPP", 1250, "MetaGPT", "DeepSeek-V3"), Headline("GSM8K", 1625, "AutoGen", "DeepSeek-V3"),
             Headline("MATH", 2000, "AutoGen", "GPT-4.1 nano"))


def reproduction_table(rows: pd.DataFrame, published: pd.DataFrame | None = None, *, counts: pd.DataFrame | None = None,
                       shares: pd.DataFrame | None = None, paired: pd.DataFrame | None = None,
                       prediction: pd.DataFrame | None = None, headlines: pd.DataFrame | None = None,
                       draws: pd.DataFrame | None = None, cited: Collection[tuple[str, str]] = ()) -> pd.DataFrame:
    """One line for each published row and each claim; the rules are those of the module's docstring.

    Args:
        rows: our results: dataset, system, setting, n_tasks, accuracy (percent), cost (u$), each with _low and _high;
            for counts also over_budget (mean count over n_tasks), over_low and over_high.
        published, counts, shares: what the paper publishes; None: `load_published()`, `load_counts()`, `load_shares()`.
        paired: differences of systems on the same tasks: dataset, setting, system, against, accuracy, accuracy_low,
            accuracy_high. `against` is "<system> <setting>", such as "AutoGen DeepSeek-V3". None: accuracies are
            compared as if they came from different tasks, which gives wider intervals.
        prediction: 95% prediction intervals of published figures: dataset, system ("BAMAS" or "BAMAS as published"),
            setting, accuracy_low, accuracy_high, cost_low, cost_high and, for counts, over_low and over_high (counts
            over n_test tasks).
        headlines: the same of headlines: see `prediction.headline_intervals`.
        draws: see `predicates`; None: whatever needs them is `not testable here`.
        cited: (data set, LLM) whose skill our results take from a figure published elsewhere: what rests on it is then
            judged as everything else, and the reason says so.

    Returns:
        Columns kind (one of KINDS), dataset, claim, system (whose result it is), paper, ours, interval, status, reason.

    Raises:
        ValueError: a table that cannot be used: a column is missing, a row is there twice, a value is none; or `cited`
            holds something else than a data set with one of its LLMs.
        DrawsError: draws hold a value that is none, or one draw twice.
    """
    published, counts, shares = (load() if table is None else table for table, load in (
        (published, load_published), (counts, load_counts), (shares, load_shares)))
    check_published(published)
    check_counts(counts)
    check_shares(shares)
    results = Results(rows, published, paired, prediction, headlines, draws, _cited(cited))
    table = [*(_row(results, row) for row in published.itertuples()),
             *(_headline(results, headline, system) for system in (PUBLISHED, OURS) for headline in HEADLINES),
             *_findings(draws),
             *_shares(shares, draws),
             *(_count(results, row) for row in counts.itertuples())]
    return pd.DataFrame(table, columns=list(COLUMNS))


def _cited(cited: Any) -> frozenset[tuple[str, str]]:
    known = [(data.name, llm) for data in DATASETS.values() for llm in data.llms]
    pairs = list(cited) if isinstance(cited, Iterable) and not isinstance(cited, str) else [cited]
    for pair in pairs:
        if not isinstance(pair, tuple) or pair not in known:
            raise ValueError(f"cited: {shown(pair)}: expected (data set, LLM), one of {', '.join(map(str, known))}")
    return frozenset(pairs)


def status_of_share(holds: float, n_draws: int, parameter: str | None = None) -> str:
    """The status of what holds in the share `holds` of n_draws draws."""
    if n_draws < LEAST_DRAWS or not isfinite(holds):
        return NOT_TESTABLE
    if holds >= ENOUGH:
        return REPRODUCED
    if holds <= 1 - ENOUGH + 1e-12:
        return DIFFERS
    return DEPENDS + (parameter or SEVERAL)


def status_summary(table: pd.DataFrame) -> pd.DataFrame:
    """How many claims of each kind have which status: one line a kind, one column a status.

    Headlines and findings have a line for each system. Statuses that name a parameter are counted together as "depends
    on a parameter".
    """
    check_table(table, "table", texts=("kind", "system", "status"))
    kind = table.kind.where(~table.kind.isin(("headline", "finding")), table.kind + ", " + table.system)
    status = table.status.where(~table.status.str.startswith(DEPENDS), DEPENDS + "a parameter")
    order = [REPRODUCED, DEPENDS + "a parameter", DIFFERS, NOT_IDENTIFIED, NOT_TESTABLE]
    counts = pd.crosstab(kind, status).reindex(index=kind.unique(), columns=order, fill_value=0)
    counts["all"] = counts.sum(axis=1)
    return counts.rename_axis(index="claims", columns=None).reset_index()


def _line(kind: str, dataset: str, claim: str, system: str, paper: str, status: str, reason: str, ours: str = "",
          interval: str = "") -> dict[str, str]:
    return dict(zip(COLUMNS, (kind, dataset, claim, system, paper, ours, interval, status, reason), strict=True))


def _row(results: Results, row: object) -> dict[str, str]:
    """Accuracy and cost of one published row."""
    system = PUBLISHED if row.system == "BAMAS" else row.system
    kind = KINDS[1] if row.system == "BAMAS" else KINDS[0]
    key = (row.dataset, system, row.setting)
    head = (kind, row.dataset, f"{row.system}, {row.setting}", system,
            f"{row.accuracy_percent:.1f}% at {row.avg_cost_microusd:.1f} u$")
    if key not in results.rows:
        return _line(*head, NOT_TESTABLE, "we have no such row")
    mine = results.rows[key]
    right, cost = results.interval(key, "accuracy"), results.interval(key, "cost")
    places = {"accuracy": _place(row.accuracy_percent, right), "cost": _place(row.avg_cost_microusd, cost)}
    status, reason = _status_of_places(places)
    reason += f"; the intervals are {right[1] - right[0]:.1f} points and {cost[1] - cost[0]:.0f} u$ wide"
    status, reason = _unless_unidentified(results, row.dataset, row.setting, status, reason)
    return _line(*head, status, reason, f"{mine['accuracy']:.1f}% at {mine['cost']:.1f} u$",
                 f"{right[0]:.1f} to {right[1]:.1f}%; {cost[0]:.1f} to {cost[1]:.1f} u$")


def _place(value: float, interval: Interval) -> str:
    """Where a published number lies: "inside" the interval, "above" or "below" it."""
    low, high = interval
    # 1e-9: the last bit of a float decides nothing
    return "inside" if low - 1e-9 <= value <= high + 1e-9 else "above" if value > high else "below"


def _status_of_places(places: dict[str, str], fine: Sequence[str] = ("inside",)) -> tuple[str, str]:
    """Status and reason of published numbers, by what they are, whose places are known."""
    reason = ", ".join(f"published {what} {place}" for what, place in places.items())
    return (REPRODUCED if all(place in fine for place in places.values()) else DIFFERS), reason


def _unless_unidentified(results: Results, dataset: str, setting: str, status: str, reason: str) -> tuple[str, str]:
    llms = results.unidentified(dataset, setting)
    if not llms:
        return status, reason
    if all((dataset, llm) in results.cited for llm in llms):
        return status, f"{reason}; {' and '.join(llms)} on {dataset} from a figure cited from elsewhere"
    return NOT_IDENTIFIED, f"no baseline on {dataset} uses {' or '.join(llms)}; as it is: {reason}"


def _headline(results: Results, headline: Headline, system: str) -> dict[str, str]:
    """Accuracy difference and saving of one BAMAS row against one baseline row."""
    setting, dataset = f"budget {headline.budget}", headline.dataset
    claim = f"BAMAS, {setting}, against {headline.against}, {headline.llm}: accuracy difference and saving"
    by_key = _published_by_key(results.published)
    pair = [by_key.get((dataset, "BAMAS", setting)), by_key.get((dataset, headline.against, headline.llm))]
    if None in pair:
        return _line("headline", dataset, claim, system, "", NOT_TESTABLE, "the published rows lack one of the two")
    (p_right, p_cost), (q_right, q_cost) = pair
    gain, saving = p_right - q_right, 100 * (1 - p_cost / q_cost)
    paper = f"{gain:.1f} points, {_cheaper(saving)} ({p_right:.1f}% at {p_cost:.1f}, {q_right:.1f}% at {q_cost:.1f} u$)"
    key, other = (dataset, system, setting), (dataset, headline.against, headline.llm)
    head = ("headline", dataset, claim, system, paper)
    if key not in results.rows or other not in results.rows:
        return _line(*head, NOT_TESTABLE, "we have no row for one of the two systems")
    our_gain, gain_interval = _gain(results, key, other)
    our_saving, saving_interval = _saving(results, key, other)
    status, reason = _status_of_places({"difference": _place(gain, gain_interval),
                                        "saving": _place(saving, saving_interval)}, fine=("inside", "below"))
    reason = reason.replace("below", "below (ours is better)")
    reason += "; our interval of the difference holds 0" if gain_interval[0] <= 0 <= gain_interval[1] else ""
    if drawn := _headline_in_draws(results, headline, system, pair):
        # one point in the space of what no row identifies cannot decide what the draws leave open
        status = status if drawn[0] == REPRODUCED else drawn[0]
        reason = f"{reason}; {drawn[1]}"
    status, reason = _unless_unidentified(results, dataset, setting, status, reason)
    return _line(*head, status, reason, f"{our_gain:.1f} points, {_cheaper(our_saving)}",
                 f"{gain_interval[0]:.1f} to {gain_interval[1]:.1f} points; "
                 f"{saving_interval[0]:.1f} to {saving_interval[1]:.1f}%")


def _published_by_key(published: pd.DataFrame) -> dict[tuple[str, ...], tuple[float, float]]:
    return {(row.dataset, row.system, row.setting): (row.accuracy_percent, row.avg_cost_microusd)
            for row in published.itertuples()}


def _cheaper(saving: float) -> str:
    return f"{abs(saving):.0f}% {'cheaper' if saving >= 0 else 'dearer'}"


def _gain(results: Results, key: tuple[str, ...], other: tuple[str, ...]) -> tuple[float, Interval]:
    """Accuracy of one row minus that of the other (points), with the interval for a published difference."""
    value = results.rows[key]["accuracy"] - results.rows[other]["accuracy"]
    if predicted := results.headline(key, other, "gain"):
        return value, predicted
    n_ours, n_test = results.rows[key]["n_tasks"], DATASETS[key[0]].n_test
    if paired := results.paired_accuracy(key, f"{other[1]} {other[2]}"):
        return paired[0], widened(*paired, n_ours, n_test)
    (a_low, a_high), (b_low, b_high) = (results.interval(row, "accuracy") for row in (key, other))
    a, b = results.rows[key]["accuracy"], results.rows[other]["accuracy"]
    return value, (value - float(np.hypot(a - a_low, b_high - b)), value + float(np.hypot(a_high - a, b - b_low)))


def _saving(results: Results, key: tuple[str, ...], other: tuple[str, ...]) -> tuple[float, Interval]:
    """100 (1 - cost / cost of the other); without a predicted interval, one as if the two costs were independent.

    Costs on the same tasks rise and fall together, so that this one is too wide rather than too narrow.
    """
    a, b = results.rows[key]["cost"], results.rows[other]["cost"]
    value = 100 * (1 - a / b)
    if predicted := results.headline(key, other, "saving"):
        return value, predicted
    (a_low, a_high), (b_low, b_high) = (np.log(results.interval(row, "cost")) for row in (key, other))
    up, down = np.hypot(a_high - np.log(a), np.log(b) - b_low), np.hypot(np.log(a) - a_low, b_high - np.log(b))
    return value, (100 * (1 - a / b * float(np.exp(up))), 100 * (1 - a / b * float(np.exp(-down))))


def _headline_in_draws(results: Results, headline: Headline, system: str, pair: list) -> tuple[str, str] | None:
    """In how many draws the direction holds; None where the draws do not hold both systems.

    Direction: cheaper than the baseline; and more accurate, if the published difference is above its own 95% sampling
    error (two runs of n_test tasks), else at most that error less accurate.
    """
    mine = None if results.draws is None else predicates.of_dataset(results.draws, headline.dataset)
    if mine is None or mine.empty:
        return None
    try:
        right, cost = ((predicates.values(mine, system, headline.budget, metric),
                        predicates.values(mine, headline.against, headline.llm, metric))
                       for metric in ("accuracy", "cost"))
    except KeyError:
        return None
    (p, _), (q, _) = pair
    error = _NORMAL_95 * sqrt((p * (100 - p) + q * (100 - q)) / DATASETS[headline.dataset].n_test)
    least = 0 if p - q > error else -error
    holds = (cost[0] < cost[1]) & (right[0] - right[1] > least)
    words = "cheaper and more accurate" if least == 0 else f"cheaper and at most {error:.1f} points less accurate"
    summary = predicates.in_draws(mine, holds, right[0] - right[1])
    return status_of_share(summary["holds"], len(mine), summary.get("parameter")), _in_draws(summary, len(mine), words)


def _in_draws(summary: dict, n_draws: int, words: str = "") -> str:
    text = f"{words + ' ' if words else ''}in {100 * summary['holds']:.0f}% of {n_draws} draws"
    if n_draws < LEAST_DRAWS:
        return text + f"; at least {LEAST_DRAWS} are needed"
    if isinstance(parameter := summary.get("parameter"), str):
        side = "large" if summary["auc"] > 0.5 else "small"
        return text + f", rather where {parameter} is {side} (AUC {summary['auc']:.2f})"
    return text


def _findings(draws: pd.DataFrame | None) -> list[dict[str, str]]:
    claims = {finding.name: finding for finding in FINDINGS}
    if draws is None:
        return [_line("finding", name, finding.claim, chooser, "stated", NOT_TESTABLE, "no draws")
                for finding in FINDINGS for name in finding.datasets for chooser in predicates.CHOOSERS]
    lines = []
    for row in predicates.findings_in_draws(draws).to_dict("records"):
        finding = claims[row["finding"]]
        head = ("finding", row["dataset"], finding.claim, row["system"], "stated")
        if not isfinite(row["holds"]):
            lines.append(_line(*head, NOT_TESTABLE, f"{row['n_draws']} draws with this system"
                               if row["n_draws"] < 2 else "the draws do not hold this system"))
            continue
        lines.append(_line(*head, status_of_share(row["holds"], row["n_draws"], _text(row["parameter"])),
                           _in_draws(row, row["n_draws"], "holds"), f"{row['quantity']}: {100 * row['measured']:.1f}%",
                           f"{100 * row['low']:.1f} to {100 * row['high']:.1f}%"))
    return lines


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _shares(shares: pd.DataFrame, draws: pd.DataFrame | None) -> list[dict[str, str]]:
    """Published topology shares as numbers, and one line for what is published as a picture only."""
    lines = []
    for row in shares.itertuples():
        head = ("share", row.dataset, f"share of {row.topology.replace('_', '-')}, all budgets", PUBLISHED,
                f"{row.share_percent:.1f}%")
        mine = None if draws is None else predicates.of_dataset(draws, row.dataset)
        try:
            drawn = None if mine is None else predicates.chosen(draws, row.dataset, PUBLISHED).mean(axis=1)
        except KeyError:
            drawn = None
        if drawn is None or len(drawn) < 2:
            lines.append(_line(*head, NOT_TESTABLE, "no draws with this system"))
            continue
        share = drawn[:, TOPOLOGIES.index(row.topology)]
        summary = predicates.in_draws(mine, np.abs(share - row.share_percent / 100) <= SHARE_MARGIN + 1e-9, share)
        lines.append(_line(*head, status_of_share(summary["holds"], len(mine), summary.get("parameter")),
                           _in_draws(summary, len(mine), f"within {100 * SHARE_MARGIN:.0f} points"),
                           f"{100 * summary['measured']:.1f}%",
                           f"{100 * summary['low']:.1f} to {100 * summary['high']:.1f}%"))
    given = ", ".join(f"{row.topology.replace('_', '-')} on {row.dataset}" for row in shares.itertuples())
    lines.append(_line("share", "all", "all other shares of Figure 3", PUBLISHED, "a picture", NOT_TESTABLE,
                       f"published as numbers: {given}"))
    return lines


def _count(results: Results, row: object) -> dict[str, str]:
    """Out-of-budget runs of BAMAS at one budget.

    Without a prediction interval for the count: its binomial 95% range at the ends of the interval of our rate.
    """
    setting = f"budget {row.budget:g}"
    key = (row.dataset, PUBLISHED, setting)
    head = ("count", row.dataset, f"out-of-budget runs, {setting}", PUBLISHED, f"{row.out_of_budget} of {row.n_tasks}")
    mine, predicted = results.rows.get(key, {}), results.prediction.get(key, {})
    numbers = [mine.get(column, float("nan")) for column in ("over_budget", "over_low", "over_high")]
    if not all(isfinite(number) for number in numbers):
        return _line(*head, NOT_TESTABLE, "we have no such count")
    ours, low_rate, high_rate = (float(np.clip(number / mine["n_tasks"], 0, 1)) for number in numbers)
    low, high = (predicted.get(f"over_{end}", float("nan")) for end in ("low", "high"))
    if not (isfinite(low) and isfinite(high)):
        low, high = binom.ppf(0.025, row.n_tasks, low_rate), binom.ppf(0.975, row.n_tasks, high_rate)
    status, reason = _status_of_places({"count": _place(row.out_of_budget, (low, high))})
    status, reason = _unless_unidentified(results, row.dataset, setting, status, reason)
    return _line(*head, status, reason, f"{ours * row.n_tasks:.1f} of {row.n_tasks}", f"{low:.0f} to {high:.0f}")
