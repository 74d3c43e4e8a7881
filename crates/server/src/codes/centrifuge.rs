//! The lines of the page that are about clients of Centrifugo's protocol.

use super::{Row, row};

const PROTOCOL: &str = "veche_protocol_errors_total";
const TOKENS: &str = "veche_tokens_refused_total";

/// Closes of routes with `handler = "centrifuge"`, instead of others that mean the same.
pub(super) const CLOSES: &[Row] = &[
    row(
        3000,
        "connection closed",
        "closed without advice; come back",
        &[],
        "",
    ),
    row(
        3001,
        "shutdown",
        "the server stops, or another process has taken over: instead of 1001 and 1012; come back",
        &["limits.drain_time"],
        "",
    ),
    row(
        3004,
        "internal server error",
        "the channels that the server gives the client have no room on this worker; come back",
        &[],
        "",
    ),
    row(
        3005,
        "connection expired",
        "the token has expired, or its `expire_at` is over, and 25 s later no other has come, or a client without an SDK brings one that is over, or the hook's answer with `expire_at` is over; come back with a new one",
        &["route.identity", "jwt.leeway"],
        "veche_tokens_expired_total",
    ),
    row(
        3006,
        "subscription expired",
        "the time of a subscription that a back end has made is over; come back",
        &[],
        "",
    ),
    row(
        3008,
        "slow",
        "it does not read what it is sent: instead of 1013; come back",
        &["limits.outbox_bytes"],
        "veche_slow_consumers_total",
    ),
    row(
        3010,
        "insufficient state",
        "a back end wants more than 64 things of the client while a command of it waits, or a new token names other channels; come back",
        &[],
        "",
    ),
    row(
        3012,
        "no pong",
        "no answer to a ping within 8 s, or within `pong_timeout` where that is shorter; come back",
        &["limits.ping_interval", "limits.pong_timeout"],
        "veche_silent_closed_total",
    ),
    row(
        3013,
        "too many requests",
        "the client says more than it may: instead of 1008; come back",
        &["route.message_rate", "route.byte_rate", "route.over_rate"],
        "veche_outpaced_total",
    ),
    row(
        3500,
        "invalid token",
        "the token of a connect or refresh command does not hold, is another user's, is for a channel, or has a claim that can't be honoured; or a client without an SDK has none",
        &["route.identity"],
        TOKENS,
    ),
    row(
        3501,
        "bad request",
        "what came is no command, or the first one is not connect, or a later one is, or a client without an SDK begins with no connect request; the log says more",
        &[],
        PROTOCOL,
    ),
    row(
        3502,
        "stale",
        "no good connect command within 10 s",
        &[],
        "",
    ),
    row(
        3504,
        "connection limit",
        "the user has as many connections as he may have",
        &["limits.connections_per_user"],
        "veche_turned_away_total",
    ),
    row(
        3505,
        "channel limit",
        "its token or the back end gives the connection more channels than one may have, together with its user's own and `subs` of a client without an SDK",
        &["limits.channels_per_client"],
        "",
    ),
    row(
        3507,
        "permission denied",
        "the user is blocked",
        &["api.blocks"],
        "",
    ),
    row(
        3508,
        "not available",
        "a `send` command, and nobody listens",
        &[],
        "",
    ),
];

/// Errors of commands there.
pub(super) const ERRORS: &[Row] = &[
    row(
        100,
        "internal server error",
        "the server is short of memory, has no keys to check a token with, or does not hear from the back end that decides; worth another try",
        &[
            "limits.memory_limit",
            "hooks.timeout",
            "hooks.waiting",
            "hooks.failures",
        ],
        "",
    ),
    row(
        101,
        "unauthorized",
        "the route wants a token, and none has come",
        &["route.identity", "route.anonymous"],
        "",
    ),
    row(
        102,
        "unknown channel",
        "a name that is empty or has control characters; or one of a namespace that does not exist",
        &["limits.unknown_namespace"],
        "",
    ),
    row(
        103,
        "permission denied",
        "the namespace does not let clients subscribe or publish, or not this one, or not without a token or the back end's word; history and presence are for subscribers",
        &["namespace.subscribe", "namespace.publish"],
        "",
    ),
    row(
        105,
        "already subscribed",
        "by the client or, its own channel, by the server",
        &[],
        "",
    ),
    row(
        106,
        "limit exceeded",
        "more channels of one connection than it may have; a history of more publications than one answer has, which the words say; a presence of more than 10,000",
        &["limits.channels_per_client", "limits.history_answer_max"],
        "",
    ),
    row(
        107,
        "bad request",
        "nothing to publish, no token to refresh with, or a name of a channel that is too long",
        &["limits.channel_name_bytes_max"],
        "",
    ),
    row(
        108,
        "not available",
        "the channel keeps no history or no presence, which comes before 103; there is no token to refresh; `rpc`, and nobody is asked; what the server does not do",
        &["namespace.history_size", "namespace.presence", "hooks.rpc"],
        "",
    ),
    row(
        109,
        "token expired",
        "SDKs get another one and try again",
        &["jwt.leeway"],
        TOKENS,
    ),
    row(
        110,
        "expired",
        "a token to refresh a subscription with that has expired itself; so has what the back end has granted, or the token's `expire_at`",
        &["jwt.leeway"],
        TOKENS,
    ),
    row(
        112,
        "unrecoverable position",
        "history since a position of another epoch",
        &["namespace.position_ttl"],
        "",
    ),
];
