# Everything a checkout needs. Run `make` for the list of targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The Python that makes .venv; any 3.11, 3.12 or 3.13.
PYTHON ?= python3

VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL = $(BIN)/python -m pip --disable-pip-version-check install

# What make package makes, and what it makes it of.
ARCHIVE := dist/palearn-env.tar.gz
ENVIRONMENT := build/environment
AUDIT := build/audit
PACKED := requirements-runtime.lock pyproject.toml Makefile \
	$(shell find palearn -type f -not -path '*/__pycache__/*' -not -name '*.md')

# pyspark and palearn are built from source with these, never with whatever is newest today.
BUILD_TOOLS := setuptools hatchling editables

# One thread a process: tests, benchmarks and Spark's workers already run side by side.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export NUMBA_NUM_THREADS := 1

# Of pip's report, what says how far it is: the files of 10 MB and more, and the last two steps.
PROGRESS = awk '\
	/^ *(Downloading|Using cached) .* \([0-9][0-9]+(\.[0-9]+)? [MG]B\)$$/ { \
		split($$(NF - 2), part, "-"); sub(/\.tar\.gz$$/, "", part[2]); \
		print "  " part[1] " " part[2] " " $$(NF - 1) " " $$NF; fflush() } \
	/^ *Building wheel for .*: started/ { print "  building " $$4; fflush() } \
	/^Installing collected packages/ { print "  installing " NF - 3 " packages"; fflush() }'

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: $(VENV)/.stamp ## Make .venv with the locked dependencies, the package and the jars

.PHONY: demo
demo: setup check-java ## Stream a real data set through a real Kafka, then replay it and compare
	@$(BIN)/palearn demo

.PHONY: demo-two-view
demo-two-view: setup check-java ## Stream two views and delayed labels from three topics, and join them
	@$(BIN)/palearn demo-two-view

.PHONY: demo-s3
demo-s3: setup check-java ## Stream with checkpoint and Delta tables in an object store, replay it and compare
	@$(BIN)/palearn demo-s3

# Half of the time of most tests is waiting for processes, so three at a time keep two cores busy; in the order of
# tests/conftest.py, as the long files would come last if those with the fewest tests did.
PYTEST = $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

.PHONY: test
test: setup check-java ## Run the tests, without those that start, kill and starve whole jobs
	@$(PYTEST) -m "not slow"

.PHONY: test-all
test-all: setup check-java ## Run every test
	@$(PYTEST)

.PHONY: lint
lint: setup ## Check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: docs
docs: setup ## Build the documentation as a site into build/site (no network)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build --strict
	@echo "build/site/index.html; for its search: $(BIN)/python -m http.server --directory build/site"

# pip-audit has an environment of its own: what it needs is no dependency of palearn. A package that it cannot look up
# is an error (--strict), never silence.
.PHONY: audit
audit: check-python ## Look up the locked dependencies among the known vulnerabilities (asks PyPI)
	@$(PYTHON) -m venv --clear $(AUDIT)
	@$(AUDIT)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements-audit.lock
	@for lock in requirements-build.lock requirements-runtime.lock requirements.lock; do echo "audit: $$lock"; \
		$(AUDIT)/bin/pip-audit --strict --disable-pip --progress-spinner off --require-hashes -r $$lock; done

.PHONY: bench
bench: setup check-java ## Measure the stream beside its baselines
	@$(BIN)/python -m benchmarks.stream

.PHONY: package
package: $(ARCHIVE) ## Build wheel, sdist, and the archive of an environment for a cluster, into dist/
	@ls -sh dist/*

# A venv is found through bin/python and pyvenv.cfg, which move with it, so tar is all that packing takes. Only the
# first lines of its scripts would be wrong elsewhere, and Spark's workers start none of them. pyspark stays out: it is
# most of the size, and workers have it from their Spark. The archive holds the compiled kernels too: those of the
# checkout, where it has them, as compiling takes a minute. Numba takes them for stale unless the sources keep their
# times, with the fractions of their seconds (pax).
$(ARCHIVE): $(PACKED) | $(VENV)/.stamp
	@rm -rf dist $(ENVIRONMENT) && mkdir -p dist $(ENVIRONMENT)
	@echo "package 1/4: the wheel and the sdist"
	@$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@$(BIN)/python -m build --sdist --no-isolation --outdir dist . >/dev/null
	@echo "package 2/4: the locked dependencies, into $(ENVIRONMENT)"
	@$(BIN)/python -m venv --without-pip $(ENVIRONMENT)
	@sed -E '/^(pyspark|py4j)==/,/^ +# via/d' requirements-runtime.lock > $(ENVIRONMENT)/requirements.lock
	@$(INTO_ENVIRONMENT) --only-binary :all: --require-hashes -r $(ENVIRONMENT)/requirements.lock
	@$(INTO_ENVIRONMENT) --no-index --no-deps dist/*.whl
	@echo "package 3/4: the compiled kernels"
	@tar --create --format=pax $$(find palearn -name '*.py' -o -name '*.nb[ic]') | \
		tar --extract --directory $(ENVIRONMENT)/lib/python3.*/site-packages
	@$(ENVIRONMENT)/bin/python -I -c 'from palearn.cli.prepare import compile_kernels; compile_kernels()'
	@echo "package 4/4: the archive"
	@tar --create --format=pax --directory $(ENVIRONMENT) . | gzip -1 > $@

# What is imported while the kernels are compiled gets its bytecode then; the rest would only fill the archive.
INTO_ENVIRONMENT = $(BIN)/python -m pip --disable-pip-version-check --python $(ENVIRONMENT)/bin/python install \
	--quiet --no-compile

.PHONY: clean
clean: ## Remove .venv, builds and caches
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: lock
lock: ## Resolve the dependencies again and write the lock files (needs uv)
	@command -v uv >/dev/null || { echo "make lock needs uv on the PATH: pip install uv" >&2; exit 1; }
	uv pip compile $(LOCK_OPTIONS) --upgrade --extra dev pyproject.toml --output-file requirements.lock
	uv pip compile $(LOCK_OPTIONS) --upgrade --constraint requirements.lock \
		--extra avro --extra delta --extra kafka --extra plots --extra prometheus --extra protobuf --extra serve --extra spark \
		pyproject.toml \
		--output-file requirements-runtime.lock
	printf '%s\n' $(BUILD_TOOLS) | uv pip compile $(LOCK_OPTIONS) --upgrade --constraint requirements.lock \
		--output-file requirements-build.lock -
	echo pip-audit | uv pip compile $(LOCK_OPTIONS) --upgrade --output-file requirements-audit.lock -

# One set of versions for Python 3.11 to 3.13, with hashes.
LOCK_OPTIONS := --no-config --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
	--custom-compile-command "make lock"

$(VENV)/.stamp: requirements.lock requirements-build.lock pyproject.toml | check-python check-java
	@echo "setup 1/4: $(VENV) with $$($(PYTHON) --version)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "setup 2/4: the locked dependencies (about 700 MB the first time)"
	@$(PIP_INSTALL) --quiet --require-hashes -r requirements-build.lock
	@$(PIP_INSTALL) --require-hashes --no-build-isolation --use-pep517 --progress-bar off \
		-r requirements.lock | $(PROGRESS)
	@echo "setup 3/4: the package"
	@$(PIP_INSTALL) --quiet --no-deps --no-build-isolation -e .
	@echo "setup 4/4: the jars of Kafka and Spark's connector, and the compiled kernels"
	@$(BIN)/palearn prepare
	@touch $@

.PHONY: check-python
check-python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || { \
		echo "palearn needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is $$($(PYTHON) --version 2>&1 | head -n 1 || true)." \
			"Name another one: make PYTHON=python3.12 $(or $(MAKECMDGOALS),setup)" >&2; exit 1; }

.PHONY: check-java
check-java:
	@java=java; if [ -n "$${JAVA_HOME:-}" ]; then java="$$JAVA_HOME/bin/java"; fi; \
	major=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' || true); \
	found="missing"; [ -z "$$major" ] || found="version $$major"; \
	[ "$${major:-0}" -ge 17 ] || { \
		echo "Spark and Kafka need Java 17 or 21, and $$java is $${found}." \
			"Install one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME." >&2; exit 1; }
