"""Versions in use, for the head of a notebook."""

import platform
from importlib.metadata import version


def versions() -> str:
    """One line with the versions that decide a notebook's numbers."""
    names = ("bamas-lite", "numpy", "scipy", "PuLP", "highspy", "torch", "sentence-transformers", "pandas",
             "matplotlib")
    python = ".".join(platform.python_version_tuple()[:2])
    return f"Python {python}, " + ", ".join(f"{name} {version(name).split('+')[0]}" for name in names)
