//! The rows of `[limits]`.

use std::time::Duration;

use veche_frontends::site::CHANNELS_PER_CLIENT_MAX;

use super::{Change, Default, Directive, Section, seconds};
use crate::value::Kind;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = seconds(3_600);
const DAY: Duration = seconds(86_400);

pub(super) static LIMITS: &[Directive] = &[
    row(
        "connections",
        Kind::Integer {
            min: 1,
            max: 100_000_000,
            words: &["auto"],
        },
        "\"auto\"",
        "Connections on all listeners together. At the cap Veche stops accepting, new clients wait in the kernel's queue, and it goes on when one leaves. `\"auto\"` is what the limit on open descriptors leaves after the server's own; a larger number than that is lowered to it, with a line in the log.",
    ),
    row(
        "connections_per_address",
        Kind::Integer {
            min: 1,
            max: 100_000_000,
            words: &["off"],
        },
        "\"off\"",
        "Connections from one IP address on public listeners; more are closed at once, or get 429 where a trusted proxy says whose they are: behind one, open WebSockets count. All addresses of an IPv6 /64 are one. Off (also `0`) by default because behind a proxy or a company's gateway all clients share an address. Facing the internet directly, 100 to 1,000 is a good start.",
    ),
    row(
        "connections_per_user",
        Kind::Integer {
            min: 1,
            max: 100_000_000,
            words: &["off"],
        },
        "\"off\"",
        "WebSockets of one user, as routes' `identity` and applications name him; a handshake beyond that gets 429. Those that are open stay: who comes back while his dead connections are still waited for (`ping_interval`, `pong_timeout`) may be refused for so long, so leave room for some. Where it is changed, those count that were opened while it was not off.",
    ),
    row(
        "channels_per_client",
        Kind::Integer {
            min: 1,
            max: CHANNELS_PER_CLIENT_MAX as u64,
            words: &[],
        },
        "128",
        "The most channels that one client of a route with `handler = \"centrifuge\"` may be subscribed to, those that the server gives it included. A subscription beyond that gets error 106, and a connection that is given more is closed with 3505.",
    ),
    row(
        "channel_name_bytes_max",
        Kind::Integer {
            min: 1,
            max: veche_hub::NAME_BYTES_MAX as u64,
            words: &[],
        },
        "255",
        "The longest name of a channel, in bytes, that such a client may subscribe to by itself; a longer one gets error 107.",
    ),
    row(
        "memory_limit",
        Kind::Size {
            min: 16 << 20,
            max: 1 << 44,
            words: &["auto", "off"],
        },
        "\"auto\"",
        "How much memory the server process may have in use before it takes on nothing new: handshakes of WebSockets and requests to applications on public listeners, and publications of back ends and their calls for history, presence, channels and connections, then get 503, push lines an error, until it is 5 % below again. New TLS connections on public listeners are closed. Who is connected stays and is served, and so are files; but commands for history and presence, subscriptions that recover, and publications get the temporary error 100, after which clients try again. What applications publish to those who are connected goes out, but no script grows by more than 4 MiB: a handler that needs more ends with an error. What counts is resident memory without pages of files, as the kernel itself counts before it ends a process, looked at fifty times a second. `\"auto\"` is nine tenths of what the machine has or the control group allows.",
    ),
    row(
        "handshakes_per_address",
        Kind::Rate { bytes: false },
        "\"off\"",
        "How fast one IP address may make new connections on public listeners, and try to open WebSockets on them: `\"20/s\"`, or `\"300/m\"`, which lets more come at once. Faster ones are closed at accept, or get 429 once there is a request. Off by default for the reason given above; with `trusted_proxies`, or facing the internet, `\"50/s\"` is a good start.",
    ),
    row(
        "header_timeout",
        Kind::Duration {
            min: MS,
            max: HOUR,
            off: false,
        },
        "\"10s\"",
        "From the first byte of a request to the end of its head, and from accept to the first byte, which under TLS comes after the handshake; then 408. Slow on purpose is how servers are starved; an honest client on a bad line needs a second or two.",
    ),
    row(
        "handshake_timeout",
        Kind::Duration {
            min: MS,
            max: HOUR,
            off: false,
        },
        "\"10s\"",
        "From accept to an open WebSocket, and to the end of a TLS handshake; for other requests, from the end of the head to the end of the body.",
    ),
    row(
        "keep_alive_timeout",
        Kind::Duration {
            min: MS,
            max: DAY,
            off: false,
        },
        "\"75s\"",
        "How long an HTTP connection may wait for its next request. Longer than the 60 s after which common load balancers let go, so that they and not Veche close first. Requests on one connection are not counted.",
    ),
    row(
        "idle_timeout",
        Kind::Duration {
            min: MS,
            max: seconds(30 * 86_400),
            off: true,
        },
        "\"off\"",
        "A WebSocket that carried no message in either direction for so long, pings and pongs not counted, is closed with 1001. Off (also `0`) by default: waiting in silence is what push clients do, and the dead are found by `ping_interval`.",
    ),
    row(
        "write_timeout",
        Kind::Duration {
            min: MS,
            max: HOUR,
            off: false,
        },
        "\"30s\"",
        "A connection that took none of what waits for it for so long is dropped.",
    ),
    row(
        "ping_interval",
        Kind::Duration {
            min: MS,
            max: DAY,
            off: true,
        },
        "\"25s\"",
        "A WebSocket that was silent for so long gets a ping. 25 s stays below the 30 s after which the strictest mobile networks and the 60 s after which proxies forget a silent connection. `\"off\"` or `0`: no pings, and a client that vanished without a word stays until a write to it fails.",
    ),
    row(
        "pong_timeout",
        Kind::Duration {
            min: MS,
            max: DAY,
            off: false,
        },
        "\"10s\"",
        "How long after a ping anything at all has to come from the client, before it counts as gone.",
    ),
    row(
        "drain_time",
        Kind::Duration {
            min: Duration::ZERO,
            max: DAY,
            off: false,
        },
        "\"10s\"",
        "When the server stops, WebSockets are closed with 1001 evenly over so long, so that their clients don't all come back in the same instant; then it ends. Apps and services are told first (`stop`): connections begin to be closed when all have done what they do then, at the latest after a quarter of the time. `0`: all at once.",
    ),
    row(
        "lame_duck_time",
        Kind::Duration {
            min: Duration::ZERO,
            max: HOUR,
            off: false,
        },
        "\"0\"",
        "When the server is to stop, `/health` answers 503 for so long before the drain begins, while everything else is served as before, new connections included: time for a load balancer to notice and to send clients elsewhere. It takes as long as the balancer's checks do until they give a server up: their interval times the failures that they wait for. The time comes on top of `drain_time`. Not with `veche restart`, `veche upgrade`, `veche stop --now` and `veche dev`.",
    ),
    row(
        "upgrade_drain_time",
        Kind::Duration {
            min: Duration::ZERO,
            max: DAY,
            off: false,
        },
        "\"3s\"",
        "As `drain_time`, for the old server process of an upgrade, whose WebSockets are closed with 1012. Until a client of it has come back to the new process, it misses what is published there, so this is short; with so many clients that their return within it would be too much at once, make it longer, and have them ask for what they missed. Services of the old process have to end within it too.",
    ),
    row(
        "watchdog_timeout",
        Kind::Duration {
            min: seconds(1),
            max: HOUR,
            off: true,
        },
        "\"30s\"",
        "A server process that does not answer its supervisor for so long, or one of whose workers is in the same turn all that time, is logged with the step that the worker is in, killed and replaced; its connections end. Only time in which the supervisor runs too counts. `\"off\"` or `0`: never, for work under a debugger.",
    ),
    row(
        "outbox_bytes",
        Kind::Size {
            min: 1 << 10,
            max: 1 << 32,
            words: &[],
        },
        "\"256KiB\"",
        "What may wait unsent for one client behind what the kernel's own buffer holds. Beyond it the client counts as too slow and is closed with 1013. 256 KiB is a thousand pushes of 250 bytes, or four messages of the longest kind by default, and a thousand stuck clients together still cost a quarter of a gigabyte at most. At least as large as the largest message that is to be delivered.",
    ),
    row(
        "history_bytes",
        Kind::Size {
            min: 1 << 20,
            max: 1 << 40,
            words: &[],
        },
        "\"256MiB\"",
        "The memory for the history of all channels, bookkeeping included; each worker has an equal share. A namespace with its own `history_bytes` has that part to itself; all other namespaces share the rest. Above the limit publications are evicted from the publisher with the most history, its largest channel first, see [the guide](../guide/history.md#memory). `veche_history_evicted_total` counts them, and clients that come back are told. Channels without stored publications do not count: their positions may take another quarter of this limit, above which those of channels without subscribers are dropped. The positions of channels in use are bounded by the number of subscriptions only.",
    ),
    row(
        "history_answer_max",
        Kind::Integer {
            min: 1,
            max: 100_000_000,
            words: &[],
        },
        "10000",
        "The most publications that one answer to a call for history has. A `limit` above it gets error 106, and so does `limit: -1` where there are more; they are read page by page with `since`. An answer to a client is sent as the client reads it and refers to what is stored, so a long one costs a client that does not read about 100 KiB. Publications that the channel drops meanwhile stay in memory until the answer is sent; while they take more than a quarter of `history_bytes`, further calls for history get the temporary error 100.",
    ),
    row(
        "unknown_namespace",
        Kind::Word {
            words: &["allow", "error"],
            hidden: &[],
        },
        "\"allow\"",
        "What becomes of a channel such as `chat:42` where no `[[namespace]]` is called `chat`. `\"allow\"`: it has the default options, so back ends publish there and routes may list it. `\"error\"`: Centrifuge clients and back ends that name one get error 102 (unknown channel), as from Centrifugo. Channels without a `:` and those of users are always known.",
    ),
    row(
        "body_bytes_max",
        Kind::Size {
            min: 0,
            max: 1 << 32,
            words: &[],
        },
        "\"1MiB\"",
        "The longest body of a request; a longer one gets 413. It bounds a push by HTTP, and a line on a push listener. With `0` no request may have a body.",
    ),
    row(
        "header_bytes_max",
        Kind::Size {
            min: 1 << 10,
            max: 63 << 10,
            words: &[],
        },
        "\"16KiB\"",
        "The longest head of a request, its first line included; a longer one gets 431. A site's cookies have to fit.",
    ),
    row(
        "headers_max",
        Kind::Integer {
            min: 8,
            max: 64,
            words: &[],
        },
        "64",
        "The most header lines of a request; more get 431.",
    ),
];

const fn row(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Directive {
    Directive {
        section: Section::Limits,
        name,
        kind,
        default: Default::Toml(default),
        handlers: &[],
        change: Change::Reload,
        doc,
    }
}
