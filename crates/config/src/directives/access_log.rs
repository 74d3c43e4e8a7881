//! The rows of `[access_log]`.

use super::{Change, Default, Directive, KEEP, ROTATE, Section};
use crate::value::Kind;

pub(super) static ACCESS_LOG: &[Directive] = &[
    row(
        "file",
        Kind::Text {
            expected: "the path of a file",
        },
        Default::Unset("there is no access log"),
        "The file that lines are appended to. Its folder has to exist. On SIGUSR1 it is opened anew.",
    ),
    row(
        "format",
        Kind::Text {
            expected: "\"text\", \"json\" or a template with $fields",
        },
        Default::Toml("\"text\""),
        "How a line looks: `\"text\"`, which begins as nginx's and Apache's combined format, `\"json\"`, an object a line, or a template such as `\"$time_iso8601 $remote_addr $uri $status\"`, with [these fields](access-log.md). Queries are in none of them, since tokens travel there.",
    ),
    row(
        "sample",
        Kind::Share,
        Default::Toml("1.0"),
        "The part of all requests and sessions that is written, above 0 and at most 1; chosen by lot when they begin.",
    ),
    row(
        "internal",
        Kind::Flag { words: &[] },
        Default::Toml("false"),
        "Whether the requests on internal listeners are written too: pushes of the back end, health checks, scrapes.",
    ),
    row(
        "rotate",
        ROTATE,
        Default::Unset("the file grows"),
        "As `log_rotate` of `[server]`.",
    ),
    row(
        "keep",
        KEEP,
        Default::Toml("8"),
        "How many old files `rotate` leaves.",
    ),
];

const fn row(name: &'static str, kind: Kind, default: Default, doc: &'static str) -> Directive {
    Directive {
        section: Section::AccessLog,
        name,
        kind,
        default,
        handlers: &[],
        change: Change::Reload,
        doc,
    }
}
