# `make` lists what one can do. Every target makes or refreshes .venv first where it needs it.
.DEFAULT_GOAL := help
SHELL := /bin/sh
BIN := .venv/bin
STAMP := .venv/.installed
TEST_WORKERS ?= 2
FAST_TESTS := tests/unit tests/contract tests/surface
LINTED := src tests examples scripts benchmarks

.PHONY: help venv demo demo-batch test test-stores faults check lint fast-tests servers bench chaos mutations long-run docs-settings lock clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml requirements-dev.lock scripts/setup.sh
	@sh scripts/setup.sh $(MAKECMDGOALS)

venv: $(STAMP) ## make or refresh the environment .venv (PYTHON=… names the interpreter)

demo: $(STAMP) ## crawl a local shop with two node processes and an embedded Redis; Ctrl-C and again resumes
	@$(BIN)/netspy demo

demo-batch: $(STAMP) ## two batches of a task table: a master, two workers, one of them killed; everything arrives
	@$(BIN)/netspy demo --batch

test: $(STAMP) servers ## run the whole test suite (ARGS="-k name" for a part of it)
	@$(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal $(ARGS)

test-stores: $(STAMP) ## the stores' tests on a real server: URL=mongodb://… or URL=http://… (Elasticsearch, OpenSearch)
	@case "$(URL)" in \
	  mongodb://*|mongodb+srv://*) file=tests/contract/test_mongo_store.py ;; \
	  http://*|https://*) file=tests/contract/test_elasticsearch_store.py ;; \
	  *) echo "make test-stores URL=mongodb://host:27017, or URL=http://user:password@host:9200"; exit 2 ;; \
	esac; STORE_URL="$(URL)" $(BIN)/pytest -v $$file $(ARGS)

faults: $(STAMP) servers ## run the whole fault suite (some 18 minutes) and write docs/faults.md from its results
	@mkdir -p build
	@$(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal -m fault --junitxml=build/faults.xml tests/fault tests/contract $(ARGS)
	@$(BIN)/python scripts/faults_table.py build/faults.xml

check: lint fast-tests ## what must be green before a commit: format, lint, types, imports, fast tests

lint: $(STAMP) ## format, lint, types, import rules
	@$(BIN)/ruff format --check $(wildcard $(LINTED))
	@$(BIN)/ruff check $(wildcard $(LINTED))
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/docs_settings.py --check

fast-tests: $(STAMP) ## the tests that take seconds (ARGS="-k name" for a part of them)
	@$(BIN)/pytest -n $(TEST_WORKERS) -m "not slow" $(wildcard $(FAST_TESTS)) $(ARGS)

servers: # what the tests run against
	@sh scripts/servers.sh

bench: $(STAMP) ## pages per second and CPU per page (ARGS are handed on)
	@$(BIN)/python benchmarks/run.py $(ARGS)

chaos: $(STAMP) servers ## crawl under seeded random kills, cuts and restarts (ARGS="--seed 7 --seconds 25 --nodes 4")
	@$(BIN)/python scripts/chaos.py $(ARGS)

mutations: $(STAMP) servers ## break each Lua script in each of many places; a test must notice; writes docs/mutations.md
	@$(BIN)/python scripts/mutate_scripts.py $(ARGS)

long-run: $(STAMP) servers ## 200,000 pages with AirSpider and on Redis: memory, descriptors and log stay flat
	@$(BIN)/python scripts/long_run.py $(ARGS)

docs-settings: $(STAMP) ## write docs/settings.md and docs/zh/settings.md from the declarations
	@$(BIN)/python scripts/docs_settings.py

lock: $(STAMP) ## write requirements-dev.lock anew with the newest versions allowed
	@sh scripts/lock.sh

clean: ## remove caches, builds and the demo's data (not .venv), after stopping an embedded Redis
	@if [ -x $(BIN)/python ]; then $(BIN)/python scripts/stop_embedded.py .netspy demo-data; fi
	@rm -rf build dist demo-data .netspy .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
