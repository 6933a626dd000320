# `make demo` and `make test` need Python 3.11 or newer and make, nothing else: they
# put what they install into .venv, once, and again only when the requirements change.

PYTHON ?= python3
VENV ?= .venv

PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
REQUIREMENTS := requirements.txt requirements-test.txt
SOURCES := Makefile $(REQUIREMENTS) constraints.txt
DEMO := runs/demo

# Pictures go to files: no display is needed.
export MPLBACKEND = Agg
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help setup demo test lint types format constraints clean

help: ## this list
	@echo "make TARGET [PYTHON=/path/to/python3.11]"
	@sed -n 's/^\([a-z]*\):.*## /  \1  /p' Makefile

setup: $(INSTALLED) ## install everything into .venv

demo: $(INSTALLED) ## train on the generated language, evaluate, translate
	rm -rf $(DEMO)
	$(PY) train.py --config=configs/demo.py --workdir=$(DEMO)
	$(PY) evaluate.py --workdir=$(DEMO) --split=test --average=8
	echo "The animal did not cross the street because it was too tired." \
	  | $(PY) translate.py --workdir=$(DEMO)

test: lint types ## lint, types and tests
	$(PY) -m pytest -n auto --maxprocesses 4 --dist loadfile

lint: $(INSTALLED) ## ruff: rules and format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(INSTALLED) ## mypy
	$(PY) -m mypy

format: $(INSTALLED) ## rewrite the code in ruff's format
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

constraints: $(INSTALLED) ## renew constraints.txt for Python 3.11 to 3.13
	$(PY) -m pip install --quiet uv
	$(PY) -m uv pip compile $(REQUIREMENTS) --upgrade --quiet --no-annotate \
	  --universal --python-version 3.11 --fork-strategy fewest \
	  --custom-compile-command "make constraints" --output-file constraints.txt

clean: ## remove .venv and caches; runs/ stays
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache
	find configs tests transformer -name __pycache__ -prune -exec rm -rf {} +

# The environment is made anew where it is missing or its Python is gone. The stamp is
# written last, so an interrupted installation is taken up again.
$(INSTALLED): $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is not Python 3.11 or newer; name one that is:" \
	    "make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu:" \
	    "apt install python3-venv" >&2; exit 1; }
	@$(PY) -c '' 2>/dev/null || { \
	  echo "Making the environment $(VENV)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "Installing the pinned requirements (1.2 GB on disk, minutes)"
	@$(PY) -m pip install -qq --constraint constraints.txt \
	  $(addprefix --requirement ,$(REQUIREMENTS))
	@touch $@
