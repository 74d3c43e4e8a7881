//! The rows of `[history]`.

use super::row::{Default, Directive, Section, seconds};
use crate::value::Kind;

pub(super) static HISTORY: &[Directive] = &[
    Section::History.row(
        "path",
        Kind::Text {
            expected: "the path of a folder",
        },
        Default::Unset("what channels remember ends with the server process"),
        "The folder in which what channels remember is kept, so that a restart and `kill -9` lose none of it; made if its own folder is there. For the server's user only, and for one server at a time. Publications of channels that remember are given to subscribers, and answered, when they are written. `veche upgrade` and `veche restart` are refused while it is set: that takes a stop and a start.",
    )
    .at_restart(),
    Section::History.row(
        "fsync",
        Kind::Every {
            min: std::time::Duration::from_millis(10),
            max: seconds(3_600),
            words: &["commit", "never"],
        },
        Default::Toml("\"1s\""),
        "When the disk itself has to have what was written; until then the operating system has it. A process that is killed loses nothing either way. `\"commit\"`: before each publication is handed out, which costs milliseconds; a power cut loses nothing. A time: so often; a power cut may lose that much. `\"never\"`: when the system likes.",
    )
    .at_restart(),
];
