# make grade   set up, grade the reference solutions of elementwise, show what a wrong file gets
# make torch   install torch, too: baselines on a GPU, tensors in a notebook (`make grade` does where there is a GPU)
# make test    set up, run every check of the repository, the tests of the machine among them
# make clean   remove what the two have made here
#
# PYTHON=python3.12 chooses the interpreter, PIP_FLAGS=... goes to every pip install.

PYTHON ?= python3
PIP_FLAGS ?=

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
# A module's bytecode is made when it is first imported: of torch's thousands few ever are.
PIP := "$(BIN)/python" -m pip install --quiet --disable-pip-version-check --no-compile $(PIP_FLAGS) \
	--constraint constraints.txt

# It needs nothing that is installed, only g++. If it fails, the part that needs the simulator says why.
BUILD_SIMULATOR := from grader.storage import cache; from grader.devices.sim import engine; \
	engine.engine_library(cache.cache_folder())

WRONG_KATA := elementwise_f32x4
WRONG_BUG := guard-tests-the-first-lane-only
WRONG_VERDICT := out of bounds
WRONG_FILE := build/$(WRONG_BUG).cu

.PHONY: grade torch test clean
.DELETE_ON_ERROR:
.NOTPARALLEL:

grade: $(VENV)/grade.stamp
	@echo "== The reference solutions of elementwise: all must pass"
	@"$(BIN)/kata" grade elementwise --solutions
	@echo
	@mkdir -p build
	@"$(BIN)/kata" dev mutant $(WRONG_KATA)/$(WRONG_BUG) > $(WRONG_FILE)
	@echo "== A wrong file for $(WRONG_KATA), $(WRONG_FILE): it must fail, as \"$(WRONG_VERDICT)\""; \
	said=$$("$(BIN)/kata" grade $(WRONG_KATA) --file $(WRONG_FILE) 2>&1); status=$$?; printf '%s\n' "$$said"; \
	if [ $$status -ne 1 ]; then echo "make grade: expected exit code 1 for this file, got $$status." >&2; exit 1; fi; \
	case "$$said" in *"$(WRONG_VERDICT)"*) echo "== As it must be." ;; \
	*) echo "make grade: expected the verdict \"$(WRONG_VERDICT)\" for this file." >&2; exit 1 ;; esac

test: $(VENV)/test.stamp
	@"$(BIN)/kata" dev check

clean:
	rm -rf $(VENV) build *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Installed by the commands above whenever a file that says what to install is newer than its stamp.

$(VENV)/grade.stamp: pyproject.toml constraints.txt
	@command -v "$${KATA_CXX:-g++}" > /dev/null || { echo "No g++ was found, and nvcc needs it for a kata's host code. \
	Install one with \`apt install g++\`, or set KATA_CXX to yours." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "$(PYTHON) is missing or older than 3.10. \
	Install a newer Python and name it: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2> /dev/null || { echo "$(PYTHON) cannot make virtual environments. \
	Install the missing part: apt install python3-venv" >&2; exit 1; }
	@"$(BIN)/python" -c 'import pip' 2> /dev/null || { echo "== Making a virtual environment in $(VENV)"; \
	$(PYTHON) -m venv --clear $(VENV); }
	@$(PYTHON) -c '$(BUILD_SIMULATOR)' 2> /dev/null & \
	nvcc=$$($(PYTHON) -c 'from grader.compile.toolchain import find_nvcc; print(find_nvcc()[0])' 2> /dev/null); \
	case "$${nvcc:-none}" in \
	none | "$(BIN:/bin=)"/*) \
		echo "== Installing the grader (20 MB), and nvcc from Python wheels since there is no other (105 MB);" \
			"building the simulator meanwhile"; \
		$(PIP) --editable '.[nvcc]' ;; \
	*) echo "== Installing the grader (20 MB); katas are compiled by $$nvcc; building the simulator meanwhile"; \
		$(PIP) --editable . ;; \
	esac; status=$$?; wait; \
	[ $$status -eq 0 ] || echo "pip could not install the grader; its own words are above. It needs PyPI or a mirror \
	of it (PIP_INDEX_URL). Then run make again." >&2; \
	exit $$status
	@if "$(BIN)/python" -c 'import sys; from grader.compile.toolchain import find_gpu; sys.exit(find_gpu() is None)'; \
	then $(MAKE) --no-print-directory torch; fi
	@"$(BIN)/kata" editor > /dev/null || echo "== kata editor wrote no files for editors; the reason is above" >&2
	@touch $@

torch: $(VENV)/torch.stamp

$(VENV)/torch.stamp: constraints.txt
	@"$(BIN)/python" -c 'import torch' 2> /dev/null || { \
	echo "== Installing torch: about 200 MB without CUDA, 3 GB with it"; $(PIP) torch; }
	@touch $@

$(VENV)/test.stamp: $(VENV)/grade.stamp
	@echo "== Installing torch, about 200 MB without CUDA, 3 GB with it, and the linters"
	@$(PIP) --editable '.[dev]'
	@touch $@
