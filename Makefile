# Every target sets up .venv by itself: Python 3.11 or newer and make are all a machine needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Tests, checks and benchmarks need everything; a demo and the studio need less.
READY  := $(VENV)/.ready
DEMO   := $(VENV)/.demo
STUDIO := $(VENV)/.studio
BOOKS  := $(VENV)/.notebook
TOOLS  := $(VENV)/.release
# A release is installed here, bare, before it counts as one.
BARE   := build/bare

.DEFAULT_GOAL := help
.PHONY: help demo studio notebooks docs release test test-long test-orders test-bounds test-models lint bench bench-network bench-strangers bench-mpc bench-range bench-studio bench-devices bench-coverage mutants reproduce claims reproduce-devices clean

help:  ## what can be made
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): extras := dev
$(DEMO): extras := plot
$(STUDIO): extras := all
$(BOOKS): extras := notebook
$(TOOLS): extras := release
$(READY) $(DEMO) $(STUDIO) $(BOOKS) $(TOOLS): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Posse needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	@echo "setting up $(VENV) (a minute or two the first time) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(extras)]'
	@touch $@

demo: $(DEMO)  ## a secure federated bandit over ten data owners, beside its plain twin
	@$(BIN)/posse demo

studio: $(STUDIO)  ## watch runs, compare them, choose a policy and its protection, in a browser
	@$(BIN)/posse studio

notebooks: $(BOOKS)  ## a tutorial notebook for each system, in JupyterLab on this machine
	@$(BIN)/jupyter lab docs/tutorials

test: $(READY)  ## the tests that run in minutes
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || echo "no Chromium is here: the studio's page is not tested (Debian: apt-get install chromium)"
	@DENO_NO_UPDATE_CHECK=1 $(BIN)/deno test --quiet --no-check tests/studio/js
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadfile -m "not long"

test-long: $(READY)  ## the long forms: every policy, level, data set and 50 seeds
	@$(BIN)/python -m pytest -n 2 -m long -s --timeout 0

test-orders: $(READY)  ## every order in which any set of parties can reconnect after a power cut (over an hour)
	@POSSE_ALL_ORDERS=1 $(BIN)/python -m pytest tests/network/test_reconnecting.py -k every_set -m long -s --timeout 0

test-bounds:  ## the oldest and the newest dependencies allowed, without extras: help, the demo, commands of the README
	@$(PYTHON) -m benchmarks.bounds

docs: $(READY)  ## the documentation as a site, in site/ (every link is checked)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict && echo "the site: site/index.html (opens from disk, without a server)"

test-models: $(READY)  ## models of other libraries and graphs: installs ONNX, flax, equinox and PyTorch (large)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[models]'
	@$(BIN)/python -m pytest tests/systems/fed_contextual/test_export.py tests/systems/fed_contextual/test_own_models.py -rs
	@$(BIN)/python -m pytest tests/test_documents.py -k "example_programs and model" -rs

lint: $(READY) docs  ## ruff, mypy --strict, import-linter, deno check, the documentation
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
	@DENO_NO_UPDATE_CHECK=1 $(BIN)/deno check --quiet src/posse/studio/static/js/*.js tests/studio/js/*.js

bench: $(READY)  ## benchmarks: ratios measured in one run
	@$(BIN)/python -m benchmarks

bench-network: $(READY)  ## steps a second over loopback mutual TLS
	@$(BIN)/python -m benchmarks.network

bench-strangers: $(READY)  ## what strangers who attack a running federation take of it
	@$(BIN)/python -m benchmarks.strangers

bench-mpc: $(READY)  ## the contextual bandit on shares: time, rounds, bytes and memory as processes
	@$(BIN)/python -m benchmarks.mpc

bench-range: $(READY)  ## how far the contextual bandit's model is from breaking at the most steps allowed
	@$(BIN)/python -m benchmarks.mpc_range

bench-studio: $(READY)  ## the studio at 20 steps a second: bytes, CPU of server and page; MINUTES=10: what they hold over time
	@POSSE_BENCH_MINUTES=$(MINUTES) $(BIN)/python -m benchmarks.studio

bench-devices: $(READY)  ## federated rounds on one core (and a GPU): seconds a round, memory
	@$(BIN)/python -m benchmarks.devices

bench-coverage: $(READY)  ## how often intervals hold the truth, and how often settings that earn the same are called clear
	@$(BIN)/python -m benchmarks.coverage

mutants: $(READY)  ## small faults in the code, and whether the tests find them (hours; goes on where it was stopped)
	@nice $(BIN)/python -m benchmarks.mutants

release: $(TOOLS)  ## build wheel and sdist into dist/, install and try them, with an SBOM and checksums; nothing is uploaded
	@rm -rf dist $(BARE) && $(BIN)/python -m build --no-isolation && $(BIN)/twine check --strict dist/*
	@echo "installing the wheel into an empty environment ..."
	@$(PYTHON) -m venv $(BARE) && $(BARE)/bin/python -m pip install --quiet --disable-pip-version-check "$$(ls dist/*.whl)[plot]"
	@cd $(BARE) && POSSE_HOME=home bin/posse demo --horizon 200 --out demo >/dev/null && echo "the demo runs from the wheel"
	@$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file dist/sbom.cdx.json $(BARE)/bin/python
	@$(BARE)/bin/python -m pip freeze --exclude posse-bandits >$(BARE)/installed
	@$(BIN)/pip-audit --progress-spinner off --strict --no-deps --disable-pip -r $(BARE)/installed >$(BARE)/audit 2>&1 && cat $(BARE)/audit \
		|| { ! grep '^Found [0-9]* known' -A 99 $(BARE)/audit && echo "no dependency audit: the database of known faults cannot be reached from here"; }
	@cd dist && sha256sum * >SHA256SUMS && cat SHA256SUMS

reproduce: $(READY)  ## the published figures, full size (long; POSSE_DATA names the folder with mnist)
	@$(BIN)/python -m reproduction run samba/fig8a samba/fig8b samba/fig8c samba/fig8d samba/theorems samba/setting samba/means samba-demo/interface \
		dp-combinatorial/fig2 dp-combinatorial/exp1 dp-combinatorial/exp2 dp-combinatorial/exp3 \
		dp-combinatorial/order dp-combinatorial/overlap dp-combinatorial/theorem1 dp-combinatorial/naive \
		dp-combinatorial/when dp-combinatorial/weights \
		mpc-contextual/fig4 mpc-contextual/fig5 mpc-contextual/table1 mpc-contextual/algorithm3 mpc-contextual/fig2 mpc-contextual/fig3 \
		mpc-contextual/fig6 mpc-contextual/fig7 mpc-contextual/fig8 mpc-contextual/fig9

claims: $(READY)  ## keep what `make reproduce` measured, and write docs/claims.md and docs/reproduced
	@$(BIN)/python -m reproduction claims --keep docs/claims.md

reproduce-devices: $(READY)  ## figures of federated contextual bandits (needs a GPU, or POSSE_FED_CONTEXTUAL_RESULTS of a study made on one)
	@$(BIN)/python -m reproduction run 'fed-contextual/*'

clean:  ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .jax_cache build dist site
	find src reproduction tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
