//! The directives of `[history]`.

use super::row::{DefaultValue, Directive, Section, seconds};
use crate::value::DirectiveKind;

pub(super) static HISTORY: &[Directive] = &[
    Section::History.row(
        "path",
        DirectiveKind::Text {
            expected: "the path of a folder",
        },
        DefaultValue::Unset("history ends with the server process"),
        "The folder that stores history, so that a restart and `kill -9` lose none of it; created if its parent exists. Accessible to the server's user only, and to one server at a time. Publications with history are delivered and acknowledged when they are written. `veche upgrade` and `veche restart` are refused while it is set; stop and start the server instead.",
    )
    .at_restart(),
    Section::History.row(
        "fsync",
        DirectiveKind::Every {
            min: std::time::Duration::from_millis(10),
            max: seconds(3_600),
            words: &["commit", "never"],
        },
        DefaultValue::Toml("\"1s\""),
        "When written data is synced to the disk. A killed process loses nothing in any case, because the operating system has the data; a power cut loses what was not synced. `\"commit\"`: before each publication is delivered, which costs milliseconds, so a power cut loses nothing. A time: at this interval, so a power cut may lose the publications of the last interval. `\"never\"`: when the operating system decides.",
    )
    .at_restart(),
];
