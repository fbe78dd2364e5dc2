# Needs only Python: the first call makes a virtual environment, later calls reuse it.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=

INSTALLED := $(VENV)/.installed
RUN := $(VENV)/bin/python -m

.PHONY: ner test lint docs

ner: $(VENV)/.compiled  ## train the named-entity tagger; ARGS="--data DIR" for real data
	$(VENV)/bin/python recipes/conll_ner.py $(or $(ARGS),--overwrite)

test: $(INSTALLED)  ## ARGS=--long runs the long sweeps too
	$(RUN) pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(INSTALLED)
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy --strict smoothsp

docs: $(VENV)/.docs  ## the site, in site/: fails at a broken link; nothing is fetched
	NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict --quiet
	@echo site/index.html


$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) pip install -e ".[recipes,test,dev]"
	touch $@

$(VENV)/.compiled: $(INSTALLED)
	$(RUN) smoothsp.compilation
	touch $@

$(VENV)/.docs: $(INSTALLED)
	$(RUN) pip install -e ".[docs]"
	touch $@
