//! The directives of `[events]`.

use super::row::{DefaultValue, Directive, Section, seconds};
use crate::value::DirectiveKind;

pub(super) static EVENTS: &[Directive] = &[
    Section::Events.row(
        "url",
        DirectiveKind::Text { expected: "a URL" },
        DefaultValue::Unset("no webhook is sent"),
        "The URL to which events are sent by `POST`, in batches of JSON, one batch at a time and in order. A batch is repeated until the back end accepts it with a status from 200 to 299, or rejects it with one from 400 to 499 other than 408, 425 and 429. `events` of each `[[namespace]]` selects the events.",
    ),
    Section::Events.row(
        "app",
        DirectiveKind::Text {
            expected: "the name of an [[app]]",
        },
        DefaultValue::Unset("no app receives events"),
        "The `name` of the `[[app]]`, in Lua, whose handler `events` receives the events, in addition to the back end, or instead of it if `url` is not set.",
    ),
    Section::Events.row(
        "secrets",
        DirectiveKind::Secrets,
        DefaultValue::Toml("[]"),
        "Secrets that sign each request, in `Veche-Signature: t=SECONDS,v1=HEX,v1=HEX`: HMAC-SHA256 of the seconds since 1970, a dot and the body. Each is written here as a string, as `{ file = \"FILE\" }` or as `{ env = \"NAME\" }`. With several secrets, one can be replaced without a gap. The server never shows them.",
    ),
    Section::Events.row(
        "timeout",
        DirectiveKind::Duration {
            min: std::time::Duration::from_millis(10),
            max: seconds(60),
            off: false,
        },
        DefaultValue::Toml("\"5s\""),
        "The time limit for the answer to a batch. A batch without an answer is repeated after half a second, then with doubled delays of at most half a minute.",
    ),
    Section::Events.row(
        "queue",
        DirectiveKind::Integer {
            min: 100,
            max: 10_000_000,
            words: &[],
        },
        DefaultValue::Toml("10000"),
        "The number of events that may wait while the back end does not accept any. Further ones are lost: the next batch states how many, and `veche_events_lost_total` counts them.",
    ),
    Section::Events.row(
        "ca",
        DirectiveKind::Text {
            expected: "the path of a PEM file",
        },
        DefaultValue::Unset("the system's authorities"),
        "CA certificates that verify the back end behind `https`.",
    ),
];
