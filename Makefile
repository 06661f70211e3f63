# Every verb of this repository. `make help` lists them; each target's line says what it does.

SHELL := /bin/bash
BIN := .venv/bin
PY := $(BIN)/python
UVX ?= $(BIN)/uvx
LOCKS := $(patsubst requirements/%.txt,%,$(wildcard requirements/*.txt))
BENCHMARKS := loop reload reward data train gpt2 reward.reading scale scale.predictions viewer
INTO_TRAINERS := $(PY) -m pip install -q --no-deps --no-compile --disable-pip-version-check --target .trainers

.DEFAULT_GOAL := help
.PHONY: help setup trainers demo test nightly vllm check types units trainer-units chaos soak format proto commands dashboards viewer secrets lock digests sbom audit bench gpu clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install everything into .venv, and Stockfish (PYTHON=python3.12 picks the interpreter of a new .venv)
	@PYTHON="$(PYTHON)" scripts/setup.sh

trainers: .trainers/installed ## install the trainers of docs/bridges.md, W&B and trackio into .trainers, for tests and benchmarks

.trainers/installed: requirements/trainers.txt bridges/pyproject.toml | setup
	rm -rf .trainers
	$(INTO_TRAINERS) --require-hashes -r $<
	$(INTO_TRAINERS) ./bridges
	touch $@

demo: setup ## train the shipped model for some minutes, and compare before and after (runs/<id>/)
	$(BIN)/rookery demo

test: setup ## run every test; one whose needs are missing is skipped; with ROOKERY_REQUIRE=all it fails
	$(PY) -m pytest -n 3 --dist loadfile --no-loadscope-reorder

nightly: setup ## run the tests that take too long for `make test`: the pipelines
	ROOKERY_NIGHTLY=1 $(PY) -m pytest -m nightly

vllm: .vllm/installed ## run the inference service's tests with the vLLM of GPU machines, on the kernels of its CPU build
	PYTHONPATH=$(CURDIR)/.vllm VLLM_TARGET_DEVICE=cpu $(PY) -m pytest -n 2 --dist loadfile tests/unit/inference tests/integration/inference

# Of what it requires and the CPU build does not, orjson alone is imported on a CPU.
.vllm/installed: requirements/gpu.txt | setup
	rm -rf .vllm
	$(PY) -m pip install -q --no-deps --no-compile --disable-pip-version-check --target .vllm --require-hashes \
	  -r <(awk '/^(orjson|vllm)==/ { on = 1 } on; !/\\$$/ { on = 0 }' $<)
	find .vllm/vllm -name '*.so' -delete
	ln -s $(CURDIR)/.venv/lib/python*/site-packages/vllm/*.so .vllm/vllm/
	touch $@

check: setup ## formatting, lint (Dockerfiles too), types, import rules, generated files, unit tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target types units trainer-units

types: # of `make check`, beside the unit tests: mypy keeps one core busy
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint deploy/*/Dockerfile arena/Dockerfile services/*/Dockerfile services/*/*/Dockerfile
	$(PY) scripts/proto.py --check

# Every worker imports all the tests it might run. Those of the trainer import torch, so they have one process.
units:
	$(PY) -m pytest -q -n auto --dist worksteal --hypothesis-profile=quick --ignore=tests/unit/trainer tests/unit

trainer-units:
	$(PY) -m pytest -q --hypothesis-profile=quick tests/unit/trainer

chaos: setup ## every fault on a run of real processes, pauses of a minute (SEED=N repeats a case)
	$(PY) -m tests.chaos $(if $(SEED),--seed $(SEED))
	$(PY) -m pytest -q --hypothesis-profile=long --timeout=1800 tests/integration/streams/test_protocol.py

soak: setup ## a fault a minute for an hour: growth of memory, files, keys, and throughput (MINUTES=N)
	$(PY) -m tests.chaos --soak $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED))

format: setup ## format the code and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: setup ## generate rookery/v1 from proto/
	$(PY) scripts/proto.py

commands: setup ## write docs/commands.md
	$(PY) -m scripts.commands

dashboards: setup ## write Grafana's dashboards (deploy/grafana/dashboards)
	$(PY) -m scripts.dashboards

viewer: setup ## build the page of services/viewer from web/ (needs node)
	cd services/viewer/web && npm ci && npm run build

secrets: ## write what is missing of secrets/: random secrets for docker compose
	@scripts/secrets.sh

lock: setup ## write requirements/*.txt, with hashes, from the packages in .venv
	$(PY) scripts/lock.py

digests: ## pin every image by the digest that its tag stands for now (needs docker)
	python3 scripts/digests.py

sbom: $(UVX) ## write build/sbom/*.json: the locked packages of each image and a CPU machine, as CycloneDX
	@mkdir -p build/sbom
	@for lock in $(LOCKS); do \
	  $(UVX) --from cyclonedx-bom==7.5.0 cyclonedx-py requirements --pyproject pyproject.toml \
	    --output-reproducible --output-file build/sbom/$$lock.json requirements/$$lock.txt || exit 1; done
	@ls build/sbom

$(BIN)/uvx: setup ;

audit: $(UVX) ## ask PyPI for known flaws of the locked packages
	@for lock in $(LOCKS); do echo "$$lock:"; \
	  $(UVX) pip-audit==2.10.1 --strict --no-deps --disable-pip --requirement requirements/$$lock.txt || failed=1; done; \
	  test -z "$$failed"

bench: .trainers/installed ## run all benchmarks (an hour; `python -m bench.PART` for one); fails at the end if one fails
	@for part in $(BENCHMARKS); do echo "bench.$$part:"; $(PY) -m bench.$$part || failed="$$failed $$part"; done; \
	  test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

gpu: .trainers/installed ## check and measure GPUs, part by part: docs/gpu.md (DEVICE=cpu tries it on a CPU; ARGS="--parts smoke")
	$(PY) -m bench.gpu $(if $(DEVICE),--device $(DEVICE)) $(ARGS)

clean: ## delete caches and builds; .venv and runs/ stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
