# `make` lists what one can do. Every target makes or refreshes its environment first where it needs it: VENV names the folder,
# PYTHON the interpreter that a new one is made with.
.DEFAULT_GOAL := help
SHELL := /bin/sh
export VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Most tests wait: for processes, servers, time-outs. So there are more workers than cores.
TEST_WORKERS ?= 4
PYTEST = $(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal
# Marks: see pyproject.toml and tests/support/needs.py.
QUICK := (not slow and not fault and not chaos) or guarantee
REST := (slow or fault or chaos) and not guarantee and not faults_full
FAST_TESTS := tests/unit tests/contract tests/surface
LINTED := src tests examples scripts benchmarks

.PHONY: help venv demo demo-batch test test-rest test-all test-newest test-stores wheel faults soak check lint fast-tests servers bench chaos mutations conformance long-run docs-settings lock clean
# Without compiled files every process of a test would compile all of netspy anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml requirements-dev.lock scripts/setup.sh
	@sh scripts/setup.sh $(MAKECMDGOALS)

venv: $(STAMP) ## make or refresh the environment (PYTHON=… names the interpreter, VENV=… another folder than .venv)

demo: $(STAMP) ## crawl a local shop with two node processes and an embedded Redis; Ctrl-C and again resumes
	@$(BIN)/netspy demo

demo-batch: $(STAMP) ## two batches of a task table: a master, two workers, one of them killed; everything arrives
	@$(BIN)/netspy demo --batch

test: $(STAMP) servers ## run the tests: all but the long ones, and one kill per guarantee (ARGS="-k name" for a part of them)
	@$(PYTEST) -m "($(QUICK)) and not faults_full" $(ARGS)

test-rest: $(STAMP) servers ## the tests that `make test` leaves out: whole crawls, kills, faults
	@$(PYTEST) -m "$(REST)" $(ARGS)

test-all: $(STAMP) servers ## run every test but those of `make soak`
	@$(PYTEST) $(ARGS)

test-newest: ## `make test` on the newest Python of this machine, in build/venv-newest (ARGS="tests/unit" for a part)
	@newest=$$(sh scripts/newest_python.sh) && echo "$$newest" && \
	  $(MAKE) --no-print-directory test VENV=build/venv-newest PYTHON="$$newest"

wheel: $(STAMP) ## build the wheel, install it alone in a new environment, and run README's first spider there
	@$(BIN)/python scripts/check_wheel.py

test-stores: $(STAMP) ## the stores' tests on a real server: URL=mongodb://… or URL=http://… (Elasticsearch, OpenSearch)
	@case "$(URL)" in \
	  mongodb://*|mongodb+srv://*) file=tests/contract/test_mongo_store.py ;; \
	  http://*|https://*) file=tests/contract/test_elasticsearch_store.py ;; \
	  *) echo "make test-stores URL=mongodb://host:27017, or URL=http://user:password@host:9200"; exit 2 ;; \
	esac; STORE_URL="$(URL)" $(BIN)/pytest -v $$file $(ARGS)

faults: $(STAMP) servers ## run the whole fault suite (some 18 minutes) and write docs/faults.md from its results
	@mkdir -p build
	@$(PYTEST) -m fault --junitxml=build/faults.xml tests/fault tests/contract $(ARGS)
	@$(BIN)/python scripts/faults_table.py build/faults.xml

soak: faults mutations long-run chaos ## what takes long, one after the other: before an issue is closed

check: lint fast-tests ## what must be green before a commit: format, lint, types, imports, fast tests

lint: $(STAMP) ## format, lint, types, import rules
	@$(BIN)/ruff format --check $(wildcard $(LINTED))
	@$(BIN)/ruff check $(wildcard $(LINTED))
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/docs_settings.py --check

fast-tests: $(STAMP) ## the tests that take seconds (ARGS="-k name" for a part of them)
	@$(PYTEST) -m "not slow and not faults_full" $(wildcard $(FAST_TESTS)) $(ARGS)

servers: # what the tests run against
	@sh scripts/servers.sh

bench: $(STAMP) ## pages per second and CPU per page (ARGS are handed on)
	@$(BIN)/python benchmarks/run.py $(ARGS)

chaos: $(STAMP) servers ## crawl under seeded random kills, cuts and restarts (ARGS="--seed 7 --seconds 25 --nodes 4")
	@$(BIN)/python scripts/chaos.py $(ARGS)

mutations: $(STAMP) servers ## break each Lua script in each of many places; a test must notice; writes docs/mutations.md
	@$(BIN)/python scripts/mutate_scripts.py $(ARGS)

conformance: $(STAMP) ## html5lib's encoding cases, fetched from the package index, asked of our charset detection
	@$(BIN)/python scripts/conformance.py

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
