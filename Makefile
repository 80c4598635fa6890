# Every target sets up what it needs; `make` alone lists them.

PYTHON ?= python3
PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
INSTALLED := .venv/.installed

NAME ?=
FUZZ ?= 200000
CRASHES ?= 20
SOAK_MINUTES ?= 30
# Extra arguments for pytest: make test ARGS="-k binder -x"
ARGS ?=
# How many processes run tests; ARGS="-n 0" runs them in pytest's own.
WORKERS ?= 2
PYTEST := $(PY) -m pytest
# The tests that need Spark are a group for one process; without them, neighbours stay together.
GROUPED := -n $(WORKERS) --dist loadgroup
UNGROUPED := -n $(WORKERS) --dist worksteal

# Tests start many processes; each would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup java test test-fast lint format demo bench golden fuzz crash soak package lock clean

help: ## list the targets
	@echo "usage: make TARGET"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s  %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(INSTALLED) java ## make .venv with all dependencies and see to Java 17+

test: setup ## run all tests; ARGS="..." goes to pytest
	@$(PYTEST) $(GROUPED) $(ARGS)

test-fast: $(INSTALLED) ## run the tests that need no Spark and no Java, without fuzzing
	@$(PYTEST) $(UNGROUPED) -m "not spark and not fuzz" $(ARGS)

lint: $(INSTALLED) ## check style (ruff), formatting (ruff) and types (mypy)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

format: $(INSTALLED) ## format the code and fix what ruff can fix
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .

demo: setup ## show continuous queries, a burst and load shedding on local Spark
	@$(PY) -m examples.demo

bench: setup ## list the benchmarks; NAME=frontend runs one
	@$(PY) -m benchmarks $(NAME)

golden: setup ## write the golden files anew (review them as a diff)
	@$(PYTEST) -q -m golden --update-golden $(ARGS)

fuzz: setup ## run the randomised tests longer; FUZZ=200000 inputs each
	@CQL_FUZZ=$(FUZZ) $(PYTEST) $(GROUPED) -m fuzz --timeout=0 $(ARGS)

crash: setup ## kill a run on Spark at CRASHES=20 moments and compare its files with a run without
	@CQL_CRASHES=$(CRASHES) $(PYTEST) -q -s tests/test_spark_crash.py $(ARGS)

soak: setup ## run queries on endless input for SOAK_MINUTES=30 and say whether memory stays flat
	@$(PY) tools/soak.py $(SOAK_MINUTES)

package: $(INSTALLED) ## build the wheel, and cql.zip for executors, in dist
	@tools/package.sh $(PY)

lock: ## write constraints.txt anew from the ranges in pyproject.toml
	@tools/ensure-python.sh $(PYTHON)
	@tools/lock.sh $(PYTHON)

clean: ## remove caches and build leftovers (.venv stays)
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@rm -rf spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

java:
	@tools/ensure-java.sh

# --no-build-isolation: the editable install is built by the pinned setuptools, not by the newest one.
$(INSTALLED): pyproject.toml constraints.txt
	@tools/ensure-python.sh $(PYTHON)
	@echo "Setting up .venv (a minute or two) ..."
	@$(PYTHON) -m venv .venv
	@$(PIP) install -q -c constraints.txt --upgrade pip setuptools
	@$(PIP) install -q -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@
