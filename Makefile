# Everything a newcomer needs: `make demo`, `make test`. All targets share one virtual environment, .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
DEMO := .demo
# A file of tests to each process in turn: first those that start programs, then the quick ones.
BY_FILE := --dist loadfile --no-loadscope-reorder
# Tests that start no process and take less than a second.
QUICK := (unit or torch) and not slow

.PHONY: help check quick lint test test-random test-server test-slow test-backends demo docs gallery bench clean

help:
	@echo "make demo           capture, minify and print the script of a real failure"
	@echo "make check          lint, types and the quick tests"
	@echo "make quick          the tests that take less than a second"
	@echo "make test           the tests CI runs"
	@echo "make test-random    the quick tests in random order"
	@echo "make test-server    the index on PostgreSQL"
	@echo "make test-slow      the real failures and the hostile files that take minutes"
	@echo "make test-backends  third-party backends (OpenVINO, IREE)"
	@echo "make lint           ruff, mypy, the contracts of imports, dead code"
	@echo "make docs           the generated parts of docs/, without the gallery"
	@echo "make gallery        docs/gallery.md, from runs that take minutes"
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

check:
	@$(MAKE) --no-print-directory --output-sync=target -j 2 lint quick

quick: $(VENV)/.tests
	$(BIN)/python -m pytest -q -n 2 $(BY_FILE) -m '$(QUICK)' tests/torch tests/unit

test: $(VENV)/.tests
	$(BIN)/python -m pytest -n 2 $(BY_FILE)

test-random: $(VENV)/.tests
	$(BIN)/python -m pytest -q -n 2 $(BY_FILE) -p pytest_randomly -m '$(QUICK)' tests/torch tests/unit

test-server: $(VENV)/.tests
	$(BIN)/python -m pytest -m server

test-slow: $(VENV)/.tests
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

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
	$(BIN)/lint-imports
	$(BIN)/vulture
	@mkdir -p $(VENV)/src && ln -sfn ../.. $(VENV)/src/fxminify  # the name by which the root is imported
	$(BIN)/mypy

docs: $(VENV)/.tests
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/terminal.py

gallery: $(VENV)/.tests
	$(BIN)/python docs/gallery.py

bench: $(VENV)/.tests
	$(BIN)/python -m fxminify.benchmarks.reduce

clean:
	rm -rf $(VENV) $(DEMO) build dist *.egg-info
