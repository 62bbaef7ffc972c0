# Everything a newcomer needs: `make demo`, `make test`. All targets share one virtual environment, .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
DEMO := .demo

.PHONY: help test test-slow test-backends demo lint bench clean

help:
	@echo "make demo           capture, minify and print the script of a real failure"
	@echo "make test           the tests CI runs"
	@echo "make test-slow      the real failures that take minutes"
	@echo "make test-backends  third-party backends (OpenVINO, IREE)"
	@echo "make lint           ruff and mypy"
	@echo "make bench          side by side with PyTorch's minifier (long)"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.tests: $(VENV)/.installed
	$(PIP) install --constraint constraints.txt --editable '.[test]'
	@touch $@

$(VENV)/.backends: $(VENV)/.tests
	$(PIP) install --constraint constraints.txt --editable '.[test,backends]'
	@touch $@

$(VENV)/.lint: $(VENV)/.tests
	$(PIP) install --constraint constraints.txt --editable '.[lint]'
	@touch $@

test: $(VENV)/.tests
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: $(VENV)/.tests
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow

test-backends: $(VENV)/.backends
	$(BIN)/python -m pytest -n 2 -m backends

demo: $(VENV)/.installed
	@rm -rf $(DEMO) && mkdir -p $(DEMO) && cp docs/demo/densenet.py $(DEMO)/
	-cd $(DEMO) && ../$(BIN)/minify capture --db repro.db densenet.py
	cd $(DEMO) && ../$(BIN)/minify run repro.db
	cd $(DEMO) && ../$(BIN)/minify repro repro.db 1 -o repro.py && cat repro.py

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p $(VENV)/src && ln -sfn ../.. $(VENV)/src/fxminify  # the name by which the root is imported
	MYPYPATH=$(VENV)/src $(BIN)/mypy -m fxminify -m fxminify.cli -p fxminify.store -p fxminify.backends -p fxminify.repro_templates -p fxminify.minifier

bench: $(VENV)/.tests
	$(BIN)/python -m fxminify.benchmarks.reduce

clean:
	rm -rf $(VENV) $(DEMO) build dist *.egg-info
