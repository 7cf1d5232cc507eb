"""Where the committed data lie: beside the package in a clone, inside it in an installed wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
DATA = next((p for p in (_PACKAGE / "data", _PACKAGE.parent / "data") if (p / "pools").is_dir()), _PACKAGE / "data")
