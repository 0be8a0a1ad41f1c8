# Everything a contributor types. Each target makes its own environment in .venv first; with it there, that is a no-op.
PYTHON ?= python3
# Processes that the tests run in.
JOBS ?= 2
BIN := .venv/bin
# Named by content, so that neither a fresh checkout nor a touched file installs again.
NATIVE := $(sort setup.py src/nhwc/kernels/native/build.py $(shell find src/nhwc/kernels/native/src -type f))
STAMP := .venv/.installed-$(shell cat pyproject.toml constraints.txt $(NATIVE) | cksum | cut -d' ' -f1)
# Left out: what needs other runtimes or a GPU, and the process that one of them starts.
BENCHMARKS := $(filter-out peers peers_claims contenders gpu_check engine_layers,$(patsubst benchmarks/%.py,%,$(shell grep -l __main__ benchmarks/*.py)))

.PHONY: help demo test slow bench tutorial lint format check clean
.DEFAULT_GOAL := help

help: ## say what there is to type
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(STAMP): pyproject.toml constraints.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,lint]'
	rm -f .venv/.installed-*
	touch $@

demo: $(STAMP) ## audit, measure and verify real models on real photographs; pages go to demo-out/
	$(BIN)/python -m demo demo-out

test: $(STAMP) ## the default tests, under twelve minutes on two cores
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

slow: $(STAMP) ## the tests that the default run leaves out
	$(BIN)/python -m pytest -m slow

bench: $(STAMP) ## every benchmark, its result in benchmarks/results/; wants a machine to itself
	for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py -o benchmarks/results/$$name.json || exit 1; done

tutorial: $(STAMP) ## the notebook and the script of docs/tutorial.md, with the outputs of a run
	$(BIN)/python docs/build_tutorial.py

lint: $(STAMP) ## format check, linter, strict types
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

format: $(STAMP) ## rewrite the code in the project's format
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

check: test lint ## what CI runs

clean: ## remove what the targets made, the environment too
	rm -rf .venv build dist demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
