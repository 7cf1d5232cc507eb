"""Versions in use, for the head of a notebook."""

import platform
from importlib.metadata import version
from textwrap import fill


def versions() -> str:
    """The versions that decide a notebook's numbers, in lines of at most 100 characters."""
    names = ("bamas-lite", "numpy", "scipy", "PuLP", "highspy", "torch", "sentence-transformers", "pandas",
             "matplotlib")
    python = ".".join(platform.python_version_tuple()[:2])
    return fill(f"Python {python}, " + ", ".join(f"{name} {version(name).split('+')[0]}" for name in names), 100)
