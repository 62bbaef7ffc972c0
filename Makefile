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
SITE := build/site
# Every warning is an error: a link to nowhere, a name in a docstring that there is not.
SPHINX = $(BIN)/python -m sphinx -q -n -W --keep-going -c docs -d build/doctrees

.PHONY: help check quick lint test test-random test-server test-slow test-backends test-ops test-torch demo serve docs docs-links
.PHONY: recordings release bench clean test-gpu

help:
	@echo "make demo           capture, minify and print the script of a real failure"
	@echo "make serve          capture the same failure, and minify it beside a server that shows it"
	@echo "make check          lint, types and the quick tests"
	@echo "make quick          the tests that take less than a second"
	@echo "make test           the tests CI runs"
	@echo "make test-random    the quick tests in random order"
	@echo "make test-server    the index on PostgreSQL"
	@echo "make test-slow      the real failures and the hostile files that take minutes"
	@echo "make test-gpu       what needs an accelerator; docs/devices.md says which were tried"
	@echo "make test-backends  third-party backends (OpenVINO, IREE)"
	@echo "make test-ops       every operator of torch under fxminify_ort (hours)"
	@echo "make test-torch     the tests on another torch: make test-torch TORCH=2.15.0"
	@echo "make lint           ruff, mypy, the contracts of imports, dead code"
	@echo "make docs           the generated parts of docs/, and the documentation site in build/site"
	@echo "make docs-links     whether the links of the site to elsewhere still work (network)"
	@echo "make recordings     docs/terminal.md, docs/gallery.md and docs/pictures, from real runs: minutes each"
	@echo "make release        build, check and tag the version of pyproject.toml; nothing is uploaded"
	@echo "make bench          side by side with PyTorch's minifier (long)"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.tests: $(VENV)/.installed
	$(PIP) install --constraint constraints.txt --editable '.[test]'
	@touch $@

$(VENV)/.service: $(VENV)/.installed
	$(PIP) install --constraint constraints.txt --editable '.[service]'
	@touch $@

$(VENV)/.backends: $(VENV)/.tests
	$(PIP) install --constraint constraints.txt --editable '.[test,backends]'
	@touch $@

$(VENV)/.docs: $(VENV)/.tests
	$(PIP) install --constraint constraints.txt --editable '.[docs]'
	@touch $@

$(VENV)/.lint: $(VENV)/.tests
	$(PIP) install --constraint constraints.txt --editable '.[lint]'
	@touch $@

check:
	@$(MAKE) --no-print-directory --output-sync=target -j 2 lint quick

quick: $(VENV)/.tests
	$(BIN)/python -m pytest -q -n 2 $(BY_FILE) -m '$(QUICK)' tests/torch tests/unit

test: $(VENV)/.tests $(VENV)/.docs
	$(BIN)/python -m pytest -n 2 $(BY_FILE)

test-random: $(VENV)/.tests
	$(BIN)/python -m pytest -q -n 2 $(BY_FILE) -p pytest_randomly -m '$(QUICK)' tests/torch tests/unit

test-server: $(VENV)/.tests
	$(BIN)/python -m pytest -m server

test-slow: $(VENV)/.tests $(VENV)/.docs
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

test-gpu: $(VENV)/.tests
	$(BIN)/python -m pytest -m gpu tests/e2e/gpu

test-backends: $(VENV)/.backends
	$(BIN)/python -m pytest -n 2 -m backends

# Goes on where it was interrupted: results are kept in build/operators.jsonl.
test-ops: $(VENV)/.tests
	$(BIN)/python -m pytest -m operators

# Another torch, in an environment of its own; elsewhere than here its build may bring gigabytes of CUDA along.
test-torch: OTHER = $(VENV)-torch-$(TORCH)
test-torch:
	@test -n "$(TORCH)" || { echo "which torch? make test-torch TORCH=2.15.0" >&2; exit 2; }
	test -x $(OTHER)/bin/python || $(PYTHON) -m venv $(OTHER)
	sed '/^torch==/d' constraints.txt > $(OTHER)/constraints.txt
	$(OTHER)/bin/pip --disable-pip-version-check --quiet install --constraint $(OTHER)/constraints.txt torch==$(TORCH) --editable '.[test,docs]'
	$(OTHER)/bin/python -m pytest -n 2 $(BY_FILE)

demo: $(VENV)/.installed
	@rm -rf $(DEMO) && mkdir -p $(DEMO) && cp docs/demo/densenet.py $(DEMO)/
	-cd $(DEMO) && ../$(BIN)/minify capture --db repro.db densenet.py
	cd $(DEMO) && ../$(BIN)/minify run repro.db
	cd $(DEMO) && ../$(BIN)/minify repro repro.db 1 -o repro.py && cat repro.py

# Its last line says where to look. Ctrl-C ends it.
serve: $(VENV)/.service
	@rm -rf $(DEMO) && mkdir -p $(DEMO) && cp docs/demo/densenet.py $(DEMO)/
	-cd $(DEMO) && ../$(BIN)/minify capture --db repro.db densenet.py
	cd $(DEMO) && ../$(BIN)/minify serve repro.db --work 1

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/vulture
	@mkdir -p $(VENV)/src && ln -sfn ../.. $(VENV)/src/fxminify  # the name by which the root is imported
	$(BIN)/mypy

docs: $(VENV)/.docs
	$(BIN)/python docs/generate.py
	$(SPHINX) -b html . $(SITE)
	@echo "open $(SITE)/index.html"

# Needs the network, so nothing else depends on it.
docs-links: $(VENV)/.docs
	$(SPHINX) -b linkcheck . build/links || { grep -v '\[working\]' build/links/output.txt; exit 1; }

recordings: $(VENV)/.tests
	$(BIN)/python docs/terminal.py
	$(BIN)/python docs/gallery.py
	$(BIN)/python docs/pictures.py

release: $(VENV)/.tests
	$(BIN)/python docs/release.py

bench: $(VENV)/.tests
	$(BIN)/python -m fxminify.benchmarks.reduce

clean:
	rm -rf $(VENV) $(DEMO) build dist *.egg-info
