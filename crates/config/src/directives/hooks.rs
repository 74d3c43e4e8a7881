//! The directives of `[hooks]`.

use std::time::Duration;

use super::identity::{CONCURRENCY, COUNT};
use super::row::{DefaultValue, Directive, Section, seconds};
use crate::value::DirectiveKind;

const URL: DirectiveKind = DirectiveKind::Text { expected: "a URL" };

const NAMES: DirectiveKind = DirectiveKind::List {
    expected: "names of headers such as [\"cookie\", \"authorization\"]",
};

pub(super) static HOOKS: &[Directive] = &[
    Section::Hooks.row(
        "connect",
        URL,
        DefaultValue::Unset("`identity` of the route determines users"),
        "The URL that decides on connections without a token and gives them channels. A client identified by its handshake keeps its user.",
    ),
    Section::Hooks.row(
        "refresh",
        URL,
        DefaultValue::Unset("the client sends a new token"),
        "The URL that extends a connection whose `expire_at` has passed, without involving the client. If the request fails, it is repeated after a minute.",
    ),
    Section::Hooks.row(
        "subscribe",
        URL,
        DefaultValue::Unset("then a namespace with `subscribe = \"hook\"` requires an app that makes the decision"),
        "The URL that decides on subscriptions in namespaces with `subscribe = \"hook\"`. A subscription token on a route with `identity = \"jwt\"` needs no decision.",
    ),
    Section::Hooks.row(
        "sub_refresh",
        URL,
        DefaultValue::Unset("the client sends a new token"),
        "The URL that extends a subscription whose `expire_at` has passed, as `refresh` does for connections.",
    ),
    Section::Hooks.row(
        "publish",
        URL,
        DefaultValue::Unset("then a namespace with `publish = \"hook\"` requires an app that makes the decision"),
        "The URL that decides on publications in namespaces with `publish = \"hook\"`; it may replace their data.",
    ),
    Section::Hooks.row(
        "rpc",
        URL,
        DefaultValue::Unset("error 108"),
        "The URL that answers `rpc` commands.",
    ),
    Section::Hooks.row(
        "timeout",
        DirectiveKind::Duration {
            min: Duration::from_millis(1),
            max: seconds(20),
            off: false,
        },
        DefaultValue::Toml("\"1s\""),
        "The time limit of a request to the back end. If it passes, the command gets error 100, which is temporary. SDKs wait for 5 seconds.",
    ),
    Section::Hooks.row(
        "secrets",
        DirectiveKind::Secrets,
        DefaultValue::Toml("[]"),
        "Secrets that sign each request, as those of `[events]` do: `Veche-Signature: t=SECONDS,v1=HEX,v1=HEX`.",
    ),
    Section::Hooks.row(
        "headers",
        NAMES,
        DefaultValue::Toml("[\"cookie\", \"authorization\"]"),
        "The headers of the client's handshake that are passed to the back end, and to an app that decides, with each request.",
    ),
    Section::Hooks.row(
        "client_headers",
        NAMES,
        DefaultValue::Unset("none"),
        "Headers that a client may send in its connect command (`headers` of the SDKs), since pages cannot set those of a WebSocket. Headers of the request itself take precedence. Never list a header that a proxy in front sets.",
    ),
    Section::Hooks.row("concurrency", COUNT, DefaultValue::Toml("32"), CONCURRENCY),
    Section::Hooks.row(
        "waiting",
        COUNT,
        DefaultValue::Toml("4096"),
        "The maximum number of running and queued requests of one kind; further commands get error 100 at once. A request that has queued for 5 seconds, after which SDKs give up, gets error 100 too.",
    ),
    Section::Hooks.row(
        "failures",
        COUNT,
        DefaultValue::Toml("5"),
        "No requests of this kind are sent for the time of `pause` if there were this many failures within ten seconds, and more failures than answers. Meanwhile commands get error 100 at once. A failure is a connection that was refused, broken or not open in time, or a response with status 502 or 503. A response that is not complete in time and status 504 also count, but only once per user, or once per address for clients without a user. After the pause a single request tests whether the back end answers again.",
    ),
    Section::Hooks.row(
        "pause",
        DirectiveKind::Duration {
            min: Duration::from_millis(1),
            max: seconds(3_600),
            off: false,
        },
        DefaultValue::Toml("\"10s\""),
        "How long requests are suspended after the number of failures set by `failures`.",
    ),
    Section::Hooks.row(
        "ca",
        DirectiveKind::Text {
            expected: "the path of a PEM file",
        },
        DefaultValue::Unset("the system's authorities"),
        "CA certificates that verify the back end behind `https`.",
    ),
];
