//! The rows of `[events]`.

use super::row::{Default, Directive, Section, seconds};
use crate::value::Kind;

pub(super) static EVENTS: &[Directive] = &[
    Section::Events.row(
        "url",
        Kind::Text { expected: "a URL" },
        Default::Unset("nobody is told"),
        "Where the back end takes events: batches of JSON by `POST`, one at a time and in order, each sent again until it is answered with 200 to 299. Which events there are, `events` of each `[[namespace]]` says.",
    ),
    Section::Events.row(
        "app",
        Kind::Text {
            expected: "the name of an [[app]]",
        },
        Default::Unset("no app is told"),
        "The `name` of the `[[app]]` whose handler `events` is told the same, beside the back end or without one.",
    ),
    Section::Events.row(
        "secrets",
        Kind::Secrets,
        Default::Toml("[]"),
        "With each of these requests are signed, in `Veche-Signature: t=SECONDS,v1=HEX,v1=HEX`: HMAC-SHA256 of the seconds since 1970, a dot and the body. Written here, or as `{ file = \"FILE\" }`, or as `{ env = \"NAME\" }`. Several are for the time of a change. Never shown.",
    ),
    Section::Events.row(
        "timeout",
        Kind::Duration {
            min: std::time::Duration::from_millis(10),
            max: seconds(60),
            off: false,
        },
        Default::Toml("\"5s\""),
        "How long the back end may take for a batch; then it is sent again, after half a second at first, and at most half a minute.",
    ),
    Section::Events.row(
        "queue",
        Kind::Integer {
            min: 100,
            max: 10_000_000,
            words: &[],
        },
        Default::Toml("10000"),
        "Events that may wait while the back end does not take any. Beyond that they are lost: the next batch says how many, and so does `veche_events_lost_total`.",
    ),
    Section::Events.row(
        "ca",
        Kind::Text {
            expected: "the path of a PEM file",
        },
        Default::Unset("the system's authorities"),
        "Certificates of the authorities that vouch for the back end behind `https`.",
    ),
];
