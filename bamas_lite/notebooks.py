"""Run the notebooks from the command line.

    python -m bamas_lite.notebooks run [--benchmarks FOLDER] [NAME ...]
    python -m bamas_lite.notebooks refresh [NAME ...]

`run` executes the numbered notebooks in order and writes the executed copies and their figures under `build/`; the
committed notebooks stay as they are. `refresh` executes the committed notebooks and their solutions in place and
cleans their metadata: for authors, after a change that moves their output. A NAME is the start of a file name, as "03".
"""

from __future__ import annotations

import argparse
import ast
import base64
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bamas_lite.paths import BUILD

try:
    import nbformat
    import papermill
    import psutil
    from nbclient import NotebookClient
except ModuleNotFoundError as error:
    raise SystemExit(f"{error}; to run notebooks, install the extra: pip install -e '.[offline,notebooks]'") from None

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
EXECUTED = BUILD / "notebooks"
FIGURES = BUILD / "figures"
README_FIGURE = "figures/quickstart.png"
"""The picture of README.md, in the notebooks folder: the last figure of notebook 00."""

REPRODUCIBLE = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""Environment of the kernels, so that output is the same from run to run."""

QUIET = ["--log-level=ERROR"]
"""Arguments of the kernels: one that is reached over this machine's own loopback need not warn about encryption."""


def find_notebooks(names: list[str], *, solutions: bool = False) -> list[Path]:
    """The numbered notebooks whose names start with one of `names` (all, if none is given), in order.

    Raises:
        FileNotFoundError: no notebooks folder (a wheel has none), or no notebook of that name.
    """
    if not NOTEBOOKS.is_dir():
        raise FileNotFoundError(f"no folder {NOTEBOOKS}: notebooks are run from a clone of the project")
    found = sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
    if solutions:
        found += sorted(NOTEBOOKS.glob("solutions/[0-9][0-9]_*.ipynb"))
    for name in names:
        if not name or not any(path.name.startswith(name) for path in found):
            raise FileNotFoundError(f"no notebook {name!r}; there are {', '.join(path.stem for path in found)}")
    return [path for path in found if not names or path.name.startswith(tuple(names))]


def declared_parameters(notebook: Any) -> set[str]:
    """Names that the cell tagged `parameters` assigns."""
    sources = [c.source for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    statements = [s for source in sources for s in ast.parse(source).body]
    targets = [t for s in statements if isinstance(s, ast.Assign) for t in s.targets]
    targets += [s.target for s in statements if isinstance(s, ast.AnnAssign)]
    return {t.id for t in targets if isinstance(t, ast.Name)}


def run_notebook(path: Path, parameters: dict[str, Any]) -> Path:
    """Execute a copy of one notebook, with those of `parameters` that it declares. Returns the executed copy.

    Raises:
        papermill.PapermillExecutionError: a cell failed; the executed copy says where.
    """
    chosen = declared_parameters(nbformat.read(path, 4)) & parameters.keys()
    target = EXECUTED / path.name
    target.parent.mkdir(parents=True, exist_ok=True)
    papermill.execute_notebook(path, target, {name: parameters[name] for name in sorted(chosen)}, cwd=path.parent,
                               kernel_name="python3", extra_arguments=QUIET, progress_bar=False, log_output=False)
    return target


def figures_of(notebook: Any) -> list[bytes]:
    """The PNG figures of an executed notebook, in order."""
    data = [o["data"] for c in notebook.cells for o in c.get("outputs", []) if "data" in o]
    return [base64.b64decode(d["image/png"]) for d in data if "image/png" in d]


def save_figures(executed: Path) -> int:
    """Write the figures of an executed notebook to build/figures/<notebook>_<n>.png; returns how many there are."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    for old in FIGURES.glob(f"{executed.stem}_[0-9][0-9].png"):
        old.unlink()
    figures = figures_of(nbformat.read(executed, 4))
    for number, png in enumerate(figures, 1):
        (FIGURES / f"{executed.stem}_{number:02d}.png").write_bytes(png)
    return len(figures)


def refresh_notebook(path: Path) -> Any:
    """Execute a committed notebook in place and keep only what is the same from run to run. Returns the notebook.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed; the file is left as it was.
        RuntimeError: a cell wrote to stderr; the file is left as it was.
    """
    notebook = nbformat.read(path, 4)
    NotebookClient(notebook, kernel_name="python3", extra_arguments=QUIET, record_timing=False, coalesce_streams=True,
                   resources={"metadata": {"path": str(path.parent)}}).execute()
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02d}"
        cell["metadata"] = {key: value for key, value in cell["metadata"].items() if key == "tags"}
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                raise RuntimeError(f"cell {number} wrote to stderr: {output['text'].strip()}")
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                         "language_info": {"name": "python"}}
    notebook.nbformat_minor = 5
    nbformat.write(notebook, path)
    return notebook


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """Yields a list whose only item becomes the peak resident memory of all child processes together, in GiB.

    Sampled ten times a second, so a short peak can be missed.
    """
    peak, done = [0.0], threading.Event()

    def sample() -> None:
        while not done.wait(0.1):
            total = 0
            for child in psutil.Process().children(recursive=True):
                try:
                    total += child.memory_info().rss
                except psutil.Error:   # it has just ended
                    pass
            peak[0] = max(peak[0], total / 2**30)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _attempt(path: Path, action: Any) -> bool:
    """Do `action` for one notebook and print its progress line. Returns whether it went well."""
    name = path.relative_to(NOTEBOOKS).with_suffix("").as_posix()
    print(f"{name:<42} ", end="", flush=True)
    start, problem = time.perf_counter(), ""
    with peak_memory() as peak:
        try:
            action()
        except Exception as error:   # any failure of a cell or a kernel is one notebook's, the others still run
            if hasattr(error, "exec_count"):   # papermill's error carries the cell and the exception in it
                problem = f"cell [{error.exec_count}]: {error.ename}: {error.evalue}"
            else:
                problem = f"{type(error).__name__}: {error}"
    print(f"{time.perf_counter() - start:6.1f} s  {peak[0]:4.1f} GiB  {'failed' if problem else 'ok'}", flush=True)
    if problem:
        print(f"    {problem}", flush=True)
    return not problem


def run(names: list[str], benchmarks: str | None) -> bool:
    """Execute notebooks into build/; returns whether all went well."""
    parameters: dict[str, Any] = {}
    if benchmarks:
        folder = Path(benchmarks).expanduser()
        if not folder.is_dir():
            raise NotADirectoryError(f"BENCHMARKS = {benchmarks!r} is not a folder; expected one with files such as "
                                     "gsm8k_test.jsonl (README.md, Real benchmarks)")
        parameters = {"benchmarks_dir": str(folder.resolve()), "dataset": "gsm8k"}
    start = time.perf_counter()
    paths = find_notebooks(names)
    results = [_attempt(path, lambda path=path: save_figures(run_notebook(path, parameters))) for path in paths]
    print(f"{sum(results)} of {len(results)} notebooks ok in {time.perf_counter() - start:.0f} s; "
          f"executed copies in {EXECUTED}, figures in {FIGURES}")
    return all(results)


def refresh(names: list[str]) -> bool:
    """Execute the committed notebooks and solutions in place; returns whether all went well."""
    def action(path: Path) -> None:
        notebook = refresh_notebook(path)
        if path.name == "00_quickstart.ipynb":
            picture = NOTEBOOKS / README_FIGURE
            picture.parent.mkdir(exist_ok=True)
            picture.write_bytes(figures_of(notebook)[-1])

    return all([_attempt(path, lambda path=path: action(path)) for path in find_notebooks(names, solutions=True)])


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code: 0 all well, 1 a notebook failed, 2 wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bamas_lite.notebooks", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser("run", help="execute copies into build/")
    run_parser.add_argument("--benchmarks", metavar="FOLDER", help="run on real benchmark files in this folder")
    refresh_parser = commands.add_parser("refresh", help="execute the committed notebooks in place (for authors)")
    for sub in (run_parser, refresh_parser):
        sub.add_argument("names", nargs="*", metavar="NAME", help='start of a name, as "03"; all if none is given')
    args = parser.parse_args(arguments)
    os.environ.update(REPRODUCIBLE)
    os.environ.pop("MPLBACKEND", None)   # another backend than the notebook's own would draw no figures
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")   # the debugger of the kernel warns on stderr
    try:
        well = run(args.names, args.benchmarks) if args.command == "run" else refresh(args.names)
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
