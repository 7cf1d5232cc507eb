"""The README's block between its marks, and the table of a folder of results."""

import pytest

from bamas_lite.paths import DATA
from bamas_lite.reproduction import summary
from bamas_lite.reproduction.published import PublishedFileError, load_published
from bamas_lite.reproduction.summary import BEGIN, END, check_readme, committed_table, write_readme


@pytest.fixture
def readme(tmp_path, monkeypatch):
    monkeypatch.setattr(summary, "readme_block", lambda: "the block")
    return tmp_path / "README.md"


def test_the_block_replaces_what_is_between_the_marks(readme):
    readme.write_text(f"# T\n\n{BEGIN}\nold\n{END}\n\nend\n", encoding="utf-8")
    for _ in range(2):
        write_readme(readme)
        assert readme.read_text(encoding="utf-8") == f"# T\n\n{BEGIN}\n\nthe block\n\n{END}\n\nend\n"


@pytest.mark.parametrize("text", ["# T\n", BEGIN, END, f"{END}\n{BEGIN}\n", f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n",
                                  f"{BEGIN}\n{END}\n{END}\n"])
def test_without_both_marks_once_nothing_is_written(readme, text):
    readme.write_text(text, encoding="utf-8")
    for call in (check_readme, write_readme):
        with pytest.raises(ValueError, match="README.md: expected the line <!-- reproduction.* once and, after it"):
            call(readme)
    assert readme.read_text(encoding="utf-8") == text


def test_a_readme_that_is_not_there_is_skipped_and_a_broken_one_is_named(readme):
    assert check_readme(readme) is None
    write_readme(readme)
    assert not readme.exists()
    readme.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"README\.md: cannot be read"):
        check_readme(readme)


def test_the_readme_of_the_project_has_its_marks():
    assert check_readme(DATA.parent / "README.md")


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    folder = DATA / "reproduction"
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert committed_table(folder=tmp_path).equals(committed_table())
    rows = (tmp_path / "rows.csv").read_text(encoding="utf-8")
    (tmp_path / "rows.csv").write_text(rows.replace("GSM8K", "AIME"), encoding="utf-8")
    with pytest.raises(ValueError, match="test_a_folder.*: rows: dataset = 'AIME': expected one of GSM8K"):
        committed_table(folder=tmp_path)
    (tmp_path / "rows.csv").unlink()
    with pytest.raises(ValueError, match="name = 'rows': no such result in .*test_a_folder"):
        committed_table(folder=tmp_path)
    with pytest.raises(ValueError, match="folder = 3"):
        committed_table(folder=3)
    with pytest.raises(PublishedFileError, match="^published: column llm is missing"):
        committed_table(load_published().drop(columns="llm"))
