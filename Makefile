# Two commands matter: `make demo` and `make test`. Both install what is missing and say so.
.DEFAULT_GOAL := help
.PHONY: help demo test test-slurm test-python check lab deny bench tour clean

help:
	@echo 'make demo    build herd, run a two-node PyTorch training with it, show the accuracy (some minutes the first time)'
	@echo 'make test    everything: the checks, all tests, the examples with real torch, MPI, Ray and Slurm'
	@echo 'make test-slurm   of these, the tests on a real Slurm, which it brings up on this machine'
	@echo 'make test-python  of these, the tests of the Python package'
	@echo 'make check   formatting, lints, documentation'
	@echo 'make lab     only install what the tests need'
	@echo 'make deny    licences, bans and sources of dependencies'
	@echo 'make bench   benchmarks, each beside its peer; RUNS=3 makes it shorter, `cargo xtask help` says what they need'
	@echo 'make tour    run the commands of README.md and docs/launch.md again and put in their output'
	@echo 'make clean   remove what was built; the cache outside the clone stays'

demo:
	@scripts/demo

test:
	@scripts/test

check:
	@scripts/check

lab:
	@lab/all

deny:
	@scripts/deny

bench:
	@scripts/need-rust
	cargo build --release --workspace --bins
	cargo run --release --package xtask -- bench $(RUNS)

tour:
	@scripts/need-rust
	@lab/torch
	cargo build --release --workspace --bins
	eval "$$(lab/env 2>/dev/null)" && scripts/tour && scripts/tour --page docs/launch.md

clean:
	cargo clean

test-slurm:
	@scripts/test-slurm

test-python:
	@scripts/python-test
