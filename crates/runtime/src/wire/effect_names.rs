//! The names of effects and calls on the wire.

/// The names of all calls.
pub const CALLS: [&str; 9] = [
    "api",
    "connections",
    "connection",
    "subscribe",
    "renew",
    "part",
    "http",
    "mysql",
    "redis",
];

/// The names of all effects.
pub const EFFECTS: [&str; 11] = [
    "send",
    "push",
    "publish",
    "subscribe",
    "unsubscribe",
    "close",
    "attributes",
    "begin",
    "part",
    "end",
    "log",
];
