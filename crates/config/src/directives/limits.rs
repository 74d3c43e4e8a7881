//! The directives of `[limits]`.

use std::time::Duration;

use veche_frontends::frontend_config::CHANNELS_PER_CLIENT_MAX;

use super::row::{DefaultValue, Directive, Section, seconds};
use crate::value::DirectiveKind;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = seconds(3_600);
const DAY: Duration = seconds(86_400);

pub(super) static LIMITS: &[Directive] = &[
    Section::Limits.row(
        "connections",
        DirectiveKind::Integer {
            min: 1,
            max: 100_000_000,
            words: &["auto"],
        },
        DefaultValue::Toml("\"auto\""),
        "The maximum number of connections on all listeners. At the limit Veche stops accepting, new clients wait in the kernel's queue, and accepting resumes when a connection closes. `\"auto\"` is the limit on open descriptors minus the server's own; a greater value is lowered to it, with a line in the log.",
    ),
    Section::Limits.row(
        "connections_per_address",
        DirectiveKind::Integer {
            min: 1,
            max: 100_000_000,
            words: &["off"],
        },
        DefaultValue::Toml("\"off\""),
        "The maximum number of connections from one IP address on public listeners; further ones are closed at once, or get 429 where a trusted proxy names the client: behind a proxy, open WebSockets are counted. An IPv6 /64 is one address. Off (also `0`) by default, because behind a proxy or a company's gateway all clients share an address. Directly on the internet, 100 to 1,000 is a good start.",
    ),
    Section::Limits.row(
        "connections_per_user",
        DirectiveKind::Integer {
            min: 1,
            max: 100_000_000,
            words: &["off"],
        },
        DefaultValue::Toml("\"off\""),
        "The maximum number of WebSockets of one user; further handshakes get 429. The user is the one that `identity` of the route determines or the application names. Open WebSockets stay: a user who reconnects while dead connections are not yet detected (`ping_interval`, `pong_timeout`) may be refused until then, so allow some more. WebSockets that were opened while the limit was off are not counted, even after a reload has set one.",
    ),
    Section::Limits.row(
        "channels_per_client",
        DirectiveKind::Integer {
            min: 1,
            max: CHANNELS_PER_CLIENT_MAX as u64,
            words: &[],
        },
        DefaultValue::Toml("128"),
        "The maximum number of channels of one client of a route with `handler = \"centrifuge\"`, server-side subscriptions included. A further subscription gets error 106, and a connection that gets more server-side subscriptions is closed with 3505.",
    ),
    Section::Limits.row(
        "channel_name_bytes_max",
        DirectiveKind::Integer {
            min: 1,
            max: veche_hub::NAME_BYTES_MAX as u64,
            words: &[],
        },
        DefaultValue::Toml("255"),
        "The maximum length in bytes of a channel name that a client of a route with `handler = \"centrifuge\"` may subscribe to; a longer one gets error 107.",
    ),
    Section::Limits.row(
        "memory_limit",
        DirectiveKind::Size {
            min: 16 << 20,
            max: 1 << 44,
            words: &["auto", "off"],
        },
        DefaultValue::Toml("\"auto\""),
        "The resident memory of the server process above which it accepts no new work until the memory is 5 % below this limit. WebSocket handshakes and requests to applications on public listeners get 503, and so do publications of back ends and their calls for history, presence, channels and connections; push lines get an error. New TLS connections on public listeners are closed. Existing clients and files are served, but commands for history and presence, recovering subscriptions and publications get the temporary error 100, after which clients retry. Publications of applications are delivered, but no script grows by more than 4 MiB: a handler that needs more ends with an error. The server checks fifty times a second, and counts resident memory without file pages, as the kernel does before it kills a process. `\"auto\"` is nine tenths of the machine's memory or of the control group's limit.",
    ),
    Section::Limits.row(
        "handshakes_per_address",
        DirectiveKind::Rate { bytes: false },
        DefaultValue::Toml("\"off\""),
        "The rate at which one IP address may open connections on public listeners, and attempt WebSocket handshakes on them: `\"20/s\"`, or `\"300/m\"`, which permits larger bursts. Faster ones are closed at accept, or get 429 once there is a request. Off by default, because behind a proxy or a company's gateway all clients share an address. With `trusted_proxies`, or directly on the internet, `\"50/s\"` is a good start.",
    ),
    Section::Limits.row(
        "header_timeout",
        DirectiveKind::Duration {
            min: MS,
            max: HOUR,
            off: false,
        },
        DefaultValue::Toml("\"10s\""),
        "The time limit from the first byte of a request to the end of its head, and from accepting a connection (with TLS, from the end of the handshake) to the first byte. If it passes, the client gets 408. The limit is meant for deliberately slow clients; an honest client on a bad line needs a second or two.",
    ),
    Section::Limits.row(
        "handshake_timeout",
        DirectiveKind::Duration {
            min: MS,
            max: HOUR,
            off: false,
        },
        DefaultValue::Toml("\"10s\""),
        "The time limit from accepting a connection until the WebSocket is open, and until the end of a TLS handshake. For other requests, it applies from the end of the head to the end of the body.",
    ),
    Section::Limits.row(
        "keep_alive_timeout",
        DirectiveKind::Duration {
            min: MS,
            max: DAY,
            off: false,
        },
        DefaultValue::Toml("\"75s\""),
        "How long an HTTP connection may wait for its next request. Longer than the 60 s of common load balancers, so that these close first. The number of requests per connection is not limited.",
    ),
    Section::Limits.row(
        "idle_timeout",
        DirectiveKind::Duration {
            min: MS,
            max: seconds(30 * 86_400),
            off: true,
        },
        DefaultValue::Toml("\"off\""),
        "A WebSocket on which no message was sent in either direction for this time is closed with 1001; pings and pongs do not count. Off (also `0`) by default: push clients are silent by nature, and `ping_interval` detects dead ones.",
    ),
    Section::Limits.row(
        "write_timeout",
        DirectiveKind::Duration {
            min: MS,
            max: HOUR,
            off: false,
        },
        DefaultValue::Toml("\"30s\""),
        "A connection that accepts no data from the server for this time is closed.",
    ),
    Section::Limits.row(
        "ping_interval",
        DirectiveKind::Duration {
            min: MS,
            max: DAY,
            off: true,
        },
        DefaultValue::Toml("\"25s\""),
        "A WebSocket on which the client has sent nothing for this time gets a ping. 25 s is below the 30 s after which the strictest mobile networks and the 60 s after which proxies drop a silent connection. `\"off\"` or `0`: no pings, and a client that vanished stays until a write to it fails.",
    ),
    Section::Limits.row(
        "pong_timeout",
        DirectiveKind::Duration {
            min: MS,
            max: DAY,
            off: false,
        },
        DefaultValue::Toml("\"10s\""),
        "How long the server waits for any data from the client after a ping. If none arrives, the client is considered gone.",
    ),
    Section::Limits.row(
        "drain_time",
        DirectiveKind::Duration {
            min: Duration::ZERO,
            max: DAY,
            off: false,
        },
        DefaultValue::Toml("\"10s\""),
        "When the server stops, it closes its WebSockets with 1001, spread evenly over this time so that clients do not reconnect all at once; then it exits. Apps and services are notified first (`stop`): connections begin to close when all `stop` handlers have returned, at the latest after a quarter of the time. `0`: all at once.",
    ),
    Section::Limits.row(
        "lame_duck_time",
        DirectiveKind::Duration {
            min: Duration::ZERO,
            max: HOUR,
            off: false,
        },
        DefaultValue::Toml("\"0\""),
        "How long `/health` answers 503 before the drain of a stop begins, while everything else is served as before, including new connections: the time for a load balancer to notice and to send clients elsewhere. Use the interval of its checks times the failures that it requires. It comes in addition to `drain_time`. It does not apply to `veche restart`, `veche upgrade`, `veche stop --now` and `veche dev`.",
    ),
    Section::Limits.row(
        "upgrade_drain_time",
        DirectiveKind::Duration {
            min: Duration::ZERO,
            max: DAY,
            off: false,
        },
        DefaultValue::Toml("\"3s\""),
        "Like `drain_time`, for the old server process of an upgrade, whose WebSockets are closed with 1012. Until a client has reconnected to the new process, it misses what is published there, so the default is short; if too many clients would reconnect at once, make the time longer and let them query what they missed. Services of the old process have to end within it too.",
    ),
    Section::Limits.row(
        "watchdog_timeout",
        DirectiveKind::Duration {
            min: seconds(1),
            max: HOUR,
            off: true,
        },
        DefaultValue::Toml("\"30s\""),
        "A server process that does not answer its supervisor for this time, or has a worker that stays in one iteration of its event loop for this time, is killed and replaced; its connections end. The log names the worker's step. Only time in which the supervisor runs too is counted. `\"off\"` or `0`: never, for debugging.",
    ),
    Section::Limits.row(
        "outbox_bytes",
        DirectiveKind::Size {
            min: 1 << 10,
            max: 1 << 32,
            words: &[],
        },
        DefaultValue::Toml("\"256KiB\""),
        "The maximum amount of unsent data of one client in addition to the kernel's own buffer. Beyond it the client counts as too slow, and its connection is closed with 1013. 256 KiB is a thousand pushes of 250 bytes, or four messages of the default maximum, and a thousand stuck clients take a quarter of a gigabyte at most. It has to be at least as large as the largest message to deliver.",
    ),
    Section::Limits.row(
        "history_bytes",
        DirectiveKind::Size {
            min: 1 << 20,
            max: 1 << 40,
            words: &[],
        },
        DefaultValue::Toml("\"256MiB\""),
        "The memory for the history of all channels, including bookkeeping; each worker has an equal share. A namespace with its own `history_bytes` has that part for itself; all other namespaces share the rest. Above the limit publications are evicted from the publisher with the most history, its largest channel first, see [the guide](../guide/history.md#memory). `veche_history_evicted_total` counts them, and recovering clients are notified. Channels without stored publications do not count: their positions may take another quarter of this limit, above which those of channels without subscribers are dropped. The positions of channels in use are bounded by the number of subscriptions only.",
    ),
    Section::Limits.row(
        "history_answer_max",
        DirectiveKind::Integer {
            min: 1,
            max: 100_000_000,
            words: &[],
        },
        DefaultValue::Toml("10000"),
        "The maximum number of publications in one answer to a history call. A greater `limit` gets error 106, and so does `limit: -1` where there are more; read them in pages with `since`. An answer to a client is sent as the client reads it and refers to stored publications, so a long one costs about 100 KiB for a client that does not read. Publications that the channel drops meanwhile stay in memory until the answer is sent; while they take more than a quarter of `history_bytes`, further history calls get the temporary error 100.",
    ),
    Section::Limits.row(
        "unknown_namespace",
        DirectiveKind::Word {
            words: &["allow", "error"],
            hidden: &[],
        },
        DefaultValue::Toml("\"allow\""),
        "How to treat a channel such as `chat:42` without a `[[namespace]]` called `chat`. `\"allow\"`: it has default options, so back ends may publish to it and routes may list it. `\"error\"`: Centrifuge clients and back ends that name one get error 102 (unknown channel), as from Centrifugo. Channels without a `:` and personal channels are always known.",
    ),
    Section::Limits.row(
        "body_bytes_max",
        DirectiveKind::Size {
            min: 0,
            max: 1 << 32,
            words: &[],
        },
        DefaultValue::Toml("\"1MiB\""),
        "The maximum size of a request body; a larger one gets 413. It also limits a push by HTTP and a line on a push listener. With `0` requests must have no body.",
    ),
    Section::Limits.row(
        "header_bytes_max",
        DirectiveKind::Size {
            min: 1 << 10,
            max: 63 << 10,
            words: &[],
        },
        DefaultValue::Toml("\"16KiB\""),
        "The maximum size of a request head including its first line; a larger one gets 431. The cookies of a site must fit into it.",
    ),
    Section::Limits.row(
        "headers_max",
        DirectiveKind::Integer {
            min: 8,
            max: 64,
            words: &[],
        },
        DefaultValue::Toml("64"),
        "The maximum number of header lines of a request; a request with more gets 431.",
    ),
];
