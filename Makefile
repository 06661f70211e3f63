# Every verb of this repository. `make help` lists them; each target's line says what it does.

SHELL := /bin/bash
BIN := .venv/bin
PY := $(BIN)/python

.DEFAULT_GOAL := help
.PHONY: help setup demo test nightly check chaos soak format proto dashboards viewer token lock bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install everything into .venv, and Stockfish (PYTHON=python3.12 picks the interpreter)
	@PYTHON="$(PYTHON)" scripts/setup.sh

demo: setup ## train the shipped model for some minutes, and compare before and after (runs/<id>/)
	$(BIN)/rookery demo

test: setup ## run every test; one whose needs are missing is skipped; with ROOKERY_REQUIRE=all it fails
	$(PY) -m pytest -n 3 --dist loadfile --no-loadscope-reorder

nightly: setup ## run the tests that take too long for `make test`: the pipelines
	ROOKERY_NIGHTLY=1 $(PY) -m pytest -m nightly

check: setup ## formatting, lint (Dockerfiles too), types, import rules, generated files, unit tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint deploy/*/Dockerfile services/*/Dockerfile services/*/*/Dockerfile
	$(PY) scripts/proto.py --check
	$(PY) scripts/version.py
	$(PY) -m scripts.dashboards --check
	$(PY) -m pytest -q -n auto --dist worksteal --hypothesis-profile=quick tests/unit

chaos: setup ## every fault on a run of real processes, pauses of a minute (SEED=N repeats a case)
	$(PY) -m tests.chaos $(if $(SEED),--seed $(SEED))
	$(PY) -m pytest -q --hypothesis-profile=long tests/integration/streams/test_protocol.py

soak: setup ## a fault a minute for an hour: growth of memory, files, keys, and throughput (MINUTES=N)
	$(PY) -m tests.chaos --soak $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED))

format: setup ## format the code and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: setup ## generate rookery/v1 from proto/
	$(PY) scripts/proto.py

dashboards: setup ## write Grafana's dashboards (deploy/grafana/dashboards)
	$(PY) -m scripts.dashboards

viewer: setup ## build the page of services/viewer from web/ (needs node)
	cd services/viewer/web && npm ci && npm run build

token: ## write token.env, with a random token for docker compose, unless it exists
	@test -s token.env || (umask 077 && token=$$(openssl rand -hex 32) && echo "ROOKERY_TOKEN=$$token" > token.env)

lock: setup ## write requirements/*.txt from the packages in .venv
	$(PY) scripts/lock.py

bench: setup ## run all benchmarks (an hour; `python -m bench.PART` for one)
	$(PY) -m bench.loop
	$(PY) -m bench.reload
	$(PY) -m bench.reward
	$(PY) -m bench.data
	$(PY) -m bench.train
	$(PY) -m bench.gpt2
	$(PY) -m bench.arena
	$(PY) -m bench.reward.reading
	$(PY) -m bench.scale
	$(PY) -m bench.scale.predictions
	$(PY) -m bench.viewer

clean: ## delete caches and builds; .venv and runs/ stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
