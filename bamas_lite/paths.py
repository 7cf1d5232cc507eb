"""Where the committed data lie: beside the package in a clone, inside it in an installed wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
DATA = next((p for p in (_PACKAGE / "data", _PACKAGE.parent / "data") if (p / "pools").is_dir()), _PACKAGE / "data")

BUILD = (_PACKAGE.parent if (_PACKAGE.parent / "pyproject.toml").is_file() else Path.cwd()) / "build"
"""Where notebooks and commands write: `build/` of the clone, or of the current folder for an installed wheel."""
