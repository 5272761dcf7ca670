# Every step that CI runs is a target here; `make help` lists them.
.DEFAULT_GOAL := help
.SUFFIXES:
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

# The newest supported interpreter on PATH, unless PYTHON names one.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; break; }; done)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

PYTEST_ARGS ?=
BENCH_ARGS ?=
BASE ?=
CODE := pkg cmd hack testkit test examples
LIBRARY := controller-runtime
TOOL := trainerctl

# The image's base, by digest: `make pin-image` writes the digest of the tag into the Containerfile. RELEASE=1 refuses a base without one.
PYTHON_IMAGE ?= $(shell sed -n 's/^ARG PYTHON_IMAGE=//p' Containerfile)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or newer is needed; name one with PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# pip compiles no modules (--no-compile): most are never imported, and the first demo would wait for all of them.
# trainerctl is installed after the manager: an older manager had its programs, and pip removes them with that manager.
$(VENV)/.runtime: requirements/runtime.lock pyproject.toml $(LIBRARY)/pyproject.toml $(TOOL)/pyproject.toml | $(BIN)/python
	@echo "Installing what the manager and trainerctl need into $(VENV)"
	$(PIP) install --no-compile --no-deps --require-hashes -r requirements/runtime.lock
	$(PIP) install --no-deps --no-build-isolation --editable ./$(LIBRARY) --editable .
	$(PIP) install --no-deps --no-build-isolation --editable ./trainerctl
	$(BIN)/python -m compileall -q pkg $(LIBRARY)/controller_runtime $(TOOL)/trainerctl
	@touch $@

$(VENV)/.dev: requirements/dev.lock $(VENV)/.runtime
	@echo "Installing what development needs into $(VENV)"
	$(PIP) install --no-deps --require-hashes -r requirements/dev.lock
	@$(BIN)/python -m compileall -q $(VENV)/lib >/dev/null || true  # includes the packages installed with --no-compile; errors are ignored, because some files are examples of bad syntax
	@touch $@

.PHONY: install
install: $(VENV)/.runtime ## Install the manager and trainerctl into .venv

.PHONY: dev
dev: $(VENV)/.dev ## Install everything development needs into .venv

.PHONY: demo
demo: $(VENV)/.runtime ## Bring up a local cluster, run one TrainJob to Complete, tear it down
	$(BIN)/trainerctl demo

.PHONY: binaries
binaries: $(VENV)/.runtime ## Build the local cluster's components, or find them built
	$(BIN)/trainerctl cluster build

.PHONY: fmt
fmt: $(VENV)/.dev ## Format the code and fix what the linter can fix
	$(BIN)/ruff format $(CODE) $(LIBRARY) $(TOOL)
	$(BIN)/ruff check --fix $(CODE) $(LIBRARY) $(TOOL)

.PHONY: lint
lint: $(VENV)/.dev ## Check format, lint, workflows, links, changelogs and make targets in documents
	$(BIN)/ruff format --check $(CODE) $(LIBRARY) $(TOOL)
	$(BIN)/ruff check $(CODE) $(LIBRARY) $(TOOL)
	$(BIN)/zizmor --offline --quiet --persona=auditor .github
	$(BIN)/python -m hack.texts

.PHONY: types
types: $(VENV)/.dev ## Check types, strictly
	cd $(LIBRARY) && $(abspath $(BIN))/mypy controller_runtime ctrl_testkit test examples
	cd $(TOOL) && $(abspath $(BIN))/mypy trainerctl test
	$(BIN)/mypy $(CODE)

.PHONY: imports
imports: $(VENV)/.dev ## Check who may import whom, and that tests import no more inner modules
	cd $(LIBRARY) && $(abspath $(BIN))/lint-imports
	cd $(TOOL) && $(abspath $(BIN))/lint-imports
	$(BIN)/lint-imports
	$(BIN)/python -m hack.faces

# Tests wait more than they compute, so use about two workers for each core; each starts its own API server.
WORKERS ?= 4
PARALLEL := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: test-programs
test-programs: $(VENV)/.dev ## Build the programs that `make test` needs, or find them built; no test builds any
	@$(BIN)/python -m testkit.programs

.PHONY: slow-programs
slow-programs: $(VENV)/.dev ## Build the programs of slow tests too, and install the releases of the SDK
	@$(BIN)/python -m testkit.programs --slow

.PHONY: nightly-programs
nightly-programs: $(VENV)/.dev ## Build the programs of nightly tests too, and install more releases of the SDK
	@$(BIN)/python -m testkit.programs --nightly

.PHONY: test
test: test-programs ## Run before a commit: unit tests, recorded results, simulations, controllers on a real API server, one TrainJob on a cluster
	cd $(LIBRARY) && $(abspath $(BIN))/pytest $(PARALLEL) -m "not slow" $(PYTEST_ARGS)
	cd $(TOOL) && $(abspath $(BIN))/pytest $(PARALLEL) -m "not slow" $(PYTEST_ARGS)
	$(BIN)/pytest $(PARALLEL) -m "not slow" $(PYTEST_ARGS)

# Only these folders have slow tests; each worker would need seconds to collect the others.
.PHONY: test-slow
test-slow: slow-programs ## Run the tests that `make test` leaves out: whole clusters, charts, images, commands of the documentation
	cd $(LIBRARY) && $(abspath $(BIN))/pytest $(PARALLEL) -m slow test/integration $(PYTEST_ARGS)
	cd $(TOOL) && $(abspath $(BIN))/pytest $(PARALLEL) -m slow test/e2e test/integration $(PYTEST_ARGS)
	$(BIN)/pytest $(PARALLEL) -m "slow and not nightly" test/e2e test/integration $(PYTEST_ARGS)

.PHONY: test-nightly
test-nightly: nightly-programs ## Run the tests beside releases between the oldest and the newest, and those of the benchmarks
	$(BIN)/pytest $(PARALLEL) -m nightly $(PYTEST_ARGS)

.PHONY: test-all
test-all: test test-slow ## Run all tests except those with separate targets: nightly tests, faults, soak, skew and benchmarks

.PHONY: check
check: lint types imports test-unit ## Run on each release of Python in CI: all checks and tests that need no processes

.PHONY: test-unit
test-unit: $(VENV)/.dev ## Run the unit tests and compare with the recorded results
	cd $(LIBRARY) && $(abspath $(BIN))/pytest $(PARALLEL) test/unit $(PYTEST_ARGS)
	cd $(TOOL) && $(abspath $(BIN))/pytest $(PARALLEL) test/unit $(PYTEST_ARGS)
	$(BIN)/pytest $(PARALLEL) test/unit test/parity $(PYTEST_ARGS)

# Tests of all files are mixed. The first line of the output is the ORDER to repeat.
ORDER ?=
.PHONY: test-order
test-order: $(VENV)/.dev ## Run the unit tests in a random order, each night in another one; ORDER=17 for one order
	@seed="$(or $(ORDER),$$RANDOM)"; echo "ORDER=$$seed"; failed=0; \
	for house in $(LIBRARY) $(TOOL) .; do (cd $$house; \
		$(abspath $(BIN))/pytest --numprocesses $(WORKERS) --dist load --random-order-bucket=global --random-order-seed=$$seed test/unit $(PYTEST_ARGS)) \
		|| failed=1; done; exit $$failed

.PHONY: test-clusters
test-clusters: slow-programs ## Run on one release of Python in CI: all tests of `make test` and `make test-slow` that `make check` leaves out
	cd $(LIBRARY) && $(abspath $(BIN))/pytest $(PARALLEL) test/integration $(PYTEST_ARGS)
	cd $(TOOL) && $(abspath $(BIN))/pytest $(PARALLEL) test/e2e test/integration $(PYTEST_ARGS)
	$(BIN)/pytest $(PARALLEL) -m "not nightly" test/e2e test/integration test/sim $(PYTEST_ARGS)

.PHONY: test-parity
test-parity: $(VENV)/.dev ## Compare with the recorded results of the Go managers
	$(BIN)/pytest test/parity $(PYTEST_ARGS)

.PHONY: test-integration
test-integration: nightly-programs ## Run the tests that need a real API server
	cd $(LIBRARY) && $(abspath $(BIN))/pytest test/integration $(PYTEST_ARGS)
	cd $(TOOL) && $(abspath $(BIN))/pytest test/integration $(PYTEST_ARGS)
	$(BIN)/pytest test/integration $(PYTEST_ARGS)

.PHONY: test-fault
test-fault: test-programs ## Break the API server and the connections to it; FAULT_SECONDS=30 FAULT_EVERY_K=1 for everything
	cd $(LIBRARY) && $(abspath $(BIN))/pytest test/fault $(PYTEST_ARGS)
	$(BIN)/pytest test/fault $(PYTEST_ARGS)

SEEDS ?= 200
.PHONY: sim
sim: $(VENV)/.dev ## Simulate clusters with the whole manager, once for each of SEEDS seeds from FIRST_SEED on; SEEDS=100000 for a night, SEED=17 for one seed
	SEEDS=$(SEEDS) $(BIN)/pytest test/sim --timeout=0 $(PYTEST_ARGS)

LIVES ?= 2000
.PHONY: mutants
mutants: $(VENV)/.dev ## Plant bugs, and count the simulated lives until each is found; LIVES=100 for a short search
	$(BIN)/python -m hack.mutants test/sim/mutants/*.toml --lives $(LIVES)

COUNT ?= 300
ONLY ?=
MUTATION := build/mutation
# cosmic-ray reads only the files below ONLY, because it needs a quarter of an hour for all; each draw has its own session and configuration.
.PHONY: mutation-score
mutation-score: $(VENV)/.dev ## Make COUNT random edits below ONLY, one at a time, and list those that no unit test notices; takes hours, and continues where it was stopped
	@test -d $(MUTATION) || git clone --quiet --shared . $(MUTATION)
	@git -C $(MUTATION) checkout --quiet --force HEAD
	export PATH="$(abspath $(BIN)):$$PATH"; cd $(MUTATION); \
	draw=$$(tr '/ ' '.+' <<<"$(or $(ONLY),all)-$(or $(SEED),1)-$(COUNT)"); \
	test -f $$draw.sqlite || { $(if $(ONLY),sed 's|^module-path = .*|module-path = [$(foreach path,$(ONLY),"$(path)",)]|',cat) hack/mutation-score.toml >$$draw.toml; \
		cosmic-ray init $$draw.toml new.sqlite; \
		python -m hack.mutation_score --draw new.sqlite --seed $(or $(SEED),1) --count $(COUNT); mv new.sqlite $$draw.sqlite; }; \
	cosmic-ray exec $$draw.toml $$draw.sqlite; \
	cr-report --surviving-only --show-diff $$draw.sqlite

# Both locks contain the same releases; build.lock and image.lock are parts of them.
.PHONY: audit
audit: $(VENV)/.dev ## Look for known vulnerabilities of the locked packages, on the network
	$(BIN)/pip-audit --strict --disable-pip --require-hashes --requirement requirements/runtime.lock --requirement requirements/dev.lock
	$(BIN)/pip-audit --strict --disable-pip --require-hashes --requirement $(LIBRARY)/requirements/dev.lock

.PHONY: soak
soak: test-programs ## Put 2,000 TrainJobs through the local cluster in at most 20 minutes; SOAK_JOBS=300 for fewer
	$(BIN)/pytest test/soak $(PYTEST_ARGS)

.PHONY: test-e2e
test-e2e: nightly-programs ## Run the tests that need the whole local cluster
	cd $(TOOL) && $(abspath $(BIN))/pytest test/e2e $(PYTEST_ARGS)
	$(BIN)/pytest test/e2e $(PYTEST_ARGS)

# Pairs of releases of Kubernetes and JobSet. The first run of a pair builds its programs before its first test.
SKEW ?= 1.34+0.10 1.35+0.10 1.35+0.11 1.36+0.12 1.37+0.12
.PHONY: test-skew
test-skew: $(VENV)/.dev ## Run the demo, lifecycle, SDK, gang and upgrade tests on each pair of releases; SKEW=1.37+0.12 for one
	@for pair in $(SKEW); do echo "Kubernetes $${pair%+*}, JobSet $${pair#*+}"; \
		export CLUSTER_KUBERNETES=$${pair%+*} CLUSTER_JOBSET=$${pair#*+} ENVTEST_K8S_VERSION=$${pair%+*}; \
		$(BIN)/python -m testkit.programs --nightly; \
		$(BIN)/pytest $(PYTEST_ARGS) \
			test/e2e/test_trainjob.py test/e2e/test_lifecycle.py test/e2e/test_sdk.py test/e2e/test_workload.py \
			test/e2e/test_workload_kueue.py test/integration/gangs test/integration/apis/test_upgrade_path.py; \
	done

GO_MANAGERS ?= 2.1.0,2.3.0
BENCH_GO := burst status paced cold_start admission pod_grouping
BENCH_GO_ARGS := --jobs 1000 --few 100 --existing 0 --reviews 500 --pods 2000 --table --json build/bench/figures.json --charts build/bench
.PHONY: bench-go
bench-go: $(VENV)/.dev binaries ## Measure beside Trainer's Go managers of GO_MANAGERS in three rounds, print a table, draw into build/bench
	@mkdir -p build/bench
	$(BIN)/python test/bench/main.py $(BENCH_GO) --go $(GO_MANAGERS) $(BENCH_GO_ARGS) $(BENCH_ARGS)

.PHONY: bench
bench: $(VENV)/.dev binaries ## Measure speed and memory beside alternatives; BASE=COMMIT beside a commit, and fail if CPU, requests or memory are 5 % worse
	$(BIN)/python test/bench/main.py $(if $(BASE),--base $(BASE)) $(BENCH_ARGS)

SCALE ?= 50000
SCALE_GO ?= 2.1.0
.PHONY: bench-scale
bench-scale: $(VENV)/.dev binaries ## Measure with SCALE TrainJobs, beside Go managers of SCALE_GO and BASE=COMMIT; SCALE=10000 for a short run
	@mkdir -p build/bench
	$(BIN)/python test/bench/main.py scale --rounds 1 --scale $(SCALE) $(if $(SCALE_GO),--go $(SCALE_GO)) $(if $(BASE),--base $(BASE)) \
		--json build/bench/scale.json $(BENCH_ARGS)

.PHONY: manifests
manifests: $(VENV)/.dev ## Write config/crd, the ClusterRoles, the chart's copies of config and docs/reference from the code, and release.env's repository into SECURITY-INSIGHTS.yml
	$(BIN)/python -m hack

.PHONY: recording
recording: $(VENV)/.runtime ## Run the demo and draw it into docs/demo.svg
	$(BIN)/python -m hack.recording docs/demo.svg "trainerctl demo"

.PHONY: docs
docs: $(VENV)/.dev ## Build the manager's site into build/site and the library's into build/site/controller-runtime; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	cd $(LIBRARY) && NO_MKDOCS_2_WARNING=1 $(abspath $(BIN))/mkdocs build --strict

.PHONY: wheel
wheel: $(VENV)/.dev ## Build the three wheels into dist/: the library's, the manager's and trainerctl's
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist ./$(LIBRARY) . ./$(TOOL)

VERSION ?=
OFFLINE ?=
CONFIG ?= config
COPY ?= build/offline
.PHONY: offline
offline: $(VENV)/.runtime ## Copy config into COPY and download into it everything that kustomize would, so it needs no network
	rm -rf $(COPY)
	mkdir -p $(COPY)
	cp -r $(CONFIG) $(COPY)/config
	@for folder in $(COPY)/config/third-party/*; do \
		url=$$(sed -n 's/^  - \(http.*\)/\1/p' "$$folder/kustomization.yaml"); \
		$(BIN)/python -m hack.third_party "$$(basename "$$folder")" "$$folder/manifests.yaml" --url "$$url"; \
		sed -i "s|$$url|manifests.yaml|" "$$folder/kustomization.yaml"; \
	done

.PHONY: release
release: $(VENV)/.dev ## Build the files of release VERSION into build/release; OFFLINE=1 leaves the charts of JobSet and LeaderWorkerSet out
	@$(BIN)/python -m testkit.programs --release
	@$(BIN)/python -m hack.release "$(VERSION)" $(if $(OFFLINE),--offline)

.PHONY: placeholders
placeholders: $(VENV)/.dev ## List the settings in release.env that are still placeholders, and fail if there are any
	@$(BIN)/python -m hack.release

.PHONY: image
image: ## Build the image, and the same one for KAI's operator, with podman or docker; RELEASE=1 refuses a base image that is not pinned
	@engine=$$(command -v podman || command -v docker) || { echo "make: podman or docker is needed" >&2; exit 1; }; \
	if [[ -n "$(RELEASE)" && ! "$(PYTHON_IMAGE)" =~ @sha256:[0-9a-f]{64}$$ ]]; then \
		echo "make: the base image $(PYTHON_IMAGE) is not pinned by digest; run make pin-image" >&2; exit 1; \
	fi; \
	version=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml); \
	$$engine build --file Containerfile --build-arg PYTHON_IMAGE="$(PYTHON_IMAGE)" --tag trainer-controller-manager:$$version . && \
	$$engine build --file Containerfile --build-arg PYTHON_IMAGE="$(PYTHON_IMAGE)" --target podgrouper --tag podgrouper:$$version .

.PHONY: test-image
test-image: image ## Build the images, start both programs on a read-only root, and import what the manager imports later
	@engine=$$(command -v podman || command -v docker); version=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml); \
	run="$$engine run --rm --read-only --network none"; \
	$$run trainer-controller-manager:$$version --version && $$run podgrouper:$$version --version && \
	$$run --entrypoint python trainer-controller-manager:$$version -c \
		"import pkg.app.program, pkg.app.podgrouper.program, pkg.util.cert, pkg.podgrouper, controller_runtime.rest.kubeconfig"

# BuildKit records the packages of the base image, too: the provenance and the bill of materials that it attests belong to the image.
.PHONY: push-image
push-image: ## Build both images with docker's BuildKit, push them to the registry in release.env, and write their digests into build/image
	@mkdir -p build/image; source release.env; version=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml); \
	docker buildx create --use --name release 2>/dev/null || docker buildx use release; \
	for target in manager podgrouper; do \
		name=$${target/#manager/trainer-controller-manager}; \
		docker buildx build --file Containerfile --target $$target --push --provenance=mode=max --sbom=true \
			--label org.opencontainers.image.source="$$REPOSITORY" --tag "$$REGISTRY/$$name:$$version" \
			--metadata-file build/image/$$name.json .; \
		sed -n 's/^ *"containerimage.digest": "\(.*\)",*$$/\1/p' build/image/$$name.json >build/image/$$name.digest; \
	done

.PHONY: pin-image
pin-image: ## Write the current digest of the base image's tag into the Containerfile
	@engine=$$(command -v podman || command -v docker) || { echo "make: podman or docker is needed" >&2; exit 1; }; \
	tag="$(firstword $(subst @, ,$(PYTHON_IMAGE)))"; \
	$$engine pull --quiet "$$tag" >/dev/null; \
	digest=$$($$engine image inspect --format '{{index .RepoDigests 0}}' "$$tag"); \
	[[ "$$digest" =~ @(sha256:[0-9a-f]{64})$$ ]] || { echo "make: $$tag has no digest" >&2; exit 1; }; \
	sed -i "s|^ARG PYTHON_IMAGE=.*|ARG PYTHON_IMAGE=$$tag@$${BASH_REMATCH[1]}|" Containerfile

COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	--no-emit-package controller-runtime

.PHONY: lock
lock: $(VENV)/.dev ## Pin the newest releases of the dependencies
	$(PIP) install uv
	$(COMPILE) --upgrade --no-emit-package trainer-controller-manager \
		pyproject.toml $(TOOL)/pyproject.toml --group build --extra fast --output-file requirements/runtime.lock
	$(COMPILE) --constraint requirements/runtime.lock --no-emit-package trainer-controller-manager \
		pyproject.toml $(TOOL)/pyproject.toml --group dev --extra fast --output-file requirements/dev.lock
	$(COMPILE) --constraint requirements/runtime.lock \
		pyproject.toml --extra fast --output-file requirements/image.lock
	$(COMPILE) --constraint requirements/runtime.lock --group build --output-file requirements/build.lock
	$(MAKE) -C $(LIBRARY) lock VENV=$(abspath $(VENV)) LOCK_ARGS='--constraint ../requirements/dev.lock'

.PHONY: clean
clean: ## Remove what builds and tests left in the checkout
	rm -rf dist build .coverage .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache $(foreach house,$(LIBRARY) $(TOOL),$(addprefix $(house)/,dist .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache))
