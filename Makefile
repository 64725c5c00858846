# Each target sets up what it needs: a fresh clone needs python3, pip and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two workers: the tests are written for two cores, and BLAS runs single-threaded in them. A file goes to
# one worker, which fits its shared models once; tests/conftest.py says which files go first.
WORKERS ?= 2
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup run test coverage test-all lint format docs bench fuzz fuzz-files mutants clean

help:
	@echo "make run       set up, fit the embedded example, write dagp-demo/"
	@echo "make test      set up, run the fast tests"
	@echo "make coverage  which lines and branches they reach"
	@echo "make test-all  the long statistical tests too"
	@echo "make fuzz      many random fits; N=2000 JOBS=2 SEED=0"
	@echo "make lint      ruff and pyright"
	@echo "make format    let ruff tidy up"
	@echo "make docs      build the documentation into docs/_build"
	@echo "make bench     the speed suite"
	@echo "make fuzz-files N=10000  damaged and forged model files: all refused, nothing runs"
	@echo "make mutants   do the tests notice? MODULE=inference/elbo N=20 SEED=0"

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[all,dev]"
	@touch $@

run: setup
	$(BIN)/dagp demo

test: setup
	$(PYTEST) -m "not slow"

coverage: setup
	$(PYTEST) -m "not slow" --cov --cov-report=term-missing:skip-covered

test-all: setup
	$(PYTEST)

# A case that failed is run again with its seed and N=1.
fuzz: N ?= 200
fuzz: JOBS ?= $(WORKERS)
fuzz: SEED ?= 0
fuzz: LIMIT ?= 300
fuzz: setup
	$(BIN)/python tests/fuzz.py --cases $(N) --jobs $(JOBS) --seed $(SEED) --limit $(LIMIT) --out fuzz.json

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	@touch $@

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

bench: setup
	$(BIN)/python benchmarks/speed.py

fuzz-files: N ?= 10000
fuzz-files: setup
	$(BIN)/python benchmarks/filefuzz.py --mutations $(N) --seed 100

mutants: MODULE ?= inference/elbo
mutants: N ?= 20
mutants: SEED ?= 0
mutants: setup
	$(BIN)/python tests/mutants.py --module $(MODULE) --sample $(N) --seed $(SEED)

clean:
	rm -rf $(VENV) dagp-demo docs/_build docs/gallery docs/api
