# `make train` and `make test` need Python 3.11 or newer and nothing else; they set up .venv on the first call.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
# Where to get torch, if not from PyPI; without a GPU this saves gigabytes on Linux:
#   make install TORCH_ARGS="--index-url https://download.pytorch.org/whl/cpu"
TORCH_ARGS ?=

PIP = $(VENV)/bin/python -m pip --quiet --disable-pip-version-check
# Changes whenever what is installed has to change.
STAMP = $(VENV)/installed.stamp

export OMP_WAIT_POLICY ?= PASSIVE

.DEFAULT_GOAL := help
.PHONY: help install train test fast-test lint types format coverage clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# torch comes first and alone: constraints.txt names the exact build, so that no other package can pull in another one.
$(STAMP): pyproject.toml setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "composer_rl needs Python 3.11 or newer, $(PYTHON) is older; try: make PYTHON=python3.12 ..." >&2; exit 1; }
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (a few minutes on the first call)"
	@$(PIP) install torch -c constraints.txt $(TORCH_ARGS)
	@$(PIP) install -e '.[dev]' -c constraints.txt
	@touch $@

install: $(STAMP) ## set up .venv with everything that tests and development need

train: $(STAMP) ## train with the defaults; settings go in ARGS="po=dapo seed=3"
	@$(VENV)/bin/python train.py $(ARGS)

test: $(STAMP) ## run the whole test suite, on all cores; pytest options go in ARGS
	@$(VENV)/bin/python -m pytest --numprocesses=auto --dist=worksteal $(ARGS)

fast-test: $(STAMP) ## run the tests that take seconds
	@$(VENV)/bin/python -m pytest --numprocesses=auto --dist=worksteal -m "not slow" $(ARGS)

lint: $(STAMP) ## check style
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .

types: $(STAMP) ## check types of the whole package
	@$(VENV)/bin/mypy

format: $(STAMP) ## rewrite files in the project's style
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

coverage: $(STAMP) ## run the test suite and list lines that no test reached
	@$(VENV)/bin/python -m pytest --numprocesses=auto --dist=worksteal --cov --cov-report=term-missing:skip-covered $(ARGS)

clean: ## remove .venv and caches; runs in outputs/ and multirun/ stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage build dist *.egg-info
