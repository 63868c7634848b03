# Two commands on a fresh machine: `make demo` and `make test`. Each installs what it needs into .venv.
.PHONY: help demo firmware-deps test test-slow bench docs format clean

help:
	@echo "make demo       compare every method on real watch data; ends with a table, a report and figures"
	@echo "make test       the whole gate: format, lint, types, tests"
	@echo "make test-slow  the long tests: fifty kills, full-size checks"
	@echo "make bench      round times beside a plain PyTorch loop and the machine's limit"
	@echo "make firmware-deps  the cross compiler and QEMU, for microcontrollers"
	@echo "make docs       the documentation as a site, in site/"
	@echo "make format     put the code into shape"
	@echo "make clean      remove .venv and caches"

demo:
	@scripts/setup demo,dashboard
	@.venv/bin/potluck demo

test:
	@scripts/setup demo,dev,sdp,flower,ray,dashboard,tensorboard,mlflow
	@scripts/check

test-slow:
	@scripts/setup demo,dev,flower,ray
	@OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q -m slow --timeout 3600

bench:
	@scripts/setup demo
	@.venv/bin/python benchmarks/bench.py

firmware-deps:
	@scripts/firmware-deps

docs:
	@scripts/setup docs
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet
	@echo "open site/index.html"

format:
	@scripts/setup demo,dev
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
