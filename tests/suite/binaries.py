"""The built test binaries: from cargo's messages to steps, each run as cargo would run it."""

import dataclasses
import json
import pathlib

from .schedule import Step


@dataclasses.dataclass(frozen=True)
class Binary:
    """A test binary and the folder of its package, in which it runs."""

    # PACKAGE::TARGET. For unit tests, the target is the name of the library.
    name: str
    executable: str
    folder: pathlib.Path

    def environment(self):
        """The variables that cargo sets and tests may read."""
        return {"CARGO_MANIFEST_DIR": str(self.folder)}


def found(messages):
    """The test binaries in the lines of `cargo test --no-run --message-format=json`, by name."""
    binaries = {}
    for line in messages:
        if not line.startswith("{"):
            continue
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message.get("executable") or not message["profile"]["test"]:
            continue
        folder = pathlib.Path(message["manifest_path"]).parent
        target = message["target"]
        name = f"{folder.name}::{'lib' if 'test' not in target['kind'] else target['name']}"
        if name in binaries:
            raise ValueError(f"two test binaries are {name}")
        binaries[name] = Binary(name, message["executable"], folder)
    return binaries


def steps(binaries, group, needs):
    """A step for each binary, first those with an entry in `needs`, in its order."""
    order = [*(name for name in needs if name in binaries), *sorted(set(binaries) - set(needs))]
    usual = Step("", "", limit=group.limit, needs=group.needs, group=group.name)
    return [dataclasses.replace(usual, name=name, binary=name, **needs.get(name, {})) for name in order]
