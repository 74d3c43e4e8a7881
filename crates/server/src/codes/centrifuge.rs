//! The rows of the reference page of codes for Centrifugo's protocol, one for each close or error code.

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

/// Disconnects on routes with `handler = "centrifuge"`; some replace a WebSocket close code of the same meaning.
pub(super) const CLOSES: &[CodeEntry] = &[
    close(
        DisconnectCode::ConnectionClosed,
        "the connection closed for no specific reason; reconnect",
        &[],
        "",
    ),
    close(
        DisconnectCode::Shutdown,
        "the server is shutting down or a new process has taken over (replaces 1001 and 1012); reconnect",
        &["limits.drain_time"],
        "",
    ),
    close(
        DisconnectCode::Internal,
        "the worker has no capacity for the client's server-side subscriptions; reconnect",
        &[],
        "",
    ),
    close(
        DisconnectCode::Expired,
        "the `exp` or `expire_at` of the token has passed and the client did not refresh the token within 25 s, a client without an SDK sent an expired token to connect, or the `expire_at` of the hook's response has passed. The client has to reconnect with a new token",
        &["route.identity", "jwt.leeway"],
        "veche_tokens_expired_total",
    ),
    close(
        DisconnectCode::SubscriptionExpired,
        "a server-side subscription made by the back end expired; reconnect",
        &[],
        "",
    ),
    close(
        DisconnectCode::Slow,
        "the client reads too slowly (replaces 1013); reconnect",
        &["limits.outbox_bytes"],
        "veche_slow_consumers_total",
    ),
    close(
        DisconnectCode::InsufficientState,
        "the back end sent more than 64 commands for the client while one of the client's commands was pending, or a new token lists other channels; reconnect",
        &[],
        "",
    ),
    close(
        DisconnectCode::NoPong,
        "no pong within 8 s, or within `pong_timeout` if that is shorter; reconnect",
        &["limits.ping_interval", "limits.pong_timeout"],
        "veche_silent_closed_total",
    ),
    close(
        DisconnectCode::TooManyRequests,
        "the client exceeded its rate limit (replaces 1008); reconnect",
        &["route.message_rate", "route.byte_rate", "route.over_rate"],
        "veche_outpaced_total",
    ),
    close(
        DisconnectCode::InvalidToken,
        "the token of a connect or refresh command is invalid, belongs to another user, is a subscription token, or has an unsupported claim; or a client without an SDK has no token",
        &["route.identity"],
        TOKENS,
    ),
    close(
        DisconnectCode::BadRequest,
        "a malformed command; a first command other than connect; a second connect command; or a client without an SDK that doesn't start with a connect request; the log has the details",
        &[],
        PROTOCOL,
    ),
    close(
        DisconnectCode::Stale,
        "no successful connect command within 10 s",
        &[],
        "",
    ),
    close(
        DisconnectCode::ConnectionLimit,
        "the user's connection limit is reached",
        &["limits.connections_per_user"],
        "veche_turned_away_total",
    ),
    close(
        DisconnectCode::ChannelLimit,
        "the channels from the token or the back end, the user's personal channel and `subs` of a client without an SDK together exceed the channel limit",
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
        "a `send` command, and no handler for it exists",
        &[],
        "",
    ),
];

/// Error replies to commands.
pub(super) const ERRORS: &[CodeEntry] = &[
    error(
        ErrorCode::Internal,
        "the server is short of memory, has no keys to verify a token with, or got no response from the authorization hook; retry later",
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
        "the route requires a token and the client sent none",
        &["route.identity", "route.anonymous"],
        "",
    ),
    error(
        ErrorCode::UnknownChannel,
        "the channel name is empty or contains control characters, or its namespace doesn't exist",
        &["limits.unknown_namespace"],
        "",
    ),
    error(
        ErrorCode::PermissionDenied,
        "the namespace doesn't allow clients, or this client, to subscribe or publish, or requires a subscription token or the back end's consent; history and presence require a subscription",
        &["namespace.subscribe", "namespace.publish"],
        "",
    ),
    error(
        ErrorCode::AlreadySubscribed,
        "the client is already subscribed, or the server subscribed it (its personal channel)",
        &[],
        "",
    ),
    error(
        ErrorCode::LimitExceeded,
        "more channels than one connection may have; a history request for more publications than one reply holds (the message gives the limit); presence of more than 10,000 members",
        &["limits.channels_per_client", "limits.history_answer_max"],
        "",
    ),
    error(
        ErrorCode::BadRequest,
        "the command has no data to publish, no token to refresh with, or a channel name over the length limit",
        &["limits.channel_name_bytes_max"],
        "",
    ),
    error(
        ErrorCode::NotAvailable,
        "the channel has no history or no presence (checked before 103); the connection has no token to refresh; `rpc` has no handler; or the command is not supported",
        &["namespace.history_size", "namespace.presence", "hooks.rpc"],
        "",
    ),
    error(
        ErrorCode::TokenExpired,
        "the token expired; SDKs request a new one and retry",
        &["jwt.leeway"],
        TOKENS,
    ),
    error(
        ErrorCode::Expired,
        "the token of a subscription refresh has expired, or the `expire_at` of the back end's grant or of the token has passed",
        &["jwt.leeway"],
        TOKENS,
    ),
    error(
        ErrorCode::UnrecoverablePosition,
        "a request for history since a position of another epoch",
        &["namespace.position_ttl"],
        "",
    ),
];
