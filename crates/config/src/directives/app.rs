//! The rows of `[[app]]`, and what a service and a route that names its script by itself take over from them.

use std::time::Duration;

use super::row::{Default, Directive, Section, seconds};
use crate::value::Kind;

/// What `script` is made of.
pub(super) const SCRIPT: Kind = Kind::Text {
    expected: "the path of a Lua file",
};
/// What `memory` is made of.
pub(super) const MEMORY: Kind = Kind::Size {
    min: 1 << 20,
    max: 1 << 36,
    words: &[],
};
/// What `cpu_budget` is made of.
pub(super) const CPU_BUDGET: Kind = Kind::Duration {
    min: Duration::from_millis(1),
    max: seconds(60),
    off: false,
};
/// What `request_timeout` is made of.
pub(super) const REQUEST_TIMEOUT: Kind = Kind::Duration {
    min: Duration::from_millis(1),
    max: seconds(86_400),
    off: true,
};

/// What `files` is made of.
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
        "What routes and the log call it. Unlike the names of other apps.",
    ),
    Section::App.row(
        "script",
        SCRIPT,
        Default::Required,
        "The Lua file that is run. What it `require`s is looked for in its folder.",
    ),
    Section::App.row(
        "memory",
        MEMORY,
        Default::Toml("\"64MiB\""),
        "What the script may allocate in one worker. Beyond it an allocation fails with an error, which ends the handler that asked for it.",
    ),
    Section::App.row(
        "cpu_budget",
        CPU_BUDGET,
        Default::Toml("\"20ms\""),
        "Time on the processor that a handler may use between two waits. Beyond it the handler is ended with an error, since all other connections of its worker wait meanwhile.",
    ),
    Section::App.row(
        "request_timeout",
        REQUEST_TIMEOUT,
        Default::Toml("\"1m\""),
        "How long an HTTP handler may take to answer, and from one write to the next where it answers in parts. Beyond it the client gets 504, or a response that breaks off, and what the handler waits for fails. The same goes for handlers that decide on what Centrifuge clients ask, which get error 100 then. `\"off\"` or `0`: as long as it likes.",
    ),
    Section::App.row(
        "files",
        FILES,
        Default::Unset("no folder, and `veche.file` fails"),
        "The folder whose files the script may answer with, by `veche.file`; nothing outside of it ever is sent. Whatever is in it can be asked for where a client has a part in the path, so it is refused if something lies in it that the configuration names, such as the script.",
    ),
    Section::App.row(
        "options",
        Kind::Table,
        Default::Unset("an empty table"),
        "Whatever the script wants to know, as `veche.config` there: any TOML, for example `{ greeting = \"hi\", rooms = [\"a\", \"b\"] }`. `veche config` shows it, so it is no place for secrets.",
    ),
];
