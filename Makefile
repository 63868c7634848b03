# Two commands on a fresh machine: `make demo` and `make test`. Each installs what it needs into .venv.
.PHONY: help demo quick test test-slow bench firmware-deps firmware docs format clean

help:
	@echo "make demo           eight methods where people have labelled little, on real watch data; a table, a report, figures"
	@echo "make quick          before a commit: format, lint, types, and the tests that matter for a small change; two minutes"
	@echo "make test           the whole gate: format, lint, types, all tests; ten to twenty minutes"
	@echo "make test-slow      the long tests: fifty kills, full-size checks"
	@echo "make bench          round times next to a plain PyTorch loop and the machine's limit; up to a million clients"
	@echo "make firmware-deps  install the cross compiler and QEMU, for microcontrollers"
	@echo "make firmware       build the images of all boards, for the emulator and for the parts"
	@echo "make docs           build the documentation in site/"
	@echo "make format         format the code and fix what the linter can fix"
	@echo "make clean          remove .venv and caches"

demo:
	@scripts/setup demo,dashboard
	@.venv/bin/potluck demo

quick:
	@scripts/setup demo,dev,fast,sdp,flower,ray,dashboard,tensorboard,mlflow,tune,privacy,secure,onnx,notebooks
	@scripts/quick

test:
	@scripts/setup demo,dev,fast,sdp,flower,ray,dashboard,tensorboard,mlflow,tune,privacy,secure,onnx,notebooks
	@scripts/check

test-slow:
	@scripts/setup demo,dev,fast,flower,ray,dashboard,tune,privacy,secure,onnx,notebooks
	@OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q -m slow --timeout 3600 -n "$${POTLUCK_TEST_PROCESSES:-2}" --dist worksteal

bench:
	@scripts/setup demo,fast
	@OMP_NUM_THREADS=1 .venv/bin/python benchmarks/bench.py --picture runs/bench.png $(PEERS)
	@OMP_NUM_THREADS=1 .venv/bin/python benchmarks/bench.py --only W3f --cpu --rounds 3
	@OMP_NUM_THREADS=1 .venv/bin/python benchmarks/arrivals.py --arrivals 3000
	@OMP_NUM_THREADS=1 .venv/bin/python benchmarks/evaluation.py
	@.venv/bin/python benchmarks/startup.py
	@OMP_NUM_THREADS=1 .venv/bin/python benchmarks/scaling.py

firmware-deps:
	@scripts/firmware-deps

firmware:
	@scripts/setup demo
	@.venv/bin/python scripts/firmware

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
