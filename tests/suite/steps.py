"""The steps of each set, and the parts of the full set."""

import os
import pathlib
import re
import time
from dataclasses import replace

from .schedule import ALONE, IDLE, Step

ROOT = pathlib.Path(__file__).resolve().parents[2]
CARGO = "--workspace --locked --quiet"
# Without jemalloc, whose build takes two minutes of CPU time, and the measured paths with their framework: no pure test needs
# them.
CHECKS = "--profile checks --no-default-features --exclude veche-counts"

BUILT = ("build",)
READY = ("setup", "build")
# All cores, for steps that run as many threads as there are cores.
ALL = 1000.0

# Crates whose tests start no server.
PURE = ("archive", "centrifuge", "files", "frontends", "hub", "jwt", "mailbox", "proto", "store", "tls", "types", "worker")
# Test binaries of the crates in PURE that take long or start processes.
LONG = {"archive::kill"}
# Crates whose tests only compute and read files: they pass however little processor time they get.
COMPUTING = ("centrifuge", "config", "frontends", "hub", "jwt", "nodes", "proto", "runtime", "sim", "types", "worker")
# Test binaries of these crates with time limits of their own.
TIMED = {"nodes::carriers"}

# Test binaries that use less of a core than most, or run alone, in the order in which they start. Binaries that measure
# times run alone in the foreground; those that take long start early.
BINARIES = {
    "server::attacks": {"place": ALONE},
    "load::timing": {"place": ALONE},
    "server::bench": {"place": ALONE},
    # Many tests of this binary measure times. No other step starts beside it, because the next one in the list runs
    # alone and waits for it.
    "server::served": {},
    "load::truth": {"place": ALONE},
    "outbound::engine": {"cores": 0.2},
    "server::supervisor": {"cores": 0.5},
    "net::driver": {"cores": 0.3},
    "outbound::http": {"cores": 0.5},
    "tls::resumption": {"cores": 0.1},
    "fastcgi::fpm": {"cores": 0.2},
    "archive::kill": {"cores": 0.5},
    "server::dev": {"cores": 0.5},
}


def is_pure(name):
    """Returns whether a test binary belongs to `make check`."""
    crate, target = name.split("::")
    return name not in LONG and (target == "lib" or crate in PURE or name == "server::tidy")


def only_computes(name):
    """Returns whether a test binary may run beside tests that measure times."""
    crate = name.split("::")[0]
    return name not in TIMED and (crate in COMPUTING or name == "server::tidy")


def pure_targets():
    """Returns arguments of `cargo test` that select the binaries of `make check`, and a few others with the same
    names."""
    folders = [ROOT / "crates" / crate / "tests" for crate in PURE]
    found = {path.stem for folder in folders for path in folder.glob("*.rs")}
    found |= {path.parent.name for folder in folders for path in folder.glob("*/main.rs")}
    return " ".join(f"--test {name}" for name in sorted(found | {"cluster", "tidy", "worlds"}))


def has_example(source):
    """Returns whether the documentation in a source file has a code block that rustdoc tests."""
    fences = re.findall(r"^\s*//[/!]\s*```(.*)", source, re.MULTILINE)
    return any(language.strip() in ("", "rust", "no_run", "should_panic", "compile_fail") for language in fences[::2])


def with_examples():
    """Returns arguments of `cargo test` that select only the crates with such documentation, because rustdoc analyses
    each selected crate from scratch."""
    sources = [path for path in ROOT.glob("crates/*/src/**/*.rs") if has_example(path.read_text())]
    crates = {path.relative_to(ROOT / "crates").parts[0] for path in sources}
    return " ".join(f"-p veche-{crate}" for crate in sorted(crates))


# Placeholder steps. Each is replaced by one step for each test binary that the first function selects. A binary that the second
# function selects uses only idle processor time.
GROUPS = {"cargo test": (lambda name: True, only_computes), "pure tests": (is_pure, lambda name: False)}


def needs_of(names, group):
    """Returns what the named test binaries of a group need, those first that start first."""
    is_idle = GROUPS[group][1]
    return BINARIES | {name: {"place": IDLE, "limit": 2400} for name in sorted(names) if is_idle(name)}


def build(targets=""):
    """The step that builds what the other steps run. It always selects the same packages; with another selection their
    features would differ and they would be rebuilt."""
    messages = '--no-run --message-format=json-render-diagnostics > "$MESSAGES"'
    return Step("build", f"cargo test {CARGO} {targets} {messages}", 3000, cores=ALL)


def cargo_tests(needs):
    """The placeholder for a step for each test binary; see `binaries`."""
    return Step("cargo test", "", 900, cores=0.75, needs=needs)


def setup(targets):
    """The step that installs tools. It runs beside the build, because it mostly waits for the network."""
    return Step("setup", f"make --silent {targets}", 1800, cores=0)


def clippy(options=""):
    return Step("clippy", f"cargo clippy {CARGO} --all-targets {options} -- -D warnings", 2400, place=IDLE)


def soak(seconds):
    return Step(
        "soak", "--nocapture", seconds + 300, cores=0.5, needs=READY, binary="server::soak",
        environment={"VECHE_SOAK_SECONDS": str(seconds)},
    )  # fmt: skip


FORMAT = Step("format", "cargo fmt --all --check", 60, cores=0)
VERDICTS = (
    Step("benchmark verdicts", "python3 -m unittest discover -s bench -t bench", 60),
    Step("suite's verdicts", "python3 -m unittest discover -s tests -t tests", 60),
)

def http(io=""):
    on = f" on {io} io".replace("io_uring io", "io_uring") if io else ""
    option = f" --io {io}" if io else ""
    return Step(f"http{on}", f"tests/conformance/http_suite.py{option}", 180, cores=0.5, needs=READY)


def autobahn(name, arguments, limit, cores=0.75):
    return Step(f"autobahn {name}", f"tests/conformance/autobahn_suite.py {arguments}", limit, cores=cores, needs=READY)


# Tests of clients, pages, SDKs, examples and packages.
CLIENTS = (
    # This step mostly waits for pages, and takes longer than the others.
    Step("browser", "tests/browser/run.sh", 480, cores=0.5, needs=READY),
    Step("centrifuge codec", "tests/conformance/centrifuge_codec.sh", 60, needs=READY),
    Step("centrifuge sdk", "tests/conformance/centrifuge_sdk.sh", 180, cores=0.1, needs=READY),
    Step("centrifuge python", "tests/conformance/centrifuge_python.sh", 120, cores=0.5, needs=READY),
    Step("centrifuge api", "tests/conformance/cent.sh", 120, cores=0.5, needs=READY),
    Step("php sdk", "tests/php_sdk.py", 180, cores=0.5, needs=READY),
    Step("workers", "tests/workers.py", 60, cores=0.5, needs=("setup",)),
    Step("examples", "tests/examples.sh", 120, cores=0.5, needs=READY),
    Step("chat crowd", "tests/chat_crowd.py", 180, needs=READY),
    Step("package", "tests/package.py", 900, needs=READY, place=IDLE),
)
HTTP = (http(), http("io_uring"), http("delayed"))
# A model checker tests tables and mailboxes: it runs their threads in thousands of different
# interleavings.
MODEL = Step(
    "model",
    "cargo test --locked --quiet -p veche-store -p veche-mailbox"
    " --features veche-store/model,veche-mailbox/model --lib model_tests",
    2400, needs=BUILT, place=IDLE,
)  # fmt: skip
# The first step makes an optimised build; the second runs each measured path once under Valgrind.
# Both steps do nothing if the counts were recorded on another machine.
COUNTED = Step("build of instructions", "bench/instructions --if-judged --build", 2400, needs=READY, place=IDLE)
INSTRUCTIONS = Step("instructions", "bench/instructions --if-judged", 900, needs=("build of instructions",))
DEPENDENCIES = Step("dependencies", "tests/deny.sh", 300, cores=0.5, needs=("setup",))
# Idle steps run one at a time, since cargo runs only one command at a time in a target folder.
DOCS = Step("doc tests", f"cargo test --locked --quiet --doc {with_examples()}", 2400, needs=BUILT, place=IDLE)

# Everything that must pass before a merge, in the order in which steps start if possible.
QUICK = (
    FORMAT,
    build(),
    setup("setup-test"),
    *VERDICTS,
    COUNTED,
    clippy(),
    DOCS,
    MODEL,
    INSTRUCTIONS,
    cargo_tests(READY),
    soak(60),
    Step("recovery", "tests/recovery.py", 300, cores=0.5, needs=READY),
    # Tests one fault between nodes and Redis, a different one each day.
    Step("cluster", "tests/cluster.py", 240, cores=0.5, needs=READY),
    *CLIENTS,
    Step("highload cup", "tests/highload_cup.py", 120, needs=READY),
    *HTTP,
    autobahn("quick", "quick", 300),
    autobahn("fast, client", "fast --client", 300),
    autobahn("fast on io_uring", "fast --io io_uring", 300),
    autobahn("fast on delayed io", "fast --io delayed", 300),
    DEPENDENCIES,
)

# Steps that need no server.
CHECK = (
    FORMAT,
    build(f"{CHECKS} --lib {pure_targets()}"),
    *VERDICTS,
    clippy(CHECKS),
    Step("pure tests", "", 900, needs=BUILT, environment={"VECHE_GLUE_WORLDS": "30"}),
    Step(
        "simulator", "", 300, needs=BUILT, binary="sim::worlds", environment={"VECHE_SIM_STEPS": "30000"},
    ),
    Step(
        "simulator of clusters", "", 300, needs=BUILT, binary="sim::cluster", environment={"VECHE_SIM_STEPS": "30000"},
    ),
)  # fmt: skip


def long(name, limit, binary, arguments="", **environment):
    """A long run of one test binary, alone in the foreground."""
    return Step(name, arguments, limit, needs=READY, place=ALONE, binary=binary, environment=environment)


def ten_million_steps():
    """Returns environment variables for ten million steps of the simulator with new seeds."""
    return {"VECHE_SIM_STEPS": "10000000", "VECHE_SIM_FROM": f"{int(time.time())}000"}


def both(step):
    """Returns a step, which uses epoll, and the same step on io_uring."""
    uring = replace(step, name=f"{step.name} on io_uring", environment=step.environment | {"VECHE_TEST_IO": "io_uring"})
    return (step, uring)


def whole(name, command, limit, **needs):
    """A command that runs alone in the foreground."""
    return Step(name, command, limit, place=ALONE, **{"needs": READY} | needs)


def fuzz(targets):
    return whole("fuzz", f"tests/fuzz.py 10 {targets}", 3600, needs=("setup",))


# Time limit of each part of the full set, in seconds, on two cores.
PART_LIMIT = 3600
START = (setup("setup-test setup-full"), build())
# The server, optimised almost like a release, but linked in much less time.
OPTIMISED = Step("optimised build", "cargo build --profile bench --locked --quiet --package veche", 2400, cores=ALL, needs=BUILT)
OPTIMISED_FILE = str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "release/veche")
# The parts of the full set besides `make test`. Each begins with the build that it needs.
PARTS = {
    "conformance": (
        *START,
        *both(whole("autobahn all", "tests/conformance/autobahn_suite.py all", 900)),
        whole("autobahn all, client", "tests/conformance/autobahn_suite.py all --client", 1200),
        whole("autobahn fast, php client", "tests/conformance/autobahn_suite.py fast --client php sdk/php/tests/autobahn.php", 300),
        whole("testssl", "tests/conformance/testssl_suite.py", 1200),
    ),
    # In `make test` each attack lasts less than a second.
    "attacks": (
        *START,
        *both(long("attacks", 1500, "server::attacks", VECHE_ATTACK_SECONDS="10")),
        *both(whole("slow attacks", "tests/conformance/slow_suite.py", 300)),
    ),
    # The slowest calls from Lua, on a build like a release, with the limits that the guide states.
    "lua": (
        *START,
        OPTIMISED,
        *both(
            Step(
                "worst of lua", "lua_worst --nocapture", 1200, needs=(*READY, OPTIMISED.name), place=ALONE,
                binary="server::attacks", environment={"VECHE_ATTACK_SECONDS": "1", "VECHE_TEST_BIN": OPTIMISED_FILE},
            )
        ),
    ),
    # In `make test` there are two power cuts of each kind.
    "durability": (
        *START,
        long("power cuts", 1200, "server::served", "durability --nocapture", VECHE_DURABILITY_ROUNDS="50"),
        *both(
            long("upgrades and kills", 900, "server::supervisor", "under_load --nocapture", VECHE_UPGRADES="20", VECHE_KILLS="50")
        ),
    ),
    # Longer runs than in `make test`: twenty times the data, or ten minutes instead of one.
    "recovery": (
        *START,
        *both(whole("recovery", "tests/recovery.py 10", 900)),
        *both(whole("churn", "tests/churn.py", 300)),
        whole("a million channels", "tests/million_channels.py", 300),
        whole("highload cup", "tests/highload_cup.py 20", 900),
    ),
    # Tests all faults between nodes and Redis, with 1,000 subscribers.
    "cluster": (
        *START,
        whole("cluster", "tests/cluster.py full", 1800),
    ),
    "endurance": (
        *START,
        *both(soak(600)),
        long("churn of the loop", 1800, "net::churn", VECHE_CHURN_SECONDS="600"),
    ),
    # Runs worlds with new seeds; a failure reports its seed.
    "simulator": (
        *START,
        long("simulator", 1800, "sim::worlds", "promises --nocapture", **ten_million_steps()),
        long("simulator of clusters", 1800, "sim::cluster", "promises --nocapture", **ten_million_steps()),
    ),
    "fuzz-parsers": (setup("setup-fuzz"), fuzz("http_body http_head proxy_header tls_server websocket_client websocket_server")),
    "fuzz-wires": (setup("setup-fuzz"), fuzz("nodes runtime")),
    "fuzz-server": (setup("setup-fuzz"), fuzz("centrifuge connection reload script session table")),
}
SETS = {"check": CHECK, "quick": QUICK}
