# What a person does with this repository. Each target is one line or two; the work is in the scripts they name.
export PATH := $(HOME)/.cargo/bin:$(PATH)
TARGET := $(or $(CARGO_TARGET_DIR),target)
VECHE := $(TARGET)/release/veche
DEMO := $(TARGET)/demo/veche

help:            ## this list
	@sed -n 's/^\([a-z-]*\): .*## /  make \1\t/p' Makefile | expand -t 18

run: demo        ## install missing tools, build, serve the push demo
	@cat examples/push/welcome.txt
	@$(DEMO) serve -c examples/push/veche.toml

chat: demo       ## the chat of examples/chat: registration, dialogues, marks; see its README
	@test -f examples/chat/public/vendor/centrifuge.js || tests/setup/centrifuge_page.sh
	@cd examples/chat && CHAT_SECRET=$$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n') $(abspath $(DEMO)) serve

demo: setup-run  ## a binary to try, built in a few minutes: not for measuring
	cargo build --profile demo --quiet --locked --package veche

build: setup-run ## the release binary
	cargo build --release --quiet --locked --package veche

check: setup-run ## format, lints, the tests that need no server, a short simulation
	tests/run check

test-crate:      ## one crate's tests after an edit, seconds each: CRATE=frontends; that crate is built without optimisation
	cargo test -p veche-$(CRATE) --locked --quiet --config profile.dev.package.veche-$(CRATE).opt-level=0

test: setup-run  ## everything that must hold before a merge: at most 25 minutes on two cores
	tests/run quick

test-full: setup-run ## test, and what lasts longer, in parts of at most an hour each: PART=attacks for one; see CONTRIBUTING.md
	tests/run full $(PART)

bench: build setup-bench ## the side-by-side figures; see bench/README.md
	bench/run

instructions: setup-instructions ## instructions of each path beside bench/instructions.toml; see bench/README.md
	bench/instructions

shootout: build setup-shootout ## Veche beside its peers in one run; see bench/README.md
	bench/shootout

deny: setup-deny ## licences, sources and known weaknesses of what we depend on
	tests/deny.sh

mutants: setup-mutants ## how many of 300 small faults the tests catch: an hour; SEED=2 for others; see CONTRIBUTING.md
	tests/mutants.py --seed $(or $(SEED),1)

fuzz: setup-fuzz ## ten CPU-minutes of each fuzz target; MINUTES=1 for less
	tests/fuzz.py $(or $(MINUTES),10)

package: build setup-package ## a Debian package and a static binary, in target/package
	packaging/package.sh $(VECHE) target/package
	packaging/static.sh target/package

setup: setup-run setup-test setup-bench ## install all that run, test and bench need

setup-run:
	@tests/setup/packages.sh run
	@tests/setup/rust.sh
	@tests/setup/uplot.sh
	@tests/setup/centrifuge_page.sh || echo "no npm centrifuge: pages that require it show an error"

setup-test: setup-run
	@tests/setup/packages.sh test
	@tests/setup/centrifuge.sh || echo "no npm centrifuge: the tests with it will be skipped"
	@tests/setup/pypi.sh cent > /dev/null || echo "no PyPI cent: the test with it will be skipped"
	@tests/setup/pypi.sh centrifuge-python > /dev/null || echo "no PyPI centrifuge-python: the tests with it will be skipped"
	@tests/setup/counts.sh --if-judged || echo "no gungraun-runner: instructions will not be counted"

setup-full: setup-test
	@tests/setup/packages.sh full
	@tests/setup/deny.sh

setup-bench: setup-run
	@tests/setup/packages.sh bench
	@tests/setup/go.sh

setup-instructions: setup-run
	@tests/setup/packages.sh test
	@tests/setup/counts.sh

setup-shootout: setup-run
	@tests/setup/packages.sh shootout
	@tests/setup/go.sh

setup-deny: setup-run
	@tests/setup/deny.sh

setup-package: setup-run
	@tests/setup/packages.sh package

setup-mutants: setup-run
	@tests/setup/mutants.sh

setup-fuzz: setup-run
	@tests/setup/fuzz.sh

.PHONY: help run chat demo build check test test-crate test-full bench instructions shootout mutants fuzz deny package setup setup-run setup-test setup-full setup-bench setup-instructions setup-shootout setup-package setup-deny setup-mutants setup-fuzz
