"""How often calls of each kind went well in recorded episodes: what the simulator assumes, counted (notebook 08).

The input is a table of different calls, `pd.DataFrame(calls_of(episodes, tasks))`. Intervals are 95%
percentile intervals of the bootstrap over tasks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

RESAMPLES = 2000

CRITICS = {"hit": "wrong", "false_alarm": "right"}
"""Name of the rate at which a critic rejects answers -> what these answers are."""

KEPT, REPAIRED = "right answer seen, then right", "wrong answer seen, then right"
_EDITS = {"improve": "{} answer seen, then right", "revise": "{} answer criticized, then right"}
_FIRST = {"solve": "first answer right", "approach": "first answer right, with an approach",
          "step": "first answer right, after a plan"}


def rate(calls: pd.DataFrame, seed: int = 0) -> tuple[float, float, float, int]:
    """Share of calls whose column `right` is true, its interval, and how many calls there are (0: the rest is NaN)."""
    k = calls.groupby("task_id").right.agg(["sum", "count"]).to_numpy(float)
    if not len(k):
        return np.nan, np.nan, np.nan, 0
    sums = _resampled(k, seed)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], (0.025, 0.975))
    return float(calls.right.mean()), float(low), float(high), len(calls)


def call_rates(calls: pd.DataFrame, llms: Sequence[str], seed: int = 0) -> pd.DataFrame:
    """Rates of all kinds of calls by LLM.

    Kinds: a plan can be used; a critic rejects a wrong or a right answer; an executor that sees a wrong or a right
    earlier answer, without or with a criticism that asks for a revision, is right then; a first answer is right: plain,
    with an approach of Star, or after a plan.

    Returns:
        what, llm, share, low, high, n (calls); a row for each kind and LLM, also where there was no such call.
    """
    groups = {"plan can be used": calls[calls.role == "planner"].assign(right=lambda c: c.steps > 0)}
    for state in CRITICS.values():
        groups[f"critic rejects a {state} answer"] = calls[(calls.role == "critic") & (calls.earlier == state)]
    for style, what in _EDITS.items():
        for state in CRITICS.values():
            groups[what.format(state)] = calls[(calls["style"] == style) & (calls.earlier == state)]
    for style, what in _FIRST.items():
        groups[what] = calls[(calls["style"] == style) & calls.earlier.isna()]
    return pd.DataFrame([(what, llm, *rate(group[group.llm == llm], seed)) for what, group in groups.items()
                         for llm in llms], columns=["what", "llm", "share", "low", "high", "n"])


def critic_rates(calls: pd.DataFrame, llms: Sequence[str], within: str | None = None, seed: int = 0) -> pd.DataFrame:
    """What each critic's verdict is worth.

    Args:
        within: a column of `calls`, such as the kind of task. A critic that accepts one kind and rejects another,
            whatever the answer, differs from one that guesses as soon as answers of one kind are right more often.

    Returns:
        llm; hit and false_alarm, the shares of wrong and of right answers that it rejects, and difference, hit minus
        false_alarm (a critic that does not look at the answer has 0), each with _low and _high; n_wrong and n_right,
        the answers that it judged. With `within` also the
        mean of the difference within each value of that column, weighted by its calls. LLMs that did not judge both
        wrong and right answers are left out, and so are such values.
    """
    judged = calls[(calls.role == "critic") & calls.earlier.isin(CRITICS.values())]
    names = [*CRITICS, "difference", *(["within"] if within else [])]
    rows = []
    for llm in llms:
        part = judged[judged.llm == llm]
        if part.earlier.nunique() < len(CRITICS):
            continue
        row: dict[str, object] = {"llm": llm}
        for name, state in CRITICS.items():
            *ends, row[f"n_{state}"] = rate(part[part.earlier == state], seed)
            row |= _ends(name, *ends)
        groups = {"difference": [part]}
        if within:
            groups["within"] = [group for _, group in part.groupby(within) if group.earlier.nunique() == len(CRITICS)]
        for name in names[len(CRITICS):]:
            row |= _ends(name, *_difference(groups[name], seed))
        rows.append(row)
    columns = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
    return pd.DataFrame(rows, columns=["llm", *columns, *(f"n_{state}" for state in CRITICS.values())])


def _ends(name: str, mid: float, low: float, high: float) -> dict[str, float]:
    return {name: mid, f"{name}_low": low, f"{name}_high": high}


def _difference(groups: Sequence[pd.DataFrame], seed: int) -> tuple[float, float, float]:
    """Hit minus false alarm, the mean over groups of critics' calls weighted by their size, and its interval."""
    if not groups:
        return np.nan, np.nan, np.nan
    mid, draws = 0.0, np.zeros(RESAMPLES)
    for number, part in enumerate(groups):
        wrong, rejected = (part.earlier == "wrong").to_numpy(), part.right.to_numpy(bool)
        k = pd.DataFrame({"task_id": part.task_id, "hits": wrong & rejected, "wrong": wrong,
                          "alarms": ~wrong & rejected, "right": ~wrong}).groupby("task_id").sum().to_numpy(float)
        weight = len(part) / sum(map(len, groups))
        hits, n_wrong, alarms, n_right = np.vstack([k.sum(axis=0), _resampled(k, seed + number)]).T
        with np.errstate(invalid="ignore"):   # a sample of tasks may hold only one kind of answers
            both = hits / n_wrong - alarms / n_right
        mid, draws = mid + weight * both[0], draws + weight * both[1:]
    low, high = np.nanquantile(draws, (0.025, 0.975))
    return float(mid), float(low), float(high)


def _resampled(k: np.ndarray, seed: int) -> np.ndarray:
    """Sums of the columns of k (n tasks, ...) over resampled tasks: (RESAMPLES, ...)."""
    return np.random.default_rng(seed).multinomial(len(k), np.full(len(k), 1 / len(k)), RESAMPLES) @ k
