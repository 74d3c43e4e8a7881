//! The channels of a cluster.

use std::sync::Arc;

use veche_hub::{
    Budget, ChannelAccess, HistoryOptions, NamespaceOptions, Namespaces, RecoveryMode,
    SubscribeAccess, Wildcards,
};

/// Two channels with a long history, two with a short one, and two whose nodes subscribe to the topic of the whole
/// namespace.
pub(super) const CHANNELS: [&str; 6] =
    ["kept:a", "kept:b", "short:a", "short:b", "news:a", "news:b"];

/// The number of stored publications of a channel with a long history, and of one with a short history.
const SIZES: [u32; 2] = [1_000, 4];

/// The lifetime of history in milliseconds, longer than any world lasts.
const TTL_MS: u64 = 30 * 24 * 3_600_000;

/// Returns a channel's index in [`CHANNELS`]; the length of `CHANNELS` for any other channel.
pub(super) fn place_of(channel: &str) -> usize {
    let found = CHANNELS.iter().position(|one| *one == channel);
    found.unwrap_or(CHANNELS.len())
}

/// Returns whether a channel's history is so long that a recovery is limited only by the maximum number of recovered
/// publications.
pub(super) fn has_much_history(place: usize) -> bool {
    !CHANNELS[place].starts_with("short")
}

/// Returns the options of all channels.
pub(super) fn namespaces() -> Arc<Namespaces> {
    let mut namespaces = Namespaces::with_wildcards(Wildcards::new(["news"]));
    for (name, size) in [("kept", SIZES[0]), ("short", SIZES[1]), ("news", SIZES[0])] {
        let history = HistoryOptions {
            size,
            ttl_ms: TTL_MS,
            position_ttl_ms: TTL_MS,
            recovery: RecoveryMode::Missed,
            budget: Budget::COMMON,
        };
        let options = NamespaceOptions {
            history: Some(history),
            access: ChannelAccess {
                subscribe: SubscribeAccess::Client,
                ..ChannelAccess::default()
            },
            ..NamespaceOptions::default()
        };
        namespaces.insert(name, options);
    }
    Arc::new(namespaces)
}
