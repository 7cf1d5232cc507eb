"""Published figures: the files are complete, and every slip in a copy is one message with file, row and value."""

import re

import pytest

from bamas_lite import load_pool, provision
from bamas_lite.casting import TOPOLOGIES
from bamas_lite.paths import DATA
from bamas_lite.provisioning import TOKEN_LIMITS
from bamas_lite.reproduction.published import (
    BASELINES,
    DATASETS,
    LLMS,
    PublishedFileError,
    dataset,
    load_counts,
    load_published,
    load_shares,
)
from bamas_lite.tasks import DOMAINS, load_tasks


def test_every_system_and_setting_is_there_once():
    rows = load_published()
    baselines = {(d.name, s, llm) for d in DATASETS.values() for s in BASELINES[:-1] for llm in d.baseline_llms}
    chains = {(d, "Naive-CostAware", f"L{i} {llm}") for d in ("GSM8K", "MBPP") for llm in LLMS for i in range(1, 6)}
    bamas = {(d.name, "BAMAS", f"budget {b}") for d in DATASETS.values() for b in d.budgets}
    assert {(r.dataset, r.system, r.setting) for r in rows.itertuples()} == baselines | chains | bamas
    assert len(rows) == len(baselines | chains | bamas) and len(bamas) == 13


def test_budgets_and_llms_are_read_off_the_settings():
    rows = load_published()
    for row in rows.itertuples():
        if row.system == "BAMAS":
            assert row.setting == f"budget {row.budget:g}" and row.llm != row.llm
        else:
            assert row.setting.endswith(row.llm) and row.llm in LLMS and row.budget != row.budget
    assert set(load_counts().budget) == set(rows.budget.dropna())


def test_headlines_follow_from_the_rows():
    rows = load_published().set_index(["dataset", "system", "setting"])
    cost, right = rows.avg_cost_microusd, rows.accuracy_percent
    code, reasoning = ("MBPP", "BAMAS", "budget 1250"), ("GSM8K", "BAMAS", "budget 1625")
    assert round(100 * (1 - cost[code] / cost["MBPP", "MetaGPT", "DeepSeek-V3"])) == 86
    assert round(100 * (1 - cost[reasoning] / cost["GSM8K", "AutoGen", "DeepSeek-V3"])) == 62
    assert right["MATH", "BAMAS", "budget 2000"] > right["MATH", "AutoGen", "GPT-4.1 nano"]


def test_counts_and_shares():
    counts = load_counts()
    assert counts.groupby("dataset").out_of_budget.sum().to_dict() == {"GSM8K": 0, "MATH": 41, "MBPP": 15}
    for name, rows in counts.groupby("dataset"):
        assert tuple(rows.budget) == DATASETS[name].budgets and set(rows.n_tasks) == {DATASETS[name].n_test}
    shares = load_shares()
    assert dict(zip(shares.dataset, shares.share_percent, strict=True)) == {"GSM8K": 40.1, "MATH": 69.8}
    assert set(shares.topology) <= set(TOPOLOGIES)


@pytest.mark.parametrize("name", DATASETS)
def test_datasets_fit_the_rest_of_the_package(name):
    data = dataset(name)
    assert data.domain in DOMAINS and data.domain in TOKEN_LIMITS and data.real_tasks in TOKEN_LIMITS
    assert load_tasks(data.own_tasks, limit=1)[0].domain == data.domain
    pool = load_pool("paper").with_max_tokens(TOKEN_LIMITS[data.domain]["executor"])
    assert tuple(llm.name for llm in sorted(pool.llms, key=lambda llm: llm.tier)) == data.llms
    assert all(len(provision(pool, budget).slots) >= 2 for budget in data.budgets)


def test_an_unknown_dataset_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="'gsm8k': expected one of GSM8K, MBPP, MATH"):
        dataset("gsm8k")
    with pytest.raises(ValueError, match=r"dataset = \['GSM8K'\]: expected one of"):
        dataset(["GSM8K"])


ROWS = (DATA / "paper_results.csv").read_text(encoding="utf-8")
COUNTS = (DATA / "paper_counts.csv").read_text(encoding="utf-8")
SHARES = (DATA / "paper_shares.csv").read_text(encoding="utf-8")


def in_line(text, line, old, new):
    lines = text.splitlines()
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new)
    return "\n".join(lines) + "\n"


def rows_with(line, old, new):
    return in_line(ROWS, line, old, new)


@pytest.mark.parametrize(("load", "text", "message"), [
    (load_published, rows_with(3, "GSM8K", "GSM-8K"), "row 3: dataset = 'GSM-8K': expected one of GSM8K, MBPP, MATH"),
    (load_published, rows_with(2, "AutoGen", "Autogen"), "row 2: system = 'Autogen': expected one of AutoGen,"),
    (load_published, rows_with(8, "budget 500", "budget 501"), "row 8: setting = 'budget 501': expected one of budg"),
    (load_published, rows_with(2, "DeepSeek-V3", "budget 500"), "row 2: setting = 'budget 500': expected one of Deep"),
    (load_published, rows_with(13, "L1 ", "L6 "), "row 13: setting = 'L6 DeepSeek-V3': expected one of L1 DeepSeek"),
    (load_published, rows_with(2, "95.4", "100.4"), "row 2: accuracy_percent = '100.4': expected a percentage from 0"),
    (load_published, rows_with(2, "95.4", "-1"), "row 2: accuracy_percent = '-1': expected a percentage from 0 to 1"),
    (load_published, rows_with(2, "95.4", "nan"), "row 2: accuracy_percent = 'nan': expected a percentage from 0 to"),
    (load_published, rows_with(2, "1425.3", "0"), "row 2: avg_cost_microusd = '0': expected a cost above 0 u$"),
    (load_published, rows_with(2, "1425.3", "1,425"), "row 2: 7 fields"),
    (load_published, rows_with(2, "BAMAS Table 1", ""), "row 2: source = '': expected the table"),
    (load_published, ROWS + ROWS.splitlines()[1] + "\n",
     f"row {len(ROWS.splitlines()) + 1}: dataset = GSM8K, system = AutoGen, setting = DeepSeek-V3 is given twice"),
    (load_published, rows_with(1, "accuracy_percent", "accuracy"), "column accuracy_percent is missing; the file has"),
    (load_published, rows_with(1, "source", "system"), "column system is there twice"),
    (load_published, ROWS.splitlines()[0], "empty; expected a header and at least one row"),
    (load_published, "", "empty; expected a header and at least one row"),
    (load_published, ROWS + '"open', "not readable as CSV"),
    (load_counts, in_line(COUNTS, 7, "MBPP,500,1,500", "MBPP,500,501,500"),
     "row 7: out_of_budget = '501': expected a whole number from 0 to n_tasks = 500"),
    (load_counts, in_line(COUNTS, 7, ",1,", ",0.5,"), "row 7: out_of_budget = '0.5': expected a whole number"),
    (load_counts, in_line(COUNTS, 2, "1319", "many"), "row 2: n_tasks = 'many': expected a whole number from 1"),
    (load_counts, in_line(COUNTS, 12, "MATH,1000", "MATH,500"),
     "row 12: budget = '500': expected a budget of the data set: 1000, 2000, 3000"),
    (load_counts, COUNTS + COUNTS.splitlines()[1], "dataset = GSM8K, budget = 500.0 is given twice"),
    (load_shares, in_line(SHARES, 2, "feedback", "Feedback"), "row 2: topology = 'Feedback': expected one of linear"),
    (load_shares, in_line(SHARES, 3, "69.8", "698"), "row 3: share_percent = '698': expected a percentage"),
])
def test_each_slip_is_one_message(tmp_path, load, text, message):
    file = tmp_path / "copy.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(PublishedFileError, match=re.escape(message)) as caught:
        load(file)
    assert str(caught.value).startswith(str(file)) and "\n" not in str(caught.value)


def test_a_copy_with_another_figure_is_read(tmp_path):
    file = tmp_path / "copy.csv"
    file.write_text(rows_with(2, "95.4", "91.4"), encoding="utf-8")
    assert load_published(file).accuracy_percent[0] == 91.4 and load_published().accuracy_percent[0] == 95.4


def test_no_such_file_and_no_text(tmp_path):
    with pytest.raises(PublishedFileError, match="cannot be read"):
        load_published(tmp_path / "absent.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PublishedFileError, match="not readable as CSV in UTF-8"):
        load_published(tmp_path / "binary.csv")
    with pytest.raises(PublishedFileError, match="path = 3.5: expected the name of a file"):
        load_published(3.5)
