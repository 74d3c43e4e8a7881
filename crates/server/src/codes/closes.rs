//! Rows of the reference page about closed WebSockets.

use veche_types::codes::CloseCode;

use super::row::{CodeEntry, row};

const BROKEN: &str = "veche_protocol_errors_total";
const TURNED_AWAY: &str = "veche_turned_away_total";

/// Close codes of WebSockets, as clients receive them.
pub(super) const CLOSES: &[CodeEntry] = &[
    row(
        CloseCode::GoingAway.code(),
        CloseCode::GoingAway.text(),
        "the server is shutting down; reconnect after a random delay",
        &["limits.drain_time"],
        "",
    ),
    row(
        CloseCode::Restarting.code(),
        CloseCode::Restarting.text(),
        "`veche upgrade` or `veche restart`: a new server process has taken over; reconnect to reach it",
        &["limits.upgrade_drain_time", "limits.drain_time"],
        "",
    ),
    row(
        CloseCode::Idle.code(),
        CloseCode::Idle.text(),
        "no message was sent in either direction within `idle_timeout`",
        &["limits.idle_timeout"],
        "",
    ),
    row(
        CloseCode::ApplicationGone.code(),
        CloseCode::ApplicationGone.text(),
        "a configuration reload removed the application",
        &["app.script"],
        "",
    ),
    row(
        CloseCode::AppBusy.code(),
        CloseCode::AppBusy.text(),
        "a message waited longer than `queue_timeout` for a process of its application",
        &["app.queue_timeout", "app.workers"],
        "",
    ),
    row(
        CloseCode::ProtocolError.code(),
        "reserved bit set",
        "a reserved bit without a negotiated meaning was set (RFC 6455 5.2)",
        &["route.compression"],
        BROKEN,
    ),
    row(
        CloseCode::ProtocolError.code(),
        "reserved opcode",
        "an undefined opcode (RFC 6455 5.2)",
        &[],
        BROKEN,
    ),
    row(
        CloseCode::ProtocolError.code(),
        "frame from client not masked",
        "RFC 6455 5.1",
        &[],
        BROKEN,
    ),
    row(
        CloseCode::ProtocolError.code(),
        "malformed payload length",
        "a length not encoded in its shortest form (RFC 6455 5.2)",
        &[],
        BROKEN,
    ),
    row(
        CloseCode::ProtocolError.code(),
        "fragmented control frame",
        "a fragmented ping, pong or close (RFC 6455 5.5)",
        &[],
        BROKEN,
    ),
    row(
        CloseCode::ProtocolError.code(),
        "control frame over 125 bytes",
        "RFC 6455 5.5",
        &[],
        BROKEN,
    ),
    row(
        CloseCode::ProtocolError.code(),
        "continuation without a message",
        "RFC 6455 5.4",
        &[],
        BROKEN,
    ),
    row(
        CloseCode::ProtocolError.code(),
        "new message inside a fragmented one",
        "RFC 6455 5.4",
        &[],
        BROKEN,
    ),
    row(
        CloseCode::ProtocolError.code(),
        "close frame of one byte",
        "RFC 6455 5.5.1",
        &[],
        BROKEN,
    ),
    row(
        CloseCode::ProtocolError.code(),
        "invalid close code",
        "a code that may not be sent (RFC 6455 7.4)",
        &[],
        BROKEN,
    ),
    row(
        CloseCode::InvalidData.code(),
        "invalid UTF-8",
        "a text message that isn't valid UTF-8",
        &[],
        BROKEN,
    ),
    row(
        CloseCode::InvalidData.code(),
        "corrupt compressed data",
        "compressed data that can't be inflated",
        &["route.compression"],
        BROKEN,
    ),
    row(
        CloseCode::InvalidData.code(),
        "too many final blocks in a message",
        "a compressed message with more than 8 final DEFLATE blocks",
        &["route.compression"],
        BROKEN,
    ),
    row(
        CloseCode::TooFast.code(),
        CloseCode::TooFast.text(),
        "the client exceeded its rate limit, with `over_rate = \"close\"`",
        &["route.message_rate", "route.byte_rate", "route.over_rate"],
        "veche_outpaced_total",
    ),
    row(
        CloseCode::TooBig.code(),
        "message too big",
        "a message over the route's limit, measured after inflating",
        &["route.message_bytes_max"],
        BROKEN,
    ),
    row(
        CloseCode::TooBig.code(),
        "message inflates too far",
        "a compressed message that inflates to more than 1 MiB and exceeds the allowed ratio",
        &["route.inflate_ratio_max"],
        BROKEN,
    ),
    row(
        CloseCode::TooBig.code(),
        "too many fragments",
        "a message with more frames than the route allows",
        &["route.fragments_max"],
        BROKEN,
    ),
    row(
        CloseCode::Failed.code(),
        CloseCode::Failed.text(),
        "a handler of the application failed or was stopped",
        &["app.cpu_budget", "app.memory"],
        "veche_app_errors_total",
    ),
    row(
        CloseCode::SlowConsumer.code(),
        CloseCode::SlowConsumer.text(),
        "the client reads more slowly than data is sent to it",
        &["limits.outbox_bytes", "route.outbox_full"],
        "veche_slow_consumers_total",
    ),
    row(
        CloseCode::TooMany.code(),
        CloseCode::TooMany.text(),
        "behind a proxy: the client's address reached its connection limit during the handshake",
        &["limits.connections_per_address"],
        TURNED_AWAY,
    ),
    row(
        CloseCode::Unavailable.code(),
        CloseCode::Unavailable.text(),
        "a channel of the handshake can't be subscribed to at the moment; retry later",
        &[],
        "",
    ),
    row(
        CloseCode::Expired.code(),
        CloseCode::Expired.text(),
        "the client's token has expired, or the `expire_at` of the hook's response has passed; reconnect with new credentials",
        &["route.identity", "jwt.leeway"],
        "veche_tokens_expired_total",
    ),
    row(
        CloseCode::InsufficientState.code(),
        CloseCode::InsufficientState.text(),
        "publications may be missing and can't be recovered; reconnect and reload the state",
        &[],
        "",
    ),
    row(
        CloseCode::Disconnected.code(),
        CloseCode::Disconnected.text(),
        "the back end called `disconnect`, possibly before the client had connected; don't reconnect",
        &[],
        "veche_pushes_total",
    ),
    row(
        CloseCode::Blocked.code(),
        CloseCode::Blocked.text(),
        "the back end called `block_user`; don't reconnect",
        &["api.blocks"],
        "veche_pushes_total",
    ),
];

/// Connections that end without a Close frame, which browsers report as 1006.
pub(super) const SILENT: &[CodeEntry] = &[
    row(
        CloseCode::Abnormal.code(),
        "no pong",
        "no data, not even a pong, arrived in time",
        &["limits.ping_interval", "limits.pong_timeout"],
        "veche_silent_closed_total",
    ),
    row(
        CloseCode::Abnormal.code(),
        "the client accepted no data for too long",
        "no byte could be sent to the client within `write_timeout`",
        &["limits.write_timeout"],
        "veche_slow_consumers_total",
    ),
];
