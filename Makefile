# Two commands do everything on a machine that has Python 3.11-3.13 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
DEMO_DIR ?= demo
SECONDS ?= 300
# a file of tests stays in one process, so that its fixtures are made once
PYTEST_ARGS ?= -n auto --dist loadfile

.PHONY: setup demo test drills fuzz lint format docs audit bench fit clean

setup: $(VENV)/.dev

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else f"Python 3.11 to 3.13 is needed, $(PYTHON) is {sys.version.split()[0]}; name one with make PYTHON=python3.12")'
	@echo "setting up $(VENV) (some minutes on first use)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(VENV)/bin/python pyproject.toml constraints.txt
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@deployments/install-chromium.sh
	@touch $@

demo: $(VENV)/.runtime
	@$(BIN)/stef demo --dir $(DEMO_DIR)

test: $(VENV)/.dev
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.dev
	$(BIN)/python -m tests.docs_pages

audit: $(VENV)/.dev
	@$(BIN)/python .ci/audit.py

drills: $(VENV)/.dev
	@$(BIN)/python -m pytest -m drill -s

# inputs guided by coverage, SECONDS for each target; atheris has wheels for Linux alone
fuzz: $(VENV)/.dev
	@$(PIP) install -c constraints.txt -e '.[fuzz]' || true
	@$(BIN)/python -m tests.fuzz.run $(SECONDS)

# each leaves its figures in benchmarks/results, and docs/benchmarks.md is made of them; an hour and a half, best with nothing beside
BENCHMARKS := symbolic_path scaling large_day orchestration backfill llm_throughput peers report alerts
bench: $(VENV)/.dev
	@for name in $(BENCHMARKS); do \
		echo "== $$name"; $(BIN)/python -m benchmarks.$$name --json benchmarks/results/$$name.json || exit 1; \
	done
	@$(BIN)/python -m benchmarks.bi --postgres --json benchmarks/results/bi.json
	@$(BIN)/python -m benchmarks.agreement
	@$(BIN)/python -m benchmarks.page

fit: $(VENV)/.dev
	$(BIN)/python -m benchmarks.fit_symbolic

clean:
	rm -rf $(VENV) $(DEMO_DIR) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
