//! The directives of `[engine]` and `[node]`.

use super::row::{DefaultValue, Directive, Section};
use crate::value::DirectiveKind;

pub(super) static ENGINE: &[Directive] = &[
    Section::Engine.row(
        "type",
        DirectiveKind::Word {
            words: &["memory", "redis"],
            hidden: &[],
        },
        DefaultValue::Toml("\"memory\""),
        "Where channels are ordered and history is stored. `\"memory\"`: in this server. `\"redis\"`: in a Redis server that several Veche servers use together; what is published on one reaches the subscribers of all.",
    )
    .at_restart(),
    Section::Engine.row(
        "url",
        DirectiveKind::Text {
            expected: "a URL such as \"redis://127.0.0.1:6379\"",
        },
        DefaultValue::Unset("required with `type = \"redis\"`"),
        "The Redis server, version 6.2 or later: `redis://USER:PASSWORD@HOST:PORT/DATABASE`, and `rediss://` for TLS; all but the host can be omitted. With Sentinels: `redis+sentinel://USER:PASSWORD@HOST:PORT/PRIMARY?addr=HOST:PORT`, where `PRIMARY` is the name of the primary in their configuration, and each `addr` is a further Sentinel; `tls=true` uses TLS. The user and the password are those of the Redis servers; Sentinels with a login of their own have it in `sentinel_user=` and `sentinel_password=`. `ca=FILE` names the certificate of a private authority. Redis Cluster is not supported. Pub/sub ignores the database number: servers with different databases need different prefixes.",
    )
    .at_restart(),
    Section::Engine.row(
        "prefix",
        DirectiveKind::Text {
            expected: "a name such as \"veche\"",
        },
        DefaultValue::Toml("\"veche\""),
        "The beginning of all keys and pub/sub channels in Redis, before `:`. Servers with the same prefix are one service.",
    )
    .at_restart(),
    Section::Engine.row(
        "on_failover",
        DirectiveKind::Word {
            words: &["new_epoch", "trust"],
            hidden: &[],
        },
        DefaultValue::Toml("\"new_epoch\""),
        "What happens when a replica of Redis is promoted, which may have lost acknowledged publications. `\"new_epoch\"`: all channels begin a new epoch, and clients learn that they could not recover. `\"trust\"`: positions stay valid, and a lost publication may go unnoticed.",
    )
    .at_restart(),
];

pub(super) static NODE: &[Directive] = &[
    Section::Node.row(
        "name",
        DirectiveKind::Text {
            expected: "a name such as \"node-1\"",
        },
        DefaultValue::Unset("the machine's host name"),
        "The name of this server among those that share an engine, for people: in logs, figures and lists of nodes. It need not be unique.",
    )
    .at_restart(),
];
