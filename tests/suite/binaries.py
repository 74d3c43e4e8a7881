"""Finds the built test binaries in cargo's messages, and makes a step for each, which runs the binary as cargo
would."""

import dataclasses
import json
import pathlib


@dataclasses.dataclass(frozen=True)
class Binary:
    """A test binary, and the folder of its package, which is its working directory."""

    # PACKAGE::TARGET. For unit tests, the target is the name of the library.
    name: str
    executable: str
    folder: pathlib.Path

    def environment(self):
        """Returns the environment variables that cargo would set and that tests may read."""
        return {"CARGO_MANIFEST_DIR": str(self.folder)}


def found(messages):
    """Returns the test binaries by name, from the lines of `cargo test --no-run --message-format=json`."""
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
    """Returns a step for each binary: first those with an entry in `needs`, in the order of `needs`, then the others by
    name."""
    order = [*(name for name in needs if name in binaries), *sorted(set(binaries) - set(needs))]
    usual = dataclasses.replace(group, name="", group=group.name)
    return [dataclasses.replace(usual, name=name, binary=name, **needs.get(name, {})) for name in order]
