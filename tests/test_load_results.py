"""Reading result files by name."""

import pandas as pd
import pytest

from bamas_lite.reproduction.results import load_results


def test_results_are_read_from_the_committed_folder_or_from_one_of_your_own(tmp_path):
    assert {"dataset", "system", "accuracy"} <= set(load_results("rows"))
    table = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    table.to_csv(tmp_path / "one.csv", index=False)
    table.to_parquet(tmp_path / "two.parquet", index=False)
    for name in ("one", "two"):
        pd.testing.assert_frame_equal(load_results(name, tmp_path), table)
    with pytest.raises(ValueError, match="name = 'three': no such result in .*; there are one, two"):
        load_results("three", tmp_path)


@pytest.mark.parametrize(("name", "folder", "message"), [
    ("rows", "absent", "folder = .*: no such folder"), ("rows", 3, "folder = 3: expected the name of a folder"),
    ("rows", "", "no such result in .*; there are blank"), (3, "", "name = 3: expected the name of a result"),
    ("../rows", "", r"name = '\.\./rows': expected the name of a result"),
    ("blank", "", r"blank\.csv: cannot be read as a table \(No columns"),
    ("bytes", "", r"bytes\.csv: cannot be read as a table"), ("broken", "", r"broken\.parquet: cannot be read as a t"),
    ("header", "", r"header\.csv: the table has no rows"), ("folder", "", "no such result")])
def test_what_cannot_be_read_is_one_message(tmp_path, name, folder, message):
    for file, content in (("blank.csv", b""), ("bytes.csv", b"a,b\n\xff\xfe,1\n"), ("broken.parquet", b"PAR1..."),
                          ("header.csv", b"a,b\n")):
        (tmp_path / file).write_bytes(content)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ValueError, match=message) as caught:
        load_results(name, tmp_path / folder if isinstance(folder, str) else folder)
    assert "\n" not in str(caught.value)
