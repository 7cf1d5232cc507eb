"""The committed results of the reproduction are what the package makes today: on slices, and within their intervals."""

import numpy as np
import pandas as pd
import pytest

from bamas_lite.paths import DATA
from bamas_lite.reproduction import summary
from bamas_lite.reproduction.draws import ASSUMED, GIVEN, OWN_ROW, Plan, one_draw, result_tables
from bamas_lite.reproduction.predicates import LEAST_DRAWS, PUBLISHED
from bamas_lite.reproduction.published import DATASETS, load_published
from bamas_lite.reproduction.results import check_rows, load_results
from bamas_lite.reproduction.switches import SWITCHES, measure_switches
from bamas_lite.reproduction.systems import reproduce

REMAKE = "; `make reproduce` remakes the committed files"


def test_a_fresh_small_run_stays_within_the_committed_intervals():
    """The regression test of the reproduction: other seeds and fewer tasks, every system and setting of a data set.

    Policies are left out: trained on so few tasks they are others.
    """
    fresh = reproduce(["GSM8K"], n_tasks=60, n_seeds=2).rows
    fresh = fresh[~fresh.system.str.startswith(("BAMAS", "best", "oracle"))]
    committed = load_results("rows")
    assert len(fresh) > 30 and check_rows(fresh, committed, complete=False) == [], REMAKE
    spoiled = committed.assign(**{f"accuracy{end}": committed[f"accuracy{end}"] - 25 for end in ("", "_low", "_high")})
    assert check_rows(fresh, spoiled, complete=False), "a row that moved would not be noticed"


def test_a_draw_made_anew_is_the_committed_one():
    draws = load_results("draws")
    assert draws.draw.nunique() >= LEAST_DRAWS
    for name, changes in GIVEN.values():
        draws = load_results(name)
        committed = draws[(draws.draw == 7) & (draws.dataset == "GSM8K")].reset_index(drop=True)
        fresh = one_draw(7, Plan(datasets=("GSM8K",), **changes))
        shared = [column for column in fresh if column in committed and committed[column].notna().all()]
        assert len(shared) > 150
        pd.testing.assert_frame_equal(fresh[shared], committed[shared], rtol=1e-4, atol=1e-3, obj=f"draw 7{REMAKE}")


def test_predictions_follow_from_the_draws():
    draws = {given: load_results(name) for given, (name, _) in GIVEN.items()}
    for name, table in result_tables(draws, load_published()).items():
        committed = load_results(name)
        assert set(committed.given) == set(GIVEN)
        pd.testing.assert_frame_equal(table, committed, rtol=1e-3, atol=1e-3, obj=name)
    prediction = load_results("prediction")
    ours = prediction[(prediction.given == ASSUMED) & (prediction.system == PUBLISHED)]
    assert len(ours) == sum(len(data.budgets) for data in DATASETS.values()) and not (ours.kind == "in-sample").any()
    own = prediction[(prediction.given == OWN_ROW) & (prediction.system == PUBLISHED)]
    assert (own.kind == "in-sample").sum() == len(DATASETS)


def test_a_switch_measured_anew_has_the_committed_effect():
    """The first switch that needs episodes of its own, at full size on the data set that is quickest to play."""
    switch = next(s for s in SWITCHES if s.name == "two rounds")
    fresh = measure_switches(["GSM8K"], switches=(switch,)).round(4)
    committed = load_results("switches")
    both = fresh.merge(committed, on=["switch", "dataset", "metric"], suffixes=("", "_committed"))
    both = both[both.switch == switch.name]
    assert len(both) >= 6
    for column in ("effect", "base", "with_switch"):
        np.testing.assert_allclose(both[column], both[f"{column}_committed"], atol=2e-3, err_msg=REMAKE)


def test_readme_states_the_committed_results():
    readme = (DATA.parent / "README.md").read_text(encoding="utf-8")
    block = readme.partition(summary.BEGIN)[2].partition(summary.END)[0]
    assert block.strip() == summary.readme_block()


@pytest.mark.parametrize("column, factor", [("accuracy_percent", 0.7), ("avg_cost_microusd", 5)])
def test_another_published_figure_changes_a_status(column, factor):
    published = load_published()
    row = published.index[(published.system == "AutoGen") & (published.dataset == "GSM8K")][0]
    published.loc[row, column] *= factor
    changed = summary.committed_table(published).status.to_numpy() != summary.committed_table().status.to_numpy()
    assert changed.any()
