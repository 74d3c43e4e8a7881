//! The rows of `[hooks]`.

use std::time::Duration;

use super::identity::{CONCURRENCY, COUNT};
use super::row::{Default, Directive, Section, seconds};
use crate::value::Kind;

const URL: Kind = Kind::Text { expected: "a URL" };

const NAMES: Kind = Kind::List {
    expected: "names of headers such as [\"cookie\", \"authorization\"]",
};

pub(super) static HOOKS: &[Directive] = &[
    Section::Hooks.row(
        "connect",
        URL,
        Default::Unset("the route's `identity` says who clients are"),
        "Asked who a client is that connects without a token, and which channels it is given. Whoever is known by his handshake keeps his name.",
    ),
    Section::Hooks.row(
        "refresh",
        URL,
        Default::Unset("clients show a new token"),
        "Asked whether a connection may stay whose `expire_at` has come, which `connect` or a token has set; clients are not told of it then. If it can't say, it is asked again in a minute.",
    ),
    Section::Hooks.row(
        "subscribe",
        URL,
        Default::Unset("channels with `subscribe = \"hook\"` are a mistake, unless an app decides"),
        "Asked whether a client may hear a channel of a namespace with `subscribe = \"hook\"`. Whoever shows a subscription token on a route with `identity = \"jwt\"` needs no leave.",
    ),
    Section::Hooks.row(
        "sub_refresh",
        URL,
        Default::Unset("clients show a new token"),
        "Asked whether a subscription may go on whose `expire_at` has come, which `subscribe` has set, as `refresh` is for connections.",
    ),
    Section::Hooks.row(
        "publish",
        URL,
        Default::Unset("channels with `publish = \"hook\"` are a mistake, unless an app decides"),
        "Asked whether a client may publish to a channel of a namespace with `publish = \"hook\"`; it may change what is published.",
    ),
    Section::Hooks.row(
        "rpc",
        URL,
        Default::Unset("error 108"),
        "Asked what the `rpc` commands of clients give.",
    ),
    Section::Hooks.row(
        "timeout",
        Kind::Duration {
            min: Duration::from_millis(1),
            max: seconds(20),
            off: false,
        },
        Default::Toml("\"1s\""),
        "How long the back end may take; then the command gets error 100, which is temporary. SDKs themselves wait for 5 seconds.",
    ),
    Section::Hooks.row(
        "secrets",
        Kind::Secrets,
        Default::Toml("[]"),
        "With each of these requests are signed, as those of `[events]` are: `Veche-Signature: t=SECONDS,v1=HEX,v1=HEX`.",
    ),
    Section::Hooks.row(
        "headers",
        NAMES,
        Default::Toml("[\"cookie\", \"authorization\"]"),
        "The headers of the client's own request, its handshake, that the back end, and an app that decides, gets to see with each question.",
    ),
    Section::Hooks.row(
        "client_headers",
        NAMES,
        Default::Unset("none"),
        "Headers that a client may say in its connect command (`headers` of the SDKs), since a page can't set those of a WebSocket. What stands in the request itself counts. Never name one here that a proxy in front sets.",
    ),
    Section::Hooks.row("concurrency", COUNT, Default::Toml("32"), CONCURRENCY),
    Section::Hooks.row(
        "waiting",
        COUNT,
        Default::Toml("4096"),
        "The most questions of one kind that wait for an answer, those in the queue included; further commands get error 100 at once. One that has queued for 5 seconds, after which SDKs give up, gets error 100 too.",
    ),
    Section::Hooks.row(
        "failures",
        COUNT,
        Default::Toml("5"),
        "The back end is not asked about this kind of command for `pause`, and commands get error 100 at once, after this many failures within ten seconds if they outnumber the answers of that time. A failure is a refused or broken connection, 502 or 503. No answer within `timeout`, and 504, count once for each user, or address of clients without one. After the pause one question is tried.",
    ),
    Section::Hooks.row(
        "pause",
        Kind::Duration {
            min: Duration::from_millis(1),
            max: seconds(3_600),
            off: false,
        },
        Default::Toml("\"10s\""),
        "See `failures`.",
    ),
    Section::Hooks.row(
        "ca",
        Kind::Text {
            expected: "the path of a PEM file",
        },
        Default::Unset("the system's authorities"),
        "Certificates of the authorities that vouch for the back end behind `https`.",
    ),
];
