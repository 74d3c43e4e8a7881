//! `[[database]]`.

use std::time::Duration;

use super::row::{DefaultValue, Directive, Section};
use crate::value::DirectiveKind;

const TIME: DirectiveKind = DirectiveKind::Duration {
    min: Duration::from_millis(1),
    max: Duration::from_secs(86_400),
    off: false,
};

pub(super) static DATABASE: &[Directive] = &[
    Section::Database.row(
        "name",
        DirectiveKind::Text {
            expected: "a name such as \"shop\"",
        },
        DefaultValue::Unset("required"),
        "The name by which applications use the database.",
    ),
    Section::Database.row(
        "url",
        DirectiveKind::Text {
            expected: "a URL such as \"mysql://user@127.0.0.1/shop\"",
        },
        DefaultValue::Unset("required"),
        "`mysql://USER:PASSWORD@HOST:PORT/DATABASE` for MySQL and MariaDB, `redis://USER:PASSWORD@HOST:PORT/NUMBER` for Redis; `mysqls://` and `rediss://` for TLS, with `?ca=FILE` for the certificate of a private authority. All but the host can be omitted.",
    ),
    Section::Database.row(
        "password_file",
        DirectiveKind::Text {
            expected: "the path of a file",
        },
        DefaultValue::Unset("the password in `url`, if any"),
        "A file with the password.",
    ),
    Section::Database.row(
        "pool",
        DirectiveKind::Integer {
            min: 1,
            max: 10_000,
            words: &[],
        },
        DefaultValue::Toml("10"),
        "The maximum number of connections. For MySQL it limits all connections; for Redis only those for blocking commands, because all other commands share one connection.",
    ),
    Section::Database.row(
        "timeout",
        TIME,
        DefaultValue::Toml("\"30s\""),
        "The time limit of a statement or command.",
    ),
    Section::Database.row(
        "wait_timeout",
        TIME,
        DefaultValue::Toml("\"10s\""),
        "The longest wait for a connection of the pool. Beyond it the call fails with `pool_full`.",
    ),
    Section::Database.row(
        "idle_timeout",
        TIME,
        DefaultValue::Toml("\"5m\""),
        "The time without a call after which a connection is closed.",
    ),
    Section::Database.row(
        "rows_max",
        DirectiveKind::Integer {
            min: 1,
            max: 1_000_000,
            words: &[],
        },
        DefaultValue::Toml("10000"),
        "The maximum number of rows of a MySQL result. A statement that returns more fails.",
    ),
    Section::Database.row(
        "bytes_max",
        DirectiveKind::Size {
            min: 1,
            max: 16 << 20,
            words: &[],
        },
        DefaultValue::Toml("\"16MiB\""),
        "The maximum size of a MySQL result. A statement that returns more fails.",
    ),
];
