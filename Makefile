# Chronik: `make` alone says what there is.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Tests of whole clusters: several processes each, so one at a time.
CLUSTERS := tests/cluster_nodes tests/cli/test_cluster.py tests/lab
# What `make check` does beside the tests; its caches make it a matter of seconds.
STATIC = $(BIN)/ruff format --check src tests tools bench && \
  $(BIN)/ruff check -q src tests tools bench && \
  ($(BIN)/lint-imports > /dev/null || $(BIN)/lint-imports) && $(BIN)/mypy
# Bytecode of tests and libraries is kept in one place, also where the environment says not to write
# any: without it every run compiles them anew, for a quarter of the time of `make check`.
export PYTHONPYCACHEPREFIX := $(CURDIR)/.pycache
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup run test check bench peers conformance soak lock generate clean

help:  ## what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 18

setup: $(READY)  ## the environment in .venv, from the lock file

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Chronik needs Python 3.11 or newer: install it, or name it with 'make PYTHON=python3.11 ...'"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@echo "Setting up $(VENV) from requirements.lock ..."
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip sync --quiet --require-hashes requirements.lock
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --editable .
	@touch $(READY)

run: setup  ## the main job: a cluster, a batch while a node dies, the proof that it all arrived
	@$(BIN)/chronik demo

test: setup  ## all tests
	$(BIN)/ruff format --check src tests tools bench
	$(BIN)/ruff check src tests tools bench
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	$(BIN)/pytest -n 2 $(addprefix --ignore ,$(CLUSTERS))
	$(BIN)/pytest $(CLUSTERS)

check: setup  ## the quick one: format, lint, contracts, types, unit tests and scenarios
	@found=$$(mktemp); ($(STATIC)) > $$found 2>&1 & \
	$(BIN)/pytest -q -n 2 --dist worksteal -m "not integration and not sweep and not soak"; tests=$$?; \
	wait $$!; static=$$?; cat $$found; rm $$found; \
	test $$tests = 0 || echo "make check: tests failed"; \
	test $$static = 0 || echo "make check: format, lint, contracts or types failed"; \
	exit $$((tests | static))

bench: setup  ## side by side with Apache Kafka (needs java and mvn; see bench/compare.py --help)
	$(BIN)/python bench/compare.py $(ARGS)
	$(BIN)/python bench/pipeline.py $(PIPELINE_ARGS)

peers: setup  ## into .peers, as judges in the tests: S3 and Glue of moto; the JVM's Kafka connector and Iceberg (needs mvn)
	$(BIN)/uv pip install --quiet --target .peers/moto 'moto[s3,glue]==5.2.5' flask==3.1.3 flask-cors==6.0.5
	bench/spark-kafka.sh
	bench/spark-iceberg.sh
	bench/iceberg-rest.sh

conformance: setup  ## kafka-python's own integration tests against a node, and ours with the newest librdkafka (fetches both)
	$(BIN)/python tools/conformance.py
	$(BIN)/uv pip install --quiet --no-config --upgrade --no-deps --target .peers/confluent confluent-kafka
	PYTHONPATH=.peers/confluent $(BIN)/pytest -n 2 tests/clients tests/cli

soak: setup  ## the long runs, in pieces that need not be repeated (see tools/soak.py --help)
	$(BIN)/python tools/soak.py $(ARGS)

lock: setup  ## resolve the dependencies anew
	$(BIN)/uv pip compile -q pyproject.toml --extra spark --extra delta --extra protobuf --group dev --generate-hashes --no-emit-index-url \
	  --no-header --universal --python-version 3.11 --upgrade -o requirements.lock

generate: setup  ## message classes from kio's schema, and the protocol page from the handler table
	$(BIN)/python tools/generate_messages.py
	$(BIN)/python tools/generate_protocol_page.py

clean:  ## everything that make made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .pycache dist
