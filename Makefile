# What a stranger types: `make wheel` and `make test`. Needs python3 (3.11 or later) with venv and its headers, and
# make; everything else, compilers included, comes from pip with the versions and hashes of wheels/locks/.
# Both targets may be repeated and go on where they stopped: environments are marked ready by the content of their
# lock, and compiled kernels are kept in a cache outside the checkout.

PYTHON ?= python3
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help wheel release test lint locks clean

digest = $(firstword $(shell cat $(1) | sha256sum))
interpreter := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')

build_env := build/env-build
build_python := $(build_env)/bin/python
build_ready := $(build_env)/.ready-$(interpreter)-$(call digest,wheels/locks/dev.txt)
tilewright := $(build_python) -m tilewright.cli.main
other_bindings := build/bindings-12
other_ready := $(other_bindings)/.ready-$(interpreter)-$(call digest,wheels/locks/bindings-12.txt)
native := wheels/CMakeLists.txt $(sort $(wildcard library/native/*.[ch]))
launcher := build/launcher/.built-$(interpreter)-$(call digest,$(native))

clean_env := build/env-clean
clean_python := $(clean_env)/bin/python
clean_ready := $(clean_env)/.ready-$(interpreter)-$(call digest,wheels/locks/run.txt)

help:  ## Say what there is to make
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

wheel: $(launcher) $(clean_ready)  ## Compile the bundle, build the wheel, check it, run the examples from it
	$(tilewright) dev build-wheel --python $(clean_python)
	$(clean_python) -m pip install -q --no-index --no-deps --force-reinstall $$(ls -t dist/tilewright-*.whl | head -n 1)
	@echo "== the examples, from the wheel, with no compiler and an empty PATH"
	PATH=/nonexistent TILEWRIGHT_JIT=off $(CURDIR)/$(clean_python) -I examples/vecadd.py
	PATH=/nonexistent TILEWRIGHT_JIT=off $(CURDIR)/$(clean_python) -I examples/softmax.py
	PATH=/nonexistent TILEWRIGHT_JIT=off $(CURDIR)/$(clean_python) -I examples/matmul.py

release: $(launcher) $(clean_ready)  ## Run the checklist of a release; RELEASE=--rehearse on any commit
	$(tilewright) dev release-check --python $(clean_python) $(RELEASE)

test: lint $(other_ready)  ## Lint, types, import rules and all tests
	TILEWRIGHT_OTHER_BINDINGS=$(CURDIR)/$(other_bindings) $(build_python) -m pytest -n 2

lint: $(launcher)  ## Lint, types and import rules alone
	$(build_env)/bin/ruff check .
	$(build_env)/bin/ruff format --check .
	$(build_python) -m mypy
	$(build_env)/bin/lint-imports

locks:  ## Write wheels/locks/ anew from pyproject.toml
	$(PYTHON) -m venv --clear build/env-locks
	build/env-locks/bin/pip install -q uv==0.9.30
	build/env-locks/bin/uv pip compile -q pyproject.toml --universal --python-version 3.11 \
		--generate-hashes --no-header --no-emit-find-links -o wheels/locks/run.txt
	build/env-locks/bin/uv pip compile -q pyproject.toml --extra compiler --extra dev --universal \
		--python-version 3.11 --generate-hashes --no-header --no-emit-find-links -o wheels/locks/dev.txt
	printf 'cuda-bindings>=12.9,<13\n' | build/env-locks/bin/uv pip compile -q - --no-deps --universal \
		--python-version 3.11 --generate-hashes --no-header --no-emit-find-links --no-annotate \
		-o wheels/locks/bindings-12.txt

clean:  ## Remove everything made here, but not the caches outside the checkout
	rm -rf build dist

# An environment whose stamp is missing is made from nothing: half of one cannot be told from a whole one.
$(build_ready):
	@$(PYTHON) wheels/check_machine.py
	@echo "== the build environment: the pinned toolchain from pip, about 1.4 GB"
	rm -rf $(build_env)
	$(PYTHON) -m venv $(build_env)
	$(build_python) -m pip install -q --disable-pip-version-check --require-hashes -r wheels/locks/dev.txt
	@# The sources by their folders: an editable install would put its own finder before every test's path.
	printf '%s\n' $(CURDIR)/library $(CURDIR)/compiler $(CURDIR)/release \
		> $$($(build_python) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tilewright-checkout.pth
	@# The command line of these very sources: what an install would have put there.
	printf '#!/bin/sh\nexec "%s" -m tilewright.cli.main "$$@"\n' $(CURDIR)/$(build_python) > $(build_env)/bin/tilewright
	chmod +x $(build_env)/bin/tilewright
	@touch $@

# The older of the bindings that we serve: the tests run with both.
$(other_ready): $(build_ready)
	rm -rf $(other_bindings)
	$(build_python) -m pip install -q --disable-pip-version-check --require-hashes --no-deps \
		--target $(other_bindings) -r wheels/locks/bindings-12.txt
	@touch $@

# The launcher, in its place in the checkout: again when the C or its build changed.
$(launcher): $(build_ready)
	@rm -f build/launcher/.built-*
	CC="$(CURDIR)/$(build_python) -m ziglang cc" $(build_env)/bin/cmake -S wheels -B build/launcher -G Ninja \
		-D CMAKE_MAKE_PROGRAM=$(CURDIR)/$(build_env)/bin/ninja -D Python_EXECUTABLE=$(CURDIR)/$(build_python) \
		--log-level=WARNING
	$(build_env)/bin/cmake --build build/launcher
	@# A process may have the old file mapped, so it gets a new one and not new bytes.
	cp --remove-destination build/launcher/_launcher.abi3.so library/tilewright/runtime/
	@touch $@

$(clean_ready):
	@echo "== the clean environment: what a user of the wheel has"
	rm -rf $(clean_env)
	$(PYTHON) -m venv $(clean_env)
	$(clean_python) -m pip install -q --disable-pip-version-check --require-hashes -r wheels/locks/run.txt
	@touch $@
