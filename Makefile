# Needs only Python: the first call makes a virtual environment, later calls reuse it.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=

INSTALLED := $(VENV)/.installed
RUN := $(VENV)/bin/python -m

.PHONY: ner test lint

ner: $(INSTALLED)  ## train the named-entity tagger; ARGS="--data DIR" for real data
	$(VENV)/bin/python recipes/conll_ner.py $(ARGS)

test: $(INSTALLED)  ## ARGS=--long runs the long sweeps too
	$(RUN) pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(INSTALLED)
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy --strict smoothsp

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) pip install -e ".[recipes,test,dev]"
	touch $@
