//! The lines of the page about ends of connections.

use veche_frontends::close;
use veche_proto::websocket::close as standard;

use super::{Row, row};

const BROKEN: &str = "veche_protocol_errors_total";
const TURNED_AWAY: &str = "veche_turned_away_total";

/// Of WebSockets, as clients see them.
pub(super) const CLOSES: &[Row] = &[
    row(
        close::GOING_AWAY.0,
        close::GOING_AWAY.1,
        "the server stops; come back after a random wait",
        &["limits.drain_time"],
        "",
    ),
    row(
        close::RESTARTING.0,
        close::RESTARTING.1,
        "`veche upgrade` or `veche restart`: another server process has taken over; come back to that one",
        &["limits.upgrade_drain_time", "limits.drain_time"],
        "",
    ),
    row(
        close::IDLE.0,
        close::IDLE.1,
        "no message in either direction for so long",
        &["limits.idle_timeout"],
        "",
    ),
    row(
        1001,
        "the application is gone",
        "a reload has taken the application away",
        &["app.script"],
        "",
    ),
    row(
        standard::PROTOCOL_ERROR,
        "reserved bit set",
        "a bit that means nothing was set (RFC 6455 5.2)",
        &["route.compression"],
        BROKEN,
    ),
    row(
        standard::PROTOCOL_ERROR,
        "reserved opcode",
        "an opcode that there is not",
        &[],
        BROKEN,
    ),
    row(
        standard::PROTOCOL_ERROR,
        "frame from client not masked",
        "RFC 6455 5.1",
        &[],
        BROKEN,
    ),
    row(
        standard::PROTOCOL_ERROR,
        "malformed payload length",
        "a length that is not in its shortest form",
        &[],
        BROKEN,
    ),
    row(
        standard::PROTOCOL_ERROR,
        "fragmented control frame",
        "a ping, pong or close in parts",
        &[],
        BROKEN,
    ),
    row(
        standard::PROTOCOL_ERROR,
        "control frame over 125 bytes",
        "RFC 6455 5.5",
        &[],
        BROKEN,
    ),
    row(
        standard::PROTOCOL_ERROR,
        "continuation without a message",
        "RFC 6455 5.4",
        &[],
        BROKEN,
    ),
    row(
        standard::PROTOCOL_ERROR,
        "new message inside a fragmented one",
        "RFC 6455 5.4",
        &[],
        BROKEN,
    ),
    row(
        standard::PROTOCOL_ERROR,
        "close frame of one byte",
        "RFC 6455 5.5.1",
        &[],
        BROKEN,
    ),
    row(
        standard::PROTOCOL_ERROR,
        "invalid close code",
        "a code that may not be sent (RFC 6455 7.4)",
        &[],
        BROKEN,
    ),
    row(
        standard::INVALID_DATA,
        "invalid UTF-8",
        "a text that is none",
        &[],
        BROKEN,
    ),
    row(
        standard::INVALID_DATA,
        "corrupt compressed data",
        "what can't be inflated",
        &["route.compression"],
        BROKEN,
    ),
    row(
        standard::INVALID_DATA,
        "too many final blocks in a message",
        "a compressed message with more than 8 blocks that say they are the last",
        &["route.compression"],
        BROKEN,
    ),
    row(
        close::TOO_FAST.0,
        close::TOO_FAST.1,
        "the client says more than it may, where `over_rate` is `\"close\"`",
        &["route.message_rate", "route.byte_rate", "route.over_rate"],
        "veche_outpaced_total",
    ),
    row(
        standard::TOO_BIG,
        "message too big",
        "a message longer than the route takes, inflated",
        &["route.message_bytes_max"],
        BROKEN,
    ),
    row(
        standard::TOO_BIG,
        "message inflates too far",
        "a compressed message of more than 1 MiB that becomes far longer than it came",
        &["route.inflate_ratio_max"],
        BROKEN,
    ),
    row(
        standard::TOO_BIG,
        "too many fragments",
        "a message in more frames than the route takes",
        &["route.fragments_max"],
        BROKEN,
    ),
    row(
        1011,
        "internal error",
        "a handler of the application failed, or was stopped",
        &["app.cpu_budget", "app.memory"],
        "veche_app_errors_total",
    ),
    row(
        close::SLOW_CONSUMER.0,
        close::SLOW_CONSUMER.1,
        "the client reads more slowly than is published to it",
        &["limits.outbox_bytes", "route.outbox_full"],
        "veche_slow_consumers_total",
    ),
    row(
        close::TOO_MANY.0,
        close::TOO_MANY.1,
        "behind a proxy: another connection of the address was faster",
        &["limits.connections_per_address"],
        TURNED_AWAY,
    ),
    row(
        close::EXPIRED.0,
        close::EXPIRED.1,
        "what said who the client is has expired, a token or the hook's answer with `expire_at`; come back with a new one",
        &["route.identity", "jwt.leeway"],
        "veche_tokens_expired_total",
    ),
    row(
        close::DISCONNECTED.0,
        close::DISCONNECTED.1,
        "the back end called `disconnect`, maybe before the client had connected; don't come back",
        &[],
        "veche_pushes_total",
    ),
    row(
        close::BLOCKED.0,
        close::BLOCKED.1,
        "the back end called `block_user`; don't come back",
        &["api.blocks"],
        "veche_pushes_total",
    ),
];

/// What is not said with a Close: the transport just ends, which browsers show as 1006.
pub(super) const SILENT: &[Row] = &[
    row(
        1006,
        "no pong",
        "nothing was heard, not even a pong",
        &["limits.ping_interval", "limits.pong_timeout"],
        "veche_silent_closed_total",
    ),
    row(
        1006,
        "it took nothing for too long",
        "not a byte could be sent for so long",
        &["limits.write_timeout"],
        "veche_slow_consumers_total",
    ),
];
