//! The lines of the page about ends of connections.

use veche_types::codes::CloseCode;

use super::row::{Row, row};

const BROKEN: &str = "veche_protocol_errors_total";
const TURNED_AWAY: &str = "veche_turned_away_total";

/// Of WebSockets, as clients see them.
pub(super) const CLOSES: &[Row] = &[
    row(
        CloseCode::GoingAway.code(),
        CloseCode::GoingAway.words(),
        "the server stops; come back after a random wait",
        &["limits.drain_time"],
        "",
    ),
    row(
        CloseCode::Restarting.code(),
        CloseCode::Restarting.words(),
        "`veche upgrade` or `veche restart`: another server process has taken over; come back to that one",
        &["limits.upgrade_drain_time", "limits.drain_time"],
        "",
    ),
    row(
        CloseCode::Idle.code(),
        CloseCode::Idle.words(),
        "no message in either direction for so long",
        &["limits.idle_timeout"],
        "",
    ),
    row(
        CloseCode::ApplicationGone.code(),
        CloseCode::ApplicationGone.words(),
        "a reload has taken the application away",
        &["app.script"],
        "",
    ),
    row(
        CloseCode::AppBusy.code(),
        CloseCode::AppBusy.words(),
        "a message waited for a process of its application for as long as it may",
        &["app.queue_timeout", "app.workers"],
        "",
    ),
    row(
        CloseCode::ProtocolError.code(),
        "reserved bit set",
        "a bit that means nothing was set (RFC 6455 5.2)",
        &["route.compression"],
        BROKEN,
    ),
    row(
        CloseCode::ProtocolError.code(),
        "reserved opcode",
        "an opcode that there is not",
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
        "a length that is not in its shortest form",
        &[],
        BROKEN,
    ),
    row(
        CloseCode::ProtocolError.code(),
        "fragmented control frame",
        "a ping, pong or close in parts",
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
        "a text that is none",
        &[],
        BROKEN,
    ),
    row(
        CloseCode::InvalidData.code(),
        "corrupt compressed data",
        "what can't be inflated",
        &["route.compression"],
        BROKEN,
    ),
    row(
        CloseCode::InvalidData.code(),
        "too many final blocks in a message",
        "a compressed message with more than 8 blocks that say they are the last",
        &["route.compression"],
        BROKEN,
    ),
    row(
        CloseCode::TooFast.code(),
        CloseCode::TooFast.words(),
        "the client says more than it may, where `over_rate` is `\"close\"`",
        &["route.message_rate", "route.byte_rate", "route.over_rate"],
        "veche_outpaced_total",
    ),
    row(
        CloseCode::TooBig.code(),
        "message too big",
        "a message longer than the route takes, inflated",
        &["route.message_bytes_max"],
        BROKEN,
    ),
    row(
        CloseCode::TooBig.code(),
        "message inflates too far",
        "a compressed message of more than 1 MiB that becomes far longer than it came",
        &["route.inflate_ratio_max"],
        BROKEN,
    ),
    row(
        CloseCode::TooBig.code(),
        "too many fragments",
        "a message in more frames than the route takes",
        &["route.fragments_max"],
        BROKEN,
    ),
    row(
        CloseCode::Failed.code(),
        CloseCode::Failed.words(),
        "a handler of the application failed, or was stopped",
        &["app.cpu_budget", "app.memory"],
        "veche_app_errors_total",
    ),
    row(
        CloseCode::SlowConsumer.code(),
        CloseCode::SlowConsumer.words(),
        "the client reads more slowly than is published to it",
        &["limits.outbox_bytes", "route.outbox_full"],
        "veche_slow_consumers_total",
    ),
    row(
        CloseCode::TooMany.code(),
        CloseCode::TooMany.words(),
        "behind a proxy: another connection of the address was faster",
        &["limits.connections_per_address"],
        TURNED_AWAY,
    ),
    row(
        CloseCode::Unavailable.code(),
        CloseCode::Unavailable.words(),
        "a channel of the handshake can't be subscribed to for now; try again",
        &[],
        "",
    ),
    row(
        CloseCode::Expired.code(),
        CloseCode::Expired.words(),
        "what said who the client is has expired, a token or the hook's answer with `expire_at`; come back with a new one",
        &["route.identity", "jwt.leeway"],
        "veche_tokens_expired_total",
    ),
    row(
        CloseCode::InsufficientState.code(),
        CloseCode::InsufficientState.words(),
        "publications of a channel may be missing and can't be recovered; come back and load the state",
        &[],
        "",
    ),
    row(
        CloseCode::Disconnected.code(),
        CloseCode::Disconnected.words(),
        "the back end called `disconnect`, maybe before the client had connected; don't come back",
        &[],
        "veche_pushes_total",
    ),
    row(
        CloseCode::Blocked.code(),
        CloseCode::Blocked.words(),
        "the back end called `block_user`; don't come back",
        &["api.blocks"],
        "veche_pushes_total",
    ),
];

/// What is not said with a Close: the transport just ends, which browsers show as 1006.
pub(super) const SILENT: &[Row] = &[
    row(
        CloseCode::Abnormal.code(),
        "no pong",
        "nothing was heard, not even a pong",
        &["limits.ping_interval", "limits.pong_timeout"],
        "veche_silent_closed_total",
    ),
    row(
        CloseCode::Abnormal.code(),
        "it took nothing for too long",
        "not a byte could be sent for so long",
        &["limits.write_timeout"],
        "veche_slow_consumers_total",
    ),
];
