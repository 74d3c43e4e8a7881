//! The rows of `[[app]]`, and those that services and routes with their own script share.

use std::time::Duration;

use super::row::{Default, Directive, Section, seconds};
use crate::value::Kind;

/// The value kind of `script`.
pub(super) const SCRIPT: Kind = Kind::Text {
    expected: "the path of a Lua file",
};
/// The value kind of `memory`.
pub(super) const MEMORY: Kind = Kind::Size {
    min: 1 << 20,
    max: 1 << 36,
    words: &[],
};
/// The value kind of `cpu_budget`.
pub(super) const CPU_BUDGET: Kind = Kind::Duration {
    min: Duration::from_millis(1),
    max: seconds(60),
    off: false,
};
/// The value kind of `request_timeout`.
pub(super) const REQUEST_TIMEOUT: Kind = Kind::Duration {
    min: Duration::from_millis(1),
    max: seconds(86_400),
    off: true,
};

/// The value kind of `files`.
pub(super) const FILES: Kind = Kind::Text {
    expected: "a folder",
};

pub(super) static APP: &[Directive] = &[
    Section::App.row(
        "name",
        Kind::Text {
            expected: "a name of letters, digits, \"-\" and \"_\"",
        },
        Default::Required,
        "The name used by routes and the log. Unique among apps.",
    ),
    Section::App.row(
        "script",
        SCRIPT,
        Default::Required,
        "The Lua file to run. Modules are loaded from its folder.",
    ),
    Section::App.row(
        "memory",
        MEMORY,
        Default::Toml("\"64MiB\""),
        "The memory of the script in one worker. Beyond it an allocation fails with an error, which ends the handler.",
    ),
    Section::App.row(
        "cpu_budget",
        CPU_BUDGET,
        Default::Toml("\"20ms\""),
        "The CPU time of a handler between two waits. Beyond it the handler is ended with an error, since all other connections of its worker wait meanwhile.",
    ),
    Section::App.row(
        "request_timeout",
        REQUEST_TIMEOUT,
        Default::Toml("\"1m\""),
        "The time limit of an HTTP handler until its answer, and between writes of a streamed answer. Beyond it the client gets 504, or the stream is aborted, and pending calls of the handler fail. It also applies to handlers that decide on commands of Centrifuge clients, which get error 100 then. `\"off\"` or `0`: no limit.",
    ),
    Section::App.row(
        "files",
        FILES,
        Default::Unset("no folder, and `veche.file` fails"),
        "The folder whose files the script may serve with `veche.file`; nothing outside of it is ever sent. Clients can request everything in it where they supply part of the path, so a folder that contains a file named by the configuration, such as the script, is refused.",
    ),
    Section::App.row(
        "options",
        Kind::Table,
        Default::Unset("an empty table"),
        "Options for the script, available as `veche.config`: any TOML, for example `{ greeting = \"hi\", rooms = [\"a\", \"b\"] }`. `veche config` prints them, so do not put secrets here.",
    ),
];
