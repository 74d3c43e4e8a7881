//! The rows of `[[namespace]]`.

use super::{Change, Default, Directive, Section, seconds};
use crate::value::Kind;

/// The most publications that one channel may keep.
const SIZE_MAX: u64 = 1_000_000;

/// What times are made of.
const TIME: Kind = Kind::Duration {
    min: seconds(1),
    max: seconds(10 * 366 * 86_400),
    off: false,
};

pub(super) static NAMESPACE: &[Directive] = &[
    row(
        "name",
        Kind::Namespace,
        Default::Required,
        "Its channels are those whose names begin with this and a `:`, as `chat:42` does in `chat`. `\"\"` has the channels without a `:`, `\"#\"` those of users, to which `user` publishes. A name that begins with a slash is a pattern of whole names: `\"/users/:user/orders\"` is for `/users/ann/orders`, each `:NAME` for any text without a slash. Of the channels of a pattern with `:user` clients may subscribe and publish to their own user's only. Where two patterns fit, the one counts that is spelled out where they first differ; patterns go before names.",
    ),
    Directive {
        change: Change::Restart,
        ..row(
            "wildcard",
            Kind::Flag { words: &[] },
            Default::Toml("false"),
            "Whether its channels can be heard together: who is subscribed to `chat:*` (`*` for the namespace `\"\"`) hears all of them but what is private or for named users; `subscribe` says who may; on routes with `handler = \"push\"` only where that is `\"client\"`. No name with a slash in front is heard by `*`. What comes that way has no place in `chat:*`, which remembers nothing, and names its channel as `channel`, and in the tag `channel` for SDKs that don't show that. All channels of such a namespace are ordered by one worker.",
        )
    },
    row(
        "history_size",
        Kind::Integer {
            min: 1,
            max: SIZE_MAX,
            words: &["off"],
        },
        Default::Toml("\"off\""),
        "How many publications each channel keeps. With it they are numbered, clients of routes with `positions = true` can come back to where they were, and `POST /api/history` reads them. Off (also `0`): a publication is for those who are there.",
    ),
    row(
        "history_bytes",
        Kind::Size {
            min: 1 << 20,
            max: 1 << 40,
            words: &[],
        },
        Default::Unset("they share what is left of `history_bytes` in `[limits]`"),
        "The memory for the history of its channels, taken from `history_bytes` in `[limits]` and reserved for them: they evict no history of other namespaces, and no other namespace evicts theirs. The sum over all namespaces may not exceed the limit. See [the guide](../guide/history.md#memory).",
    ),
    row(
        "history_ttl",
        TIME,
        Default::Toml("\"1h\""),
        "How long each of them is kept at most.",
    ),
    row(
        "position_ttl",
        TIME,
        Default::Toml("\"1d\""),
        "How long a channel to which nobody is subscribed keeps its position, from its last publication on; at least as long as publications. Who comes back later is told that something may be missing.",
    ),
    row(
        "recovery",
        Kind::Word {
            words: &["missed", "latest"],
            hidden: &[],
        },
        Default::Toml("\"missed\""),
        "What a client gets that comes back. `\"missed\"`: every publication since, at most 300, or word that they are not all there any more. `\"latest\"`: the latest one, if it does not have that; for channels whose publications are states, such as prices.",
    ),
    row(
        "delta",
        Kind::Word {
            words: &["off", "fossil"],
            hidden: &[],
        },
        Default::Toml("\"off\""),
        "Whether clients of routes with `handler = \"centrifuge\"` that ask for it are told what has changed since the publication before, in place of the whole. `\"fossil\"`: in Fossil's format, which the SDKs read. Needs `history_size`. Which publications go out so, says `delta_publish`.",
    ),
    row(
        "delta_publish",
        Kind::Flag { words: &[] },
        Default::Toml("false"),
        "Whether that is done with every publication, those of clients too, and not only with those that say `\"delta\":true`.",
    ),
    row(
        "tags_filter",
        Kind::Flag { words: &[] },
        Default::Toml("false"),
        "Whether clients of routes with `handler = \"centrifuge\"` may say, when they subscribe, which tags a publication has to have for them; the others they don't get. Not together with deltas. See [the guide](../guide/centrifuge.md#filters-by-tags).",
    ),
    row(
        "presence",
        Kind::Flag { words: &[] },
        Default::Toml("false"),
        "Whether channels know who is there: `POST /api/presence` and `/api/presence_stats`, and `presence` of Centrifuge clients that are subscribed. Counts those who subscribe from then on.",
    ),
    row(
        "join_leave",
        Kind::Flag { words: &[] },
        Default::Toml("false"),
        "Whether subscribers are told who joins and who leaves. For channels of some people, not of thousands: each who comes is told to all.",
    ),
    row(
        "force_push_join_leave",
        Kind::Flag { words: &[] },
        Default::Toml("false"),
        "With `join_leave`: whether clients of routes with `handler = \"centrifuge\"` get joins and leaves without asking for them (`joinLeave: true`).",
    ),
    row(
        "leave_delay",
        Kind::Duration {
            min: seconds(1),
            max: seconds(3_600),
            off: true,
        },
        Default::Toml("\"5s\""),
        "How long after a user's last connection has gone he is there still, unless he comes back: who reloads a page neither leaves nor joins. With it users join and leave, with the first and the last of their connections. Off (also `0`): each connection does by itself. Nobody waits for those without a name.",
    ),
    row(
        "events",
        Kind::Word {
            words: &["off", "occupancy", "members"],
            hidden: &[],
        },
        Default::Toml("\"off\""),
        "What of its channels is told to the back end, by `[events]`. `\"occupancy\"`: when a channel gets its first subscriber and has lost its last one for `leave_delay`; in the namespace `\"#\"`, when users come and go; and when somebody wants the latest publication of a channel with `recovery = \"latest\"` that has none. `\"members\"`: also who joins and leaves.",
    ),
    row(
        "slow_consumer",
        Kind::Word {
            words: &["disconnect", "miss"],
            hidden: &[],
        },
        Default::Toml("\"disconnect\""),
        "What becomes of a subscriber that reads more slowly than is published. `\"disconnect\"`: it is closed when `outbox_bytes` wait for it, or its route's `outbox_full` says what is dropped. `\"miss\"`: what is published while half of that waits is not for it, and it stays; for what is soon out of date, such as cursors and typing. On routes whose `outbox_full` drops something that is what counts. Not with `history_size`. Counted in `veche_publications_dropped_total`, and `veche status --slow` names such clients.",
    ),
    row(
        "subscribe",
        Kind::Word {
            words: &["none", "token", "client", "hook"],
            hidden: &[],
        },
        Default::Toml("\"none\""),
        "Which clients of routes with `handler = \"centrifuge\"` may subscribe by themselves. `\"none\"`: none of them, and so it is in namespaces that are not named here (error 103). `\"token\"`: those with a subscription token for the channel. `\"client\"`: every one; but a channel whose name goes on with a `$` behind the namespace (`chat:$42`, `$42`) is private and needs a token, and one that ends with a `#` and users (`dialog:7#ann,bob`) is for those users only. `\"hook\"`: whom the back end lets in, which `[hooks]` asks, or the route's app; of private channels too, and of those of named users for these. Nobody subscribes to another user's own channel (`#ann`); his own every user hears anyway. See [the guide](../guide/centrifuge.md).",
    ),
    row(
        "publish",
        Kind::Word {
            words: &["none", "subscriber", "client", "hook"],
            hidden: &[],
        },
        Default::Toml("\"none\""),
        "Which of these clients may publish by themselves: none, those who are subscribed to the channel, or every one, subscribed or not (to private channels only subscribers, to channels of named users only those). `\"hook\"`: whom the back end lets, which `[hooks]` asks each time, or the route's app; to channels of named users only those.",
    ),
    row(
        "allow_history",
        READING,
        Default::Toml("\"subscriber\""),
        "Which of these clients may read the history of a channel: none, those who are subscribed to it, or every one, subscribed or not (of private channels only subscribers, of channels of named users only those). Recovery is not affected.",
    ),
    row(
        "allow_presence",
        READING,
        Default::Toml("\"subscriber\""),
        "The same for `presence` and `presence_stats`.",
    ),
];

/// Which clients may read something of a channel.
const READING: Kind = Kind::Word {
    words: &["none", "subscriber", "client"],
    hidden: &[],
};

const fn row(name: &'static str, kind: Kind, default: Default, doc: &'static str) -> Directive {
    Directive {
        section: Section::Namespace,
        name,
        kind,
        default,
        handlers: &[],
        change: Change::Reload,
        doc,
    }
}
