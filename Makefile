# Every target sets up .venv by itself; a second run does only what has changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: demo test torture lint bench sanitize aarch64 clean

demo: $(READY)  ## the paper's six rules on the digits, seven seeds each; about five minutes on two cores
	$(BIN)/tustin study digits --seeds 7 --epochs 16 --run.device cpu --out runs/demo

test: $(READY)
	$(BIN)/python -m pytest -n auto

torture: $(READY)  ## kill -9 and Ctrl-C at hundreds of moments; about half an hour
	$(BIN)/python -m pytest -m long tests/torture.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)  ## the scan beside its peers and the limits of the machine; minutes, and nothing else should run
	$(BIN)/python benchmarks/scan.py

# The sweep over shapes with every access to memory watched. Two rules are enough, the others read and write the same
# memory, and each costs half a minute to compile.
SANITIZED := build/sanitize
SANITIZE := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -std=c++17 -fPIC -fopenmp -march=native \
  -ffp-contract=fast -fno-math-errno -Wno-psabi -DTUSTIN_LEVEL=baseline -DTUSTIN_CHUNK=32 '-DTUSTIN_METHODS(X)=X(mamba) X(bil)' \
  '-DTUSTIN_SCHEDULED(X)=X(bil)'
sanitize: $(READY)
	@$(MAKE) --no-print-directory -j2 $(SANITIZED)/_native.so
	export LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0 TUSTIN_NATIVE_LIBRARY=$(SANITIZED)/_native.so; \
	$(BIN)/python -c "from tustin import native; native.library()" && \
	$(BIN)/python -m pytest -q -k "mamba or bil or conv or rowwise" \
	  tests/scan/test_native_accuracy.py tests/conv/test_conv.py tests/rowwise/test_rowwise.py

$(SANITIZED)/_native.so: $(SANITIZED)/scan.o $(SANITIZED)/scheduled.o $(SANITIZED)/conv.o $(SANITIZED)/rowwise.o $(SANITIZED)/native.o
	$(CXX) $(SANITIZE) -shared $^ -o $@
$(SANITIZED)/%.o: src/tustin/csrc/%.cpp $(wildcard src/tustin/csrc/*.h*)
	@mkdir -p $(@D)
	$(CXX) $(SANITIZE) -c $< -o $@

# The same source must compile for ARM; nothing is run.
AARCH64 ?= aarch64-linux-gnu-g++
aarch64:
	@command -v $(AARCH64) >/dev/null || { echo "$(AARCH64) is not installed: nothing compiled for ARM"; exit 0; }; \
	for file in scan scheduled conv rowwise native; do \
	  $(AARCH64) -std=c++17 -O2 -Wall -Wextra -Werror -Wno-psabi -fopenmp -fsyntax-only -DTUSTIN_LEVEL=baseline \
	    -DTUSTIN_CHUNK=32 src/tustin/csrc/$$file.cpp || exit 1; \
	done; echo "compiles for ARM"

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .mypy_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tustin needs Python 3.11 or newer, $(PYTHON) is %d.%d; set PYTHON=..." % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)

$(READY): pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/tustin/csrc/*) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
