"""Keys in what users hand in: a message about a fault must not repeat one, on a screen or in a log that is shared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"

_SECRET_NAME = re.compile(r"key|token|secret|passw|bearer|credential|auth(?!or(?!iz))", re.IGNORECASE)
_BEGINS_AS_KEY = re.compile(r"(?:sk|gsk|csk|hf|xai|nvapi|pplx|r8|tgp|fw|gh[a-z]|github_pat|bearer)[-_ ]|AIza|AKIA",
                            re.IGNORECASE)
_SHORT_KEY = re.compile(r"(?:sk|gsk|hf)[-_]\w{5}")
_LEAST = 16
"""Characters of a word below which it is taken for part of a name."""


def is_secret_name(name: Any) -> bool:
    """Whether a field of this name is likely to hold a key."""
    return isinstance(name, str) and _SECRET_NAME.search(name) is not None


def like_a_key(text: str) -> bool:
    """Whether `text` is a key rather than a name: it has a long word with digits between its letters.

    Names have digits too, but at the ends of their words: MY_KEY_2, openrouter_key2026.
    """
    return begins_as_key(text) or any(
        len(re.findall("[0-9]+", word)) >= (2 if len(word) < 2 * _LEAST else 1) and not word.isdigit()
        for word in _long_words(text))


def begins_as_key(text: str) -> bool:
    """Whether `text` begins as the keys of well-known providers do, and goes on as no word does."""
    begins = _BEGINS_AS_KEY.match(text)
    return begins is not None and any(
        re.search("[0-9][A-Za-z]", word) or (len(word) >= 24 and not (word.islower() or word.isupper()))
        for word in _long_words(text[begins.end():]))


def _long_words(text: str) -> list[str]:
    return re.findall(f"[A-Za-z0-9]{{{_LEAST},}}", text)


def holds_a_key(value: Any, name: Any = "") -> bool:
    """Whether a text in nested values is a key; where nothing but its look says so, it may as well be a checksum."""
    if isinstance(value, Mapping):
        return any(holds_a_key(item, key) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return any(holds_a_key(item, name) for item in value)
    return isinstance(value, str) and (like_a_key(value) if is_secret_name(name) else begins_as_key(value))


def without_keys(value: Any, name: Any = "") -> Any:
    """`value` for a message: what a field of a secret `name` holds, and text that looks like a key, is hidden."""
    if isinstance(value, Mapping):
        return {without_keys(key): without_keys(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [without_keys(item, name) for item in value]
    if is_secret_name(name) and value is not None and value != "" and not isinstance(value, bool):
        return HIDDEN
    return re.sub(r"[^\s/]+", _hidden_word, value) if isinstance(value, str) else value


def _hidden_word(word: re.Match[str]) -> str:
    return HIDDEN if like_a_key(word[0]) or _SHORT_KEY.match(word[0]) else word[0]
