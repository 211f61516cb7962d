# make demo    tune a real training process on this machine, without a GPU
# make demo-cluster    tune a job on four pretended nodes under Slurm; ENGINE=ray: under Ray
# make demo-budget    two trainings share a power budget on emulated GPUs, and it falls while they run
# make test    the tests of every change, two and a half minutes
# make test-slow    the other tests: networks beyond one, benches, long properties, and more of all that real processes do
# make lint    formatting, lint and types
# make venv    only install, into .venv
# make docs    the documentation as a site that can be searched, and a manual page, in build/docs; LINKS=1: links to
#              elsewhere are looked up as well
# make test-frameworks    the tests with Hugging Face, Lightning, accelerate, torchrun and the trackers, which it installs
#
# PYTHON=python3.12 picks the interpreter for .venv (3.11 or later).

PYTHON ?= python3
VENV := .venv
INSTALLED := $(VENV)/.installed
FRAMEWORKS := $(VENV)/.frameworks
SITE := $(VENV)/.site

.PHONY: demo demo-budget demo-cluster docs lint test test-frameworks test-slow venv

venv: $(INSTALLED)

# Again only when the dependencies may have changed: the installation is editable.
$(INSTALLED): pyproject.toml constraints.txt
	@$(VENV)/bin/python -c 'import pip' 2>/dev/null || { \
	    $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	        echo "autocap needs Python 3.11 or later as $(PYTHON); name one: make PYTHON=python3.12 …" >&2; exit 1; }; \
	    $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	        echo "$(PYTHON) cannot make virtual environments; on Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }; \
	    $(PYTHON) -m venv --clear $(VENV); }
	@echo "installing into $(VENV); PyTorch is large, the first time takes minutes"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[workloads,dev]'
	@touch $@

# The job measures this machine first and takes the batch size at which its passes last about 0.1 s, so that a trial has
# dozens of iterations. One thread: with two on two cores, torch's threads wait for each other whenever anything else
# wants a core. Energy and short trials: where others use the machine time scatters twice as much as energy, and two caps
# can be compared only soon one after the other. A time limit rather than a number of iterations: two minutes are enough
# for a search, also for one that begins anew, but not for another one after a decision.
demo: venv
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/autocap run \
	    --device emulated:quadro-rtx-6000/resnet50 --metric energy --target-stderr 2% --trial-seconds 4 \
	    --wait 45 --retune never --no-memory -- \
	    python -m autocap.workloads train resnet18 --device cpu --threads 1 \
	    --image-size 64 --iteration-seconds 0.1 --samples 512 --seconds 120

# Two minutes: the job sleeps where a real one would compute, so its power and its steps are those of the emulated GPUs.
ENGINE := slurm
IN_slurm := salloc --quiet -N4 -n4
JOB_slurm := srun -N4 -n4 --cpu-bind=none python -m bench.cluster.job
JOB_ray := python -m bench.cluster.ray_job
NEEDS_ray := ray
demo-cluster: venv
	@$(if $(NEEDS_$(ENGINE)),$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	    -e '.[$(NEEDS_$(ENGINE))]')
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH"; folder=$$(mktemp -d)/c; \
	trap 'python -m bench cluster down --dir $$folder; rmdir $${folder%/c}' EXIT; trap 'exit 1' INT TERM; set -ex; \
	python -m bench cluster up --nodes 4 --engine $(ENGINE) --profile quadro-rtx-6000/alexnet --dir $$folder; \
	eval "$$(python -m bench cluster env --dir $$folder)"; \
	$(IN_$(ENGINE)) autocap run --nodes $(ENGINE) --metric energy --no-memory -- $(JOB_$(ENGINE)) --iterations 800

# Two and a half minutes: two thirds of them for both to be tuned, then the budget falls.
demo-budget: venv
	$(VENV)/bin/python -m bench budget demo

# A test is marked slow that takes more than 0.25 s of CPU in the rooms that measure, decide and set limits, or 0.08 s
# elsewhere; the cheapest of each file stays. `make test` is to take 150 s and 240 s of CPU on two cores.
# Each worker loads all tests, so the one that mostly computes has three; the slow ones mostly wait for processes.
TEST := $(VENV)/bin/python -m pytest --dist worksteal
test: venv
	$(TEST) -n 3 -m "not slow"
test-slow: venv
	$(TEST) -n 4 -m slow

# Apart, as importing them takes longer than all the other tests together. Where they cannot be installed, as without a
# network, what needs them is skipped. Those of Ray come last, as a cluster takes all of a small machine and trainings
# beside it are too uneven to be tuned.
test-frameworks: venv
	@test $(FRAMEWORKS) -nt $(INSTALLED) || { \
	    $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	        -e '.[workloads,dev,frameworks,wandb,mlflow,tensorboard]' && touch $(FRAMEWORKS) || \
	    echo "the frameworks cannot be installed here; their tests are skipped" >&2; }
	$(VENV)/bin/python -m pytest tests/frameworks tests/plugins/trackers/test_sinks.py -rs -n 2 --dist loadfile --ignore-glob='*/test_ray*'
	$(VENV)/bin/python -m pytest tests/frameworks/test_ray*.py -rs -n 2 --dist loadfile

lint: venv
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy -p autocap -p bench
	$(VENV)/bin/python -m tests.docs.typed

# A link to a page or a heading that is not there is an error.
SPHINX := $(VENV)/bin/python -m sphinx --fail-on-warning --keep-going --quiet -c docs/site . build/docs
docs: venv
	@test $(SITE) -nt $(INSTALLED) || { \
	    $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]' && \
	    touch $(SITE); }
	$(SPHINX)/html -b html
	$(SPHINX)/man -b man
	$(if $(LINKS),$(SPHINX)/links -b linkcheck)
	@echo "build/docs/html/docs/site/index.html, build/docs/man/autocap.1"
