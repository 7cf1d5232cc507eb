"""Folders that are handed in, and what a command says to wrong use."""

import os

import numpy as np
import pytest

from bamas_lite.inputs import command, in_folder, out_folder, shown


def test_a_folder_to_write_to_is_made(tmp_path):
    assert out_folder(str(tmp_path / "a" / "b"), "--out") == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b").is_dir() and out_folder(tmp_path, "--out") == tmp_path
    assert in_folder(str(tmp_path), "benchmarks") == tmp_path


@pytest.mark.parametrize("check", [out_folder, in_folder])
@pytest.mark.parametrize("value", ["", "  ", None, 3, "a\0b"])
def test_what_names_no_folder(check, value):
    with pytest.raises(ValueError, match=r"^--out = .*: (empty; )?expected the name of a folder"):
        check(value, "--out")


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("kept", encoding="utf-8")
    with pytest.raises(ValueError, match="^--out = .*file': is a file; expected a folder to write to"):
        out_folder(tmp_path / "file", "--out")
    with pytest.raises(ValueError, match="^--out = .*: cannot be made"):
        out_folder(tmp_path / "file" / "below", "--out")
    with pytest.raises(KeyError, match="benchmarks = .*file': no such folder"):
        in_folder(tmp_path / "file", "benchmarks", KeyError)
    assert (tmp_path / "file").read_text(encoding="utf-8") == "kept"


def test_a_folder_that_may_not_be_written_to(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(ValueError, match="may not be written to"):
        out_folder(tmp_path, "--out")


@pytest.mark.parametrize("error", [ValueError("seeds = 0"), RuntimeError("the fit did not converge")])
def test_a_command_says_what_is_wrong(error, capsys):
    @command
    def main(arguments=None):
        """What it does."""
        if arguments == ["ok"]:
            return 0
        raise error

    assert main.__doc__ == "What it does." and main(["ok"]) == 0 and capsys.readouterr() == ("", "")
    assert main() == 2 and capsys.readouterr() == ("", f"{error}\n")


def test_a_fault_of_the_program_is_no_wrong_use():
    @command
    def main(arguments=None):
        raise TypeError("a fault")

    with pytest.raises(TypeError):
        main()


def test_what_is_shown_is_one_line():
    assert shown(np.zeros((3, 2))) == "array([[0., 0.], [0., 0.], [0., 0.]])"
    assert shown("two\nlines  of text") == repr("two\nlines  of text") and len(shown("x" * 100)) == 80
