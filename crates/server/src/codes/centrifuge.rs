//! The lines of the page that are about clients of Centrifugo's protocol.

use veche_types::codes::{DisconnectCode, ErrorCode};

use super::row::{CodeEntry, row};

const PROTOCOL: &str = "veche_protocol_errors_total";
const TOKENS: &str = "veche_tokens_refused_total";

const fn close(
    code: DisconnectCode,
    when: &'static str,
    settings: &'static [&'static str],
    metric: &'static str,
) -> CodeEntry {
    row(code.code(), code.text(), when, settings, metric)
}

const fn error(
    code: ErrorCode,
    when: &'static str,
    settings: &'static [&'static str],
    metric: &'static str,
) -> CodeEntry {
    row(code.code() as u16, code.text(), when, settings, metric)
}

/// Closes of routes with `handler = "centrifuge"`, instead of others that mean the same.
pub(super) const CLOSES: &[CodeEntry] = &[
    close(
        DisconnectCode::ConnectionClosed,
        "closed without advice; come back",
        &[],
        "",
    ),
    close(
        DisconnectCode::Shutdown,
        "the server stops, or another process has taken over: instead of 1001 and 1012; come back",
        &["limits.drain_time"],
        "",
    ),
    close(
        DisconnectCode::Internal,
        "the channels that the server gives the client have no room on this worker; come back",
        &[],
        "",
    ),
    close(
        DisconnectCode::Expired,
        "the token has expired, or its `expire_at` is over, and 25 s later no other has come, or a client without an SDK brings one that is over, or the hook's answer with `expire_at` is over; come back with a new one",
        &["route.identity", "jwt.leeway"],
        "veche_tokens_expired_total",
    ),
    close(
        DisconnectCode::SubscriptionExpired,
        "the time of a subscription that a back end has made is over; come back",
        &[],
        "",
    ),
    close(
        DisconnectCode::Slow,
        "it does not read what it is sent: instead of 1013; come back",
        &["limits.outbox_bytes"],
        "veche_slow_consumers_total",
    ),
    close(
        DisconnectCode::InsufficientState,
        "a back end wants more than 64 things of the client while a command of it waits, or a new token names other channels; come back",
        &[],
        "",
    ),
    close(
        DisconnectCode::NoPong,
        "no answer to a ping within 8 s, or within `pong_timeout` where that is shorter; come back",
        &["limits.ping_interval", "limits.pong_timeout"],
        "veche_silent_closed_total",
    ),
    close(
        DisconnectCode::TooManyRequests,
        "the client says more than it may: instead of 1008; come back",
        &["route.message_rate", "route.byte_rate", "route.over_rate"],
        "veche_outpaced_total",
    ),
    close(
        DisconnectCode::InvalidToken,
        "the token of a connect or refresh command does not hold, is another user's, is for a channel, or has a claim that can't be honoured; or a client without an SDK has none",
        &["route.identity"],
        TOKENS,
    ),
    close(
        DisconnectCode::BadRequest,
        "what came is no command, or the first one is not connect, or a later one is, or a client without an SDK begins with no connect request; the log says more",
        &[],
        PROTOCOL,
    ),
    close(
        DisconnectCode::Stale,
        "no good connect command within 10 s",
        &[],
        "",
    ),
    close(
        DisconnectCode::ConnectionLimit,
        "the user has as many connections as he may have",
        &["limits.connections_per_user"],
        "veche_turned_away_total",
    ),
    close(
        DisconnectCode::ChannelLimit,
        "its token or the back end gives the connection more channels than one may have, together with its user's own and `subs` of a client without an SDK",
        &["limits.channels_per_client"],
        "",
    ),
    close(
        DisconnectCode::PermissionDenied,
        "the user is blocked",
        &["api.blocks"],
        "",
    ),
    close(
        DisconnectCode::NotAvailable,
        "a `send` command, and nobody listens",
        &[],
        "",
    ),
];

/// Errors of commands there.
pub(super) const ERRORS: &[CodeEntry] = &[
    error(
        ErrorCode::Internal,
        "the server is short of memory, has no keys to check a token with, or does not hear from the back end that decides; worth another try",
        &[
            "limits.memory_limit",
            "hooks.timeout",
            "hooks.waiting",
            "hooks.failures",
        ],
        "",
    ),
    error(
        ErrorCode::Unauthorized,
        "the route wants a token, and none has come",
        &["route.identity", "route.anonymous"],
        "",
    ),
    error(
        ErrorCode::UnknownChannel,
        "a name that is empty or has control characters; or one of a namespace that does not exist",
        &["limits.unknown_namespace"],
        "",
    ),
    error(
        ErrorCode::PermissionDenied,
        "the namespace does not let clients subscribe or publish, or not this one, or not without a token or the back end's word; history and presence are for subscribers",
        &["namespace.subscribe", "namespace.publish"],
        "",
    ),
    error(
        ErrorCode::AlreadySubscribed,
        "by the client or, its own channel, by the server",
        &[],
        "",
    ),
    error(
        ErrorCode::LimitExceeded,
        "more channels of one connection than it may have; a history of more publications than one answer has, which the words say; a presence of more than 10,000",
        &["limits.channels_per_client", "limits.history_answer_max"],
        "",
    ),
    error(
        ErrorCode::BadRequest,
        "nothing to publish, no token to refresh with, or a name of a channel that is too long",
        &["limits.channel_name_bytes_max"],
        "",
    ),
    error(
        ErrorCode::NotAvailable,
        "the channel keeps no history or no presence, which comes before 103; there is no token to refresh; `rpc`, and nobody is asked; what the server does not do",
        &["namespace.history_size", "namespace.presence", "hooks.rpc"],
        "",
    ),
    error(
        ErrorCode::TokenExpired,
        "SDKs get another one and try again",
        &["jwt.leeway"],
        TOKENS,
    ),
    error(
        ErrorCode::Expired,
        "a token to refresh a subscription with that has expired itself; so has what the back end has granted, or the token's `expire_at`",
        &["jwt.leeway"],
        TOKENS,
    ),
    error(
        ErrorCode::UnrecoverablePosition,
        "history since a position of another epoch",
        &["namespace.position_ttl"],
        "",
    ),
];
