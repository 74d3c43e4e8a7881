//! The directives of `[access_log]`.

use super::row::{DefaultValue, Directive, KEEP, ROTATE, Section};
use crate::value::DirectiveKind;

pub(super) static ACCESS_LOG: &[Directive] = &[
    Section::AccessLog.row(
        "file",
        DirectiveKind::Text {
            expected: "the path of a file",
        },
        DefaultValue::Unset("no access log is written"),
        "The file to append to. Its folder has to exist. SIGUSR1 reopens it.",
    ),
    Section::AccessLog.row(
        "format",
        DirectiveKind::Text {
            expected: "\"text\", \"json\" or a template with $fields",
        },
        DefaultValue::Toml("\"text\""),
        "The format of a line: `\"text\"`, which begins like the combined format of nginx and Apache, `\"json\"`, one object per line, or a template such as `\"$time_iso8601 $remote_addr $uri $status\"` with [these fields](access-log.md). No format contains the query, which may carry tokens.",
    ),
    Section::AccessLog.row(
        "sample",
        DirectiveKind::Share,
        DefaultValue::Toml("1.0"),
        "The fraction of requests and sessions that is written, above 0 and at most 1. Each is selected at random when it begins.",
    ),
    Section::AccessLog.row(
        "internal",
        DirectiveKind::Flag { words: &[] },
        DefaultValue::Toml("false"),
        "Whether requests on internal listeners are written too: pushes of the back end, health checks, scrapes.",
    ),
    Section::AccessLog.row(
        "rotate",
        ROTATE,
        DefaultValue::Unset("the file grows"),
        "The size at which a new file is begun, as `log_rotate` of `[server]` does for the log.",
    ),
    Section::AccessLog.row(
        "keep",
        KEEP,
        DefaultValue::Toml("8"),
        "The number of old files that `rotate` keeps.",
    ),
];
