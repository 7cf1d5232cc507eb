"""The command that makes all result files: its steps, and what it refuses before any of them."""

import pytest

from bamas_lite.reproduction import __main__ as module

STEPS = ("calibration_files", "systems", "draws", "switches", "studies")


@pytest.fixture
def done(monkeypatch):
    """What was called: (step, arguments); no step does anything."""
    calls = []
    for name in STEPS:
        monkeypatch.setattr(getattr(module, name), "main", lambda a, name=name: calls.append((name, a)) or 0)
    for name in ("check_readme", "write_readme"):
        monkeypatch.setattr(module.summary, name, lambda name=name: calls.append(name))
    return calls


def test_all_steps_in_their_order(done):
    assert module.main(["--workers", "1"]) == 0
    workers = ["--workers", "1"]
    assert done == ["check_readme", ("calibration_files", []), *((name, workers) for name in STEPS[1:]), "write_readme"]


@pytest.mark.parametrize("folder", ["real", ""])
def test_with_benchmarks_only_the_full_run(done, folder):
    """Also with an empty path, which the full run refuses: our own results are never made instead."""
    assert module.main(["--benchmarks", folder]) == 0
    assert done == [("systems", ["--benchmarks", folder, "--workers", "2"])]


def test_the_first_failure_ends_it(done, monkeypatch):
    monkeypatch.setattr(module.systems, "main", lambda arguments: 2)
    assert module.main([]) == 2 and done == ["check_readme", ("calibration_files", [])]


def test_nothing_is_done_when_something_is_wrong(done, monkeypatch, capsys):
    assert module.main(["--workers", "0"]) == 2
    assert "--workers = 0: expected a whole number of at least 1" in capsys.readouterr().err and not done

    def refuse():
        raise ValueError("README.md: expected the line")

    monkeypatch.setattr(module.summary, "check_readme", refuse)
    assert module.main([]) == 2 and "README.md: expected" in capsys.readouterr().err and not done
