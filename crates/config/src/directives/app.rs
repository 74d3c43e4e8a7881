//! The directives of `[[app]]`. Some of them also apply to services and to routes with their own
//! script.

use std::time::Duration;

use super::row::{DefaultValue, Directive, Section, seconds};
use crate::value::DirectiveKind;

/// The value kind of `script`.
pub(super) const SCRIPT: DirectiveKind = DirectiveKind::Text {
    expected: "the path of a Lua file",
};
/// The value kind of `memory`.
pub(super) const MEMORY: DirectiveKind = DirectiveKind::Size {
    min: 1 << 20,
    max: 1 << 36,
    words: &[],
};
/// The value kind of `cpu_budget`.
pub(super) const CPU_BUDGET: DirectiveKind = DirectiveKind::Duration {
    min: Duration::from_millis(1),
    max: seconds(60),
    off: false,
};
/// The value kind of `request_timeout`.
pub(super) const REQUEST_TIMEOUT: DirectiveKind = DirectiveKind::Duration {
    min: Duration::from_millis(1),
    max: seconds(86_400),
    off: true,
};

/// The value kind of time limits for events and processes.
const TIME: DirectiveKind = DirectiveKind::Duration {
    min: Duration::from_millis(1),
    max: seconds(86_400),
    off: false,
};

/// The kind of value of `files`.
pub(super) const FILES: DirectiveKind = DirectiveKind::Text {
    expected: "a folder",
};

pub(super) static APP: &[Directive] = &[
    Section::App.row(
        "name",
        DirectiveKind::Text {
            expected: "a name of letters, digits, \"-\" and \"_\"",
        },
        DefaultValue::Required,
        "The name used by routes and the log. Unique among apps.",
    ),
    Section::App.row(
        "runtime",
        DirectiveKind::Word {
            words: &["lua", "php", "worker", "fastcgi"],
            hidden: &[],
        },
        DefaultValue::Toml("\"lua\""),
        "What runs the application. `\"lua\"`: the server itself. `\"php\"`: PHP processes with the PHP SDK, which the server starts. `\"worker\"`: processes, which the server starts, of any other program that speaks the [runtime protocol](runtime-protocol.md). `\"fastcgi\"`: a FastCGI server such as php-fpm, which gets each event as a request ([the guide](../guide/php.md)). An app that changes its runtime needs another name, or a restart.",
    ),
    Section::App.row(
        "script",
        SCRIPT,
        DefaultValue::Unset("required with `runtime = \"lua\"` and `\"fastcgi\"`"),
        "The Lua file to run. Modules are loaded from its folder. With `runtime = \"fastcgi\"`: the whole path of the script as the FastCGI server sees it.",
    ),
    Section::App.row(
        "address",
        DirectiveKind::Text {
            expected: "\"unix:/PATH\" or \"HOST:PORT\"",
        },
        DefaultValue::Unset("required with `runtime = \"fastcgi\"`"),
        "The address of the FastCGI server, such as `\"unix:/run/php/php8.2-fpm.sock\"`.",
    ),
    Section::App.row(
        "events",
        DirectiveKind::List {
            expected: "events such as [\"open\", \"message\"]",
        },
        DefaultValue::Toml("[\"open\", \"message\", \"close\", \"request\"]"),
        "With `runtime = \"fastcgi\"`: the events of the [runtime protocol](runtime-protocol.md#events) that the script handles; `start` and `stop` are not available. Each costs a request, so leave out those without a handler.",
    ),
    Section::App.row(
        "idle_ttl",
        DirectiveKind::Duration {
            min: Duration::from_millis(1),
            max: seconds(3600),
            off: true,
        },
        DefaultValue::Toml("\"off\""),
        "With `runtime = \"php\"` and `\"worker\"`: the time without an event after which a process is replaced, which frees the memory it has accumulated. A process that has not had an event yet is kept. With `\"fastcgi\"`: how long a connection to the FastCGI server is kept for the next event. A kept connection occupies a process of php-fpm. Where the pool has a `pm.max_requests`, events are lost when such a process ends: set `pm.max_requests` to 0.",
    ),
    Section::App.row(
        "api_url",
        DirectiveKind::Text {
            expected: "a URL such as \"http://127.0.0.1:8081\"",
        },
        DefaultValue::Unset("the script has no client for the API"),
        "With `runtime = \"fastcgi\"`: the address of an internal listener, where the script calls the API.",
    ),
    Section::App.row(
        "api_key_file",
        DirectiveKind::Text {
            expected: "the path of a file",
        },
        DefaultValue::Unset("no key"),
        "With `runtime = \"fastcgi\"`: a file with the API key for the script.",
    ),
    Section::App.row(
        "command",
        DirectiveKind::List {
            expected: "a program and its arguments, such as [\"php\", \"app.php\"]",
        },
        DefaultValue::Unset("required with `runtime = \"php\"` and `\"worker\"`"),
        "The program of a process and its arguments, without a shell. It starts in the folder of the configuration and is not confined by the server's sandbox.",
    ),
    Section::App.row(
        "user",
        DirectiveKind::Text {
            expected: "the name or number of a user",
        },
        DefaultValue::Unset("the user of the server process"),
        "With `runtime = \"php\"` and `\"worker\"`: the user of the processes, where the server is started as root. Without supplementary groups.",
    ),
    Section::App.row(
        "group",
        DirectiveKind::Text {
            expected: "the name or number of a group",
        },
        DefaultValue::Unset("the user's primary group"),
        "With `runtime = \"php\"` and `\"worker\"`: the group of the processes; used together with `user`.",
    ),
    Section::App.row(
        "watch",
        DirectiveKind::List {
            expected: "files and folders such as [\"src\"]",
        },
        DefaultValue::Unset("the sources in the folder of the configuration: `.php`, `.py`, `.rb`, `.js`, `.mjs`, `.ts`"),
        "With `runtime = \"php\"` and `\"worker\"`: files and folders whose changes start new processes under `veche dev`. A folder includes everything below it.",
    ),
    Section::App.row(
        "workers",
        DirectiveKind::Integer {
            min: 1,
            max: 10_000,
            words: &[],
        },
        DefaultValue::Toml("2"),
        "With `runtime = \"php\"` and `\"worker\"`: the number of processes. Each handles one event at a time unless it announces a higher concurrency. With `\"fastcgi\"`: the maximum number of concurrent events; at most `pm.max_children` of the pool, less the processes that other programs need.",
    ),
    Section::App.row(
        "max_jobs",
        DirectiveKind::Integer {
            min: 0,
            max: 1 << 40,
            words: &[],
        },
        DefaultValue::Toml("0"),
        "The number of events after which a process is replaced. `0`: no limit. A process leaves when its successor is ready; at most a quarter of the processes are replaced at once.",
    ),
    Section::App.row(
        "ttl",
        DirectiveKind::Duration {
            min: seconds(1),
            max: seconds(31_536_000),
            off: true,
        },
        DefaultValue::Toml("\"off\""),
        "The age at which a process is replaced.",
    ),
    Section::App.row(
        "rss_max",
        DirectiveKind::Size {
            min: 1 << 20,
            max: 1 << 40,
            words: &["off"],
        },
        DefaultValue::Toml("\"256MiB\""),
        "The resident memory at which a process is replaced. `\"off\"`: no limit.",
    ),
    Section::App.row(
        "queue",
        DirectiveKind::Integer {
            min: 1,
            max: 1 << 20,
            words: &[],
        },
        DefaultValue::Toml("1024"),
        "The number of handshakes and requests that may wait for a process. Beyond it they get 503. Messages are not counted, since a connection whose message waits is not read.",
    ),
    Section::App.row(
        "queue_timeout",
        TIME,
        DefaultValue::Toml("\"5s\""),
        "The longest wait of an event for a process. Beyond it a handshake or request gets 503, and the connection of a message is closed with 1013. The event `close` waits without a limit.",
    ),
    Section::App.row(
        "event_timeout",
        TIME,
        DefaultValue::Toml("\"30s\""),
        "The time limit of an event. Beyond it the process is killed, and all events that it was handling fail: a connection is closed with 1011, a handshake or request gets 500.",
    ),
    Section::App.row(
        "start_timeout",
        TIME,
        DefaultValue::Toml("\"10s\""),
        "The time from the start of a process until it accepts events. Beyond it the process is killed, and another one starts after a growing delay.",
    ),
    Section::App.row(
        "stop_timeout",
        TIME,
        DefaultValue::Toml("\"10s\""),
        "The time that a process has to end after a request to stop, or after it has announced its end. Beyond it the process is killed.",
    ),
    Section::App.row(
        "memory",
        MEMORY,
        DefaultValue::Toml("\"64MiB\""),
        "The maximum memory of the script in one worker. If a handler needs more, its allocation fails with an error, which ends the handler.",
    ),
    Section::App.row(
        "cpu_budget",
        CPU_BUDGET,
        DefaultValue::Toml("\"20ms\""),
        "The CPU time of a handler between two waits. Beyond it the handler is ended with an error, since all other connections of its worker wait meanwhile.",
    ),
    Section::App.row(
        "request_timeout",
        REQUEST_TIMEOUT,
        DefaultValue::Toml("\"1m\""),
        "The time limit of an HTTP handler until its answer, and between writes of a streamed answer. Beyond it the client gets 504, or the stream is aborted, and pending calls of the handler fail. It also applies to handlers that decide on commands of Centrifuge clients, which get error 100 then. `\"off\"` or `0`: no limit.",
    ),
    Section::App.row(
        "files",
        FILES,
        DefaultValue::Unset("no folder, and `veche.file` fails"),
        "The folder whose files the script may serve with `veche.file`; nothing outside of it is ever sent. If clients supply part of the path, they can request everything in the folder, so a folder that contains a file named by the configuration, such as the script, is refused.",
    ),
    Section::App.row(
        "options",
        DirectiveKind::Table,
        DefaultValue::Unset("an empty table"),
        "Options for the script, available as `veche.config`: any TOML, for example `{ greeting = \"hi\", rooms = [\"a\", \"b\"] }`. `veche config` prints them, so do not put secrets here.",
    ),
];
