"""The committed notebooks as files, and the command that runs them; nbval compares their outputs (`make test`)."""

import re
from pathlib import Path

import nbformat
import pyarrow.parquet as pq
import pytest

from bamas_lite import notebooks

ROOT = Path(__file__).resolve().parent.parent
MAIN = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
SOLUTIONS = sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb"))
LABELS = ["**Question.**", "**After this notebook you can**", "**In the paper:**", "**Before:**", "**Time:**",
          "**No key needed.**"]
ENDING = ["What we saw", "Where it breaks", "Exercises", "Next"]
IGNORE = "# NBVAL_IGNORE_OUTPUT"
SECRET = re.compile(r"\b(?:sk-[\w-]{20,}|hf_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{12,}|gh[pousr]_\w{20,}|Bearer \w{12,})")
PRIVATE_PATH = re.compile(r"(?<![\w.~:/])/(?:[a-z]+/){2,}|(?<![\w.~:/])/(?:home|root|Users)\b|\b[A-Z]:\\|~/")


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def prose(notebook):
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def shown_text(notebook):
    """All text that the outputs of a notebook show."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            yield from [output["text"]] if "text" in output else []
            yield from (text for kind, text in output.get("data", {}).items() if not kind.startswith("image/png"))


every = pytest.mark.parametrize("path", MAIN + SOLUTIONS, ids=lambda path: path.stem)
main = pytest.mark.parametrize("path", MAIN, ids=lambda path: path.stem)


def test_the_six_notebooks_of_the_course_are_there():
    assert [path.stem for path in MAIN][:6] == [
        "00_quickstart", "01_tiered_recursive_weights", "02_solving_the_ilp", "03_offline_trajectories",
        "04_training_the_policy", "05_running_topologies"]


def test_each_notebook_has_its_solutions():
    assert [path.stem for path in SOLUTIONS] == [f"{path.stem}_solutions" for path in MAIN]


# --- every notebook, solutions too ---

@every
def test_notebook_is_valid_and_was_run_once_from_top_to_bottom(path):
    notebook = read(path)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any(cell.outputs for cell in cells)


@every
def test_notebook_stores_no_error_and_no_stderr(path):
    for cell in code_cells(read(path)):
        for output in cell.outputs:
            assert output.output_type != "error", output.get("evalue")
            assert output.get("name") != "stderr", output.get("text")


@every
def test_notebook_stores_no_metadata_but_kernel_and_tags(path):
    notebook = read(path)
    assert notebook.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"}}
    assert [cell["id"] for cell in notebook.cells] == [f"cell-{n:02d}" for n in range(len(notebook.cells))]
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"tags"}
        for output in cell.get("outputs", []):
            assert not output.get("metadata"), "output metadata"


@every
def test_notebook_shows_no_path_and_no_key(path):
    notebook = read(path)
    for text in [*shown_text(notebook), *(cell.source for cell in notebook.cells)]:
        assert not SECRET.search(text)
    for text in shown_text(notebook):
        assert not PRIVATE_PATH.search(text), PRIVATE_PATH.search(text).group()


@every
def test_notebook_ignores_output_at_most_twice(path):
    marked = [line for cell in code_cells(read(path)) for line in cell.source.splitlines() if "NBVAL" in line]
    assert set(marked) <= {IGNORE}, "other text than the exact comment has no effect"
    assert len(marked) <= 2


@every
def test_cells_are_short(path):
    cells, most_lines = code_cells(read(path)), 20 if path in MAIN else 30
    assert len(cells) <= 30, "25 beside imports, parameters and the three exercises"
    for cell in cells[1:]:   # the first one imports
        assert len(cell.source.splitlines()) <= most_lines, cell.source


@every
def test_no_cell_ends_with_the_name_of_a_figure_object(path):
    for cell in code_cells(read(path)):
        for output in cell.outputs:
            if output.output_type == "execute_result":
                text = output.data.get("text/plain", "")
                assert not re.search(r"<(Axes|Figure|matplotlib)|^Text\(", text), f"end with plt.show(): {text}"


@every
def test_no_dollar_sign_that_mathjax_would_pair(path):
    r"""Markdown turns \$ into $, and MathJax then takes two of them for a formula: the unit stands in a code span."""
    assert "\\$" not in prose(read(path))
    for paragraph in re.split(r"\n\s*\n", re.sub(r"`[^`]*`", "", prose(read(path)))):
        assert len(re.findall(r"(?<!\$)\$(?!\$)", paragraph)) % 2 == 0, paragraph


# --- the notebooks of the course ---

@main
def test_opening_block(path):
    first = read(path).cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith(f"# {path.stem[:2]} ")
    places = [first.source.find(label) for label in LABELS]
    assert -1 not in places, LABELS[places.index(-1)]
    assert places == sorted(places)
    abilities = first.source[places[1]:places[2]]
    assert 2 <= len(re.findall(r"^[-*] ", abilities, re.MULTILINE)) <= 4
    assert re.search(r"\d", first.source[places[4]:places[5]]), "no measured time"


@main
def test_one_imports_cell_which_shows_the_versions(path):
    cells = code_cells(read(path))
    assert "print(bamas_lite.versions())" in cells[0].source or "print(versions())" in cells[0].source
    late = [line for cell in cells[1:] for line in cell.source.splitlines() if re.match(r"(import|from) ", line)
            and "bamas_lite.exercises" not in line]
    assert not late


@main
def test_one_parameters_cell_whose_knobs_are_explained(path):
    cells = [cell for cell in code_cells(read(path)) if "parameters" in cell.metadata.get("tags", [])]
    assert len(cells) == 1
    for line in cells[0].source.splitlines():
        if re.match(r"\w+ *=", line):
            assert "#" in line, f"no comment: {line}"


@main
def test_ending_and_predictions(path):
    text = prose(read(path))
    places = [text.rfind(heading) for heading in (f"## {name}" for name in ENDING)]
    assert -1 not in places, ENDING[places.index(-1)]
    assert places == sorted(places)
    assert "**Predict" in text


@main
def test_links_lead_to_the_next_notebook_and_to_the_solutions(path):
    text = prose(read(path))
    following = [other.name for other in MAIN if other.stem > path.stem]
    if following:
        assert f"]({following[0]})" in text[text.rfind("## Next"):]
    assert f"](solutions/{path.stem}_solutions.ipynb)" in text
    for target in re.findall(r"\]\(([\w./]+\.ipynb)\)", text):
        assert (path.parent / target).is_file(), target


@main
def test_exercises_check_themselves_and_wait_for_the_reader(path):
    source = "\n".join(cell.source for cell in code_cells(read(path)))
    assert f"bamas_lite.exercises.n{path.stem[:2]}" in source
    for number in (1, 2, 3):
        assert re.search(rf"^answer_{number} = None", source, re.MULTILINE)
        assert f"check_{number}(answer_{number})" in source
    solved = read(path.parent / "solutions" / f"{path.stem}_solutions.ipynb")
    solutions = "\n".join(cell.source for cell in code_cells(solved))
    assert f"bamas_lite.exercises.n{path.stem[:2]}" in solutions
    assert not re.search(r"^answer_\d = None", solutions, re.MULTILINE)


@main
def test_every_picture_comes_with_text(path):
    """nbval does not compare pictures, so the data behind each is printed in that cell or a neighbor."""
    cells = code_cells(read(path))
    has_picture = [any("image/png" in o.get("data", {}) for o in cell.outputs) for cell in cells]
    has_text = [any("text" in o or "text/html" in o.get("data", {}) for o in cell.outputs) for cell in cells]
    for number, picture in enumerate(has_picture):
        assert not picture or any(has_text[max(0, number - 1):number + 2]), cells[number].source


# --- recordings ---

@pytest.mark.parametrize("path", sorted((ROOT / "data").rglob("*.parquet")), ids=lambda path: path.name)
def test_recordings_hold_no_path_and_no_key(path):
    table = pq.read_table(path)
    texts = [str(value) for value in (table.schema.metadata or {}).values()]
    for column in table.columns:
        if "string" in str(column.type):
            texts += [text for text in column.unique().to_pylist() if text]
    for text in texts:
        assert not SECRET.search(text)
        assert not re.search(r"(?<![\w.~:/])/(?:home|root|Users|tmp)/", text)


def test_sanitize_file_is_ascii_and_has_valid_patterns():
    text = (ROOT / "tests" / "nbval_sanitize.cfg").read_text(encoding="ascii")
    patterns = re.findall(r"^regex: (.+)$", text, re.MULTILINE)
    assert patterns
    for pattern in patterns:
        re.compile(pattern)


# --- the runner ---

FIGURE = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with notebooks of its own, where the runner reads and writes."""
    good = ["import sys", "n = 1\nbudgets: list = [1]\ndataset = 'own'", FIGURE, "print(n, dataset)"]
    loud = ["import sys; print('hm', file=sys.stderr)"]
    for name, cells in {"00_good": good, "01_bad": ["1 / 0"], "02_loud": loud}.items():
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
        notebook.cells[min(1, len(cells) - 1)].metadata["tags"] = ["parameters"]
        notebook.metadata = {"kernelspec": {"display_name": "any", "language": "python", "name": "python3"},
                             "widgets": {"state": {}}}
        nbformat.write(notebook, tmp_path / f"{name}.ipynb")
    monkeypatch.setattr(notebooks, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(notebooks, "EXECUTED", tmp_path / "build" / "notebooks")
    monkeypatch.setattr(notebooks, "FIGURES", tmp_path / "build" / "figures")
    return tmp_path


def output(path):
    return "".join(shown_text(read(path)))


def test_run_reports_each_notebook_and_goes_on_after_a_failure(folder, capsys):
    assert notebooks.main(["run"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"00_good +\d+\.\d s +\d\.\d GiB  ok", lines[0])
    assert re.fullmatch(r"01_bad +\d+\.\d s +\d\.\d GiB  failed", lines[1])
    assert lines[2].strip() == "cell [1]: ZeroDivisionError: division by zero"
    assert lines[3].startswith("02_loud") and lines[3].endswith("ok")
    assert lines[4].startswith("2 of 3 notebooks ok")
    assert (folder / "build" / "figures" / "00_good_01.png").read_bytes().startswith(b"\x89PNG")
    assert "1 own" in output(folder / "build" / "notebooks" / "00_good.ipynb")
    assert code_cells(read(folder / "00_good.ipynb"))[0].execution_count is None, "only a copy is run"


def test_run_injects_only_declared_parameters(folder, capsys):
    assert notebooks.declared_parameters(read(folder / "00_good.ipynb")) == {"n", "budgets", "dataset"}
    assert notebooks.main(["run", "--benchmarks", str(folder), "00"]) == 0
    executed = read(folder / "build" / "notebooks" / "00_good.ipynb")
    assert "1 gsm8k" in output(folder / "build" / "notebooks" / "00_good.ipynb")
    (injected,) = [cell for cell in executed.cells if "injected-parameters" in cell.metadata.get("tags", [])]
    assert "benchmarks_dir" not in injected.source


def test_an_empty_name_is_no_notebook(folder, capsys):
    assert notebooks.main(["run", ""]) == 2
    assert "no notebook ''" in capsys.readouterr().err


def test_run_on_a_missing_folder_says_so_before_anything_runs(folder, capsys):
    assert notebooks.main(["run", "--benchmarks", str(folder / "absent")]) == 2
    assert "absent' is not a folder" in capsys.readouterr().err
    assert not (folder / "build").exists()


def test_an_unknown_name_is_refused(folder, capsys):
    assert notebooks.main(["run", "07"]) == 2
    assert "no notebook '07'; there are 00_good, 01_bad, 02_loud" in capsys.readouterr().err


def test_refresh_cleans_and_leaves_a_failing_notebook_as_it_was(folder, capsys):
    before = (folder / "01_bad.ipynb").read_bytes(), (folder / "02_loud.ipynb").read_bytes()
    assert notebooks.main(["refresh"]) == 1
    assert before == ((folder / "01_bad.ipynb").read_bytes(), (folder / "02_loud.ipynb").read_bytes())
    assert "cell 0 wrote to stderr: hm" in capsys.readouterr().out
    test_notebook_is_valid_and_was_run_once_from_top_to_bottom(folder / "00_good.ipynb")
    test_notebook_stores_no_metadata_but_kernel_and_tags(folder / "00_good.ipynb")
    first = (folder / "00_good.ipynb").read_bytes()
    assert notebooks.main(["refresh", "00"]) == 0
    assert (folder / "00_good.ipynb").read_bytes() == first
