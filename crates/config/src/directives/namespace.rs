//! The directives of `[[namespace]]`.

use super::row::{DefaultValue, Directive, Section, seconds};
use crate::value::DirectiveKind;

/// Maximum number of publications in the history of one channel.
const SIZE_MAX: u64 = 1_000_000;

/// The kind of value of directives that set how long history is stored.
const TIME: DirectiveKind = DirectiveKind::Duration {
    min: seconds(1),
    max: seconds(10 * 366 * 86_400),
    off: false,
};

pub(super) static NAMESPACE: &[Directive] = &[
    Section::Namespace.row(
        "name",
        DirectiveKind::Namespace,
        DefaultValue::Required,
        "The part of a channel's name before the `:`, as `chat` in `chat:42`. `\"\"` stands for channels without a `:`, `\"#\"` for the personal channels of users. A name that begins with a slash is a pattern of whole names: `\"/users/:user/orders\"` matches `/users/ann/orders`, each `:NAME` any text without a slash. In channels of a pattern with `:user`, clients may subscribe and publish only for their own user. If two patterns match a channel, the one that has a literal segment where they first differ applies. Patterns take precedence over names.",
    ),
    Section::Namespace.row(
        "wildcard",
        DirectiveKind::Flag { words: &[] },
        DefaultValue::Toml("false"),
        "Whether the namespace's channels can be subscribed to as a whole: a subscriber of `chat:*` (`*` for the namespace `\"\"`) receives publications of all of them, except private channels and those of named users. `subscribe` determines which clients may subscribe to `chat:*`; on routes with `handler = \"push\"`, only `subscribe = \"client\"` permits it. `*` does not include names that begin with a slash. Such publications have no position, because `chat:*` has no history. Each names its channel in the field `channel`, and also in the tag `channel` for SDKs that do not show the field. One worker orders all channels of such a namespace.",
    )
    .at_restart(),
    Section::Namespace.row(
        "history_size",
        DirectiveKind::Integer {
            min: 1,
            max: SIZE_MAX,
            words: &["off"],
        },
        DefaultValue::Toml("\"off\""),
        "The number of publications that each channel stores. Stored publications have positions, clients of routes with `positions = true` can recover those that they missed, and `POST /api/history` returns them. Off (also `0`): none is stored, and a publication reaches only the current subscribers.",
    ),
    Section::Namespace.row(
        "history_bytes",
        DirectiveKind::Size {
            min: 1 << 20,
            max: 1 << 40,
            words: &[],
        },
        DefaultValue::Unset("all namespaces without this option share the rest of `history_bytes` in `[limits]`"),
        "The memory that is reserved for the history of this namespace's channels. It is taken from `history_bytes` in `[limits]`. These channels evict no history of other namespaces, and other namespaces evict none of theirs. The sum over all namespaces may not exceed the limit. See [the guide](../guide/history.md#memory).",
    ),
    Section::Namespace.row(
        "history_ttl",
        TIME,
        DefaultValue::Toml("\"1h\""),
        "The maximum time for which a publication is stored.",
    ),
    Section::Namespace.row(
        "position_ttl",
        TIME,
        DefaultValue::Toml("\"1d\""),
        "How long a channel without subscribers keeps its position after its last publication. The position is kept at least as long as stored publications. A client that reconnects later learns that publications may be missing.",
    ),
    Section::Namespace.row(
        "recovery",
        DirectiveKind::Word {
            words: &["missed", "latest"],
            hidden: &[],
        },
        DefaultValue::Toml("\"missed\""),
        "What a recovering client receives. `\"missed\"`: every publication since its position, at most 300, or the notice that some are missing. `\"latest\"`: the latest one, unless the client has it already; for channels whose publications are states, such as prices.",
    ),
    Section::Namespace.row(
        "delta",
        DirectiveKind::Word {
            words: &["off", "fossil"],
            hidden: &[],
        },
        DefaultValue::Toml("\"off\""),
        "Whether clients of routes with `handler = \"centrifuge\"` that request it receive differences from the previous publication. `\"fossil\"`: in Fossil's format, which the SDKs support. Needs `history_size`. `delta_publish` determines which publications are sent this way.",
    ),
    Section::Namespace.row(
        "delta_publish",
        DirectiveKind::Flag { words: &[] },
        DefaultValue::Toml("false"),
        "With `delta`: whether every publication is sent as a difference, including those of clients, rather than only those with `\"delta\":true`.",
    ),
    Section::Namespace.row(
        "tags_filter",
        DirectiveKind::Flag { words: &[] },
        DefaultValue::Toml("false"),
        "Whether clients of routes with `handler = \"centrifuge\"` may restrict a subscription to publications with certain tags. A subscription with both a filter and deltas is refused. See [the guide](../guide/centrifuge.md#filters-by-tags).",
    ),
    Section::Namespace.row(
        "presence",
        DirectiveKind::Flag { words: &[] },
        DefaultValue::Toml("false"),
        "Whether channels have presence, that is, whether `POST /api/presence`, `POST /api/presence_stats` and the command `presence` of subscribed Centrifuge clients are available. After a change, presence covers only subscriptions made since then.",
    ),
    Section::Namespace.row(
        "join_leave",
        DirectiveKind::Flag { words: &[] },
        DefaultValue::Toml("false"),
        "Whether subscribers receive join and leave events. Meant for channels with few subscribers: each join is sent to all of them.",
    ),
    Section::Namespace.row(
        "force_push_join_leave",
        DirectiveKind::Flag { words: &[] },
        DefaultValue::Toml("false"),
        "With `join_leave`: whether clients of routes with `handler = \"centrifuge\"` receive joins and leaves without requesting them (`joinLeave: true`).",
    ),
    Section::Namespace.row(
        "leave_delay",
        DirectiveKind::Duration {
            min: seconds(1),
            max: seconds(3_600),
            off: true,
        },
        DefaultValue::Toml("\"5s\""),
        "How long a user remains a member after their last connection has closed, so that a page reload causes neither a leave nor a join. If it is set, a user joins with the first and leaves with the last of their connections. Off (also `0`): each connection joins and leaves by itself. Anonymous connections always leave at once.",
    ),
    Section::Namespace.row(
        "events",
        DirectiveKind::Word {
            words: &["off", "occupancy", "members"],
            hidden: &[],
        },
        DefaultValue::Toml("\"off\""),
        "The events of its channels that `[events]` reports. `\"occupancy\"`: a channel gets its first subscriber, or has had no subscriber for `leave_delay`; in the namespace `\"#\"`, users come online and go offline; and a client asks for the latest publication of a channel with `recovery = \"latest\"`, but the channel has none. `\"members\"`: also joins and leaves.",
    ),
    Section::Namespace.row(
        "slow_consumer",
        DirectiveKind::Word {
            words: &["disconnect", "miss"],
            hidden: &[],
        },
        DefaultValue::Toml("\"disconnect\""),
        "How to treat a subscriber that reads more slowly than publications arrive. `\"disconnect\"`: its connection is closed when `outbox_bytes` of data wait for it, unless `outbox_full` of its route drops publications instead. `\"miss\"`: while half of `outbox_bytes` waits for it, it does not receive new publications; this suits data that is soon out of date, such as cursors and typing. On routes whose `outbox_full` drops publications, that setting applies instead. `\"miss\"` can't be combined with `history_size`. Missed publications are counted in `veche_publications_dropped_total`, and `veche status --slow` lists such clients.",
    ),
    Section::Namespace.row(
        "subscribe",
        DirectiveKind::Word {
            words: &["none", "token", "client", "hook"],
            hidden: &[],
        },
        DefaultValue::Toml("\"none\""),
        "Which clients of routes with `handler = \"centrifuge\"` may subscribe. `\"none\"`: none, as in namespaces without a section (error 103). `\"token\"`: those with a subscription token for the channel. `\"client\"`: all; but a channel with a `$` after its namespace (`chat:$42`, `$42`) is private and needs a token, and one that ends with a `#` and users (`dialog:7#ann,bob`) is for those users only. `\"hook\"`: those that the back end (by `[hooks]`) or the route's app admits. This includes private channels and, for their named users only, channels of named users. A personal channel (`#ann`) is never open to other users; its own user is always subscribed. See [the guide](../guide/centrifuge.md).",
    ),
    Section::Namespace.row(
        "publish",
        DirectiveKind::Word {
            words: &["none", "subscriber", "client", "hook"],
            hidden: &[],
        },
        DefaultValue::Toml("\"none\""),
        "Which clients of routes with `handler = \"centrifuge\"` may publish. `\"none\"`: none. `\"subscriber\"`: subscribers of the channel. `\"client\"`: all clients, except that only its subscribers may publish to a private channel. `\"hook\"`: the back end decides on each publication, by `[hooks]`, or the route's app does. With `\"client\"` and `\"hook\"`, only the named users may publish to a channel of named users.",
    ),
    Section::Namespace.row(
        "allow_history",
        READING,
        DefaultValue::Toml("\"subscriber\""),
        "Which clients of routes with `handler = \"centrifuge\"` may read the history of a channel. `\"none\"`: none. `\"subscriber\"`: its subscribers. `\"client\"`: all clients, except that the history of a private channel is only for its subscribers, and that of a channel of named users only for these users. Recovery is not affected.",
    ),
    Section::Namespace.row(
        "allow_presence",
        READING,
        DefaultValue::Toml("\"subscriber\""),
        "Which clients of routes with `handler = \"centrifuge\"` may request `presence` and `presence_stats` of a channel; the values mean the same as for `allow_history`.",
    ),
];

/// The kind of value of directives that set who may read a channel's state.
const READING: DirectiveKind = DirectiveKind::Word {
    words: &["none", "subscriber", "client"],
    hidden: &[],
};
