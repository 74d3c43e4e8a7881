//! Namespaces, which determine the options of channels. The namespace of a channel is the part of its name before the
//! first `:`, or a pattern that matches the whole name.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::PathPattern;

/// The events of a channel that the back end receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventLevel {
    /// The back end receives no events.
    #[default]
    Off,
    /// The back end learns when a channel is occupied or vacated, and when a subscriber finds no
    /// latest publication to recover.
    Occupancy,
    /// The back end receives the events of `Occupancy`, and learns when members join and leave.
    Members,
}

/// The namespace of personal channels: `#ann` is the channel of the user `ann`.
pub const USERS: &str = "#";

/// History options of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryOptions {
    /// Maximum number of stored publications per channel; at least 1.
    pub size: u32,
    /// Lifetime of a publication in milliseconds.
    pub ttl_ms: u64,
    /// The time for which a channel without subscribers keeps its position after the last publication, in milliseconds.
    pub position_ttl_ms: u64,
    /// Which publications a returning subscriber receives.
    pub recovery: RecoveryMode,
    /// The budget toward which the stored publications count.
    pub budget: Budget,
}

/// A part of the history limit: the budget of one namespace, created by [`Namespaces::add_budget`],
/// or the common budget of all other channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget(u16);

impl Budget {
    /// The budget of all channels whose namespace has no budget of its own.
    pub const COMMON: Self = Self(0);

    pub(crate) fn index(self) -> usize {
        self.0.into()
    }
}

/// Which publications a returning subscriber receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryMode {
    /// All missed publications, or a notice that some are no longer available.
    #[default]
    Missed,
    /// The latest publication, unless the subscriber already has it.
    Latest,
}

/// The permissions of clients in the channels of a namespace. Back ends are not restricted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelAccess {
    /// The clients that may subscribe.
    pub subscribe: SubscribeAccess,
    /// The clients that may publish.
    pub publish: PublishAccess,
    /// The clients that may read the history.
    pub history: ReadAccess,
    /// The clients that may read the presence.
    pub presence: ReadAccess,
}

/// The clients that may read the history or the presence of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAccess {
    /// No client may read the history or presence.
    Disabled,
    /// Clients that are subscribed to the channel.
    #[default]
    Subscriber,
    /// Every client that may subscribe to the channel; for private channels only subscribers.
    Client,
}

/// The clients that may subscribe to a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubscribeAccess {
    /// No client may subscribe.
    #[default]
    Disabled,
    /// Clients with a token for the channel.
    Token,
    /// Every client may subscribe, except to private channels and to channels whose names restrict them to other users.
    Client,
    /// Clients that an authorization hook admits. The hook decides on each subscription.
    Hook,
}

/// The clients that may publish to a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PublishAccess {
    /// No client may publish.
    #[default]
    Disabled,
    /// Clients that are subscribed to the channel.
    Subscriber,
    /// Every client that the channel's name admits; for private channels only subscribers.
    Client,
    /// Clients that an authorization hook permits. The hook decides on each publication and may
    /// change its data.
    Hook,
}

/// Which publications are delivered together with the payload of their predecessor, so that subscribers that have the
/// predecessor can receive a delta.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeltaMode {
    /// No publication is delivered together with its predecessor.
    #[default]
    Off,
    /// Publications are delivered together with their predecessor if their publisher requests it.
    OnRequest,
    /// All stored publications are delivered together with their predecessor.
    Always,
}

/// Options of the channels of one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// The history options; `None` without history.
    pub history: Option<HistoryOptions>,
    /// The permissions of clients.
    pub access: ChannelAccess,
    /// Whether clients and back ends can query the presence.
    pub presence: bool,
    /// Whether joins and leaves are sent to subscribers.
    pub join_leave: bool,
    /// Whether clients get joins and leaves even if they do not request them.
    pub force_push_join_leave: bool,
    /// The delay from the close of a user's last connection until the user leaves, in milliseconds. A user that returns
    /// earlier does not leave. With 0, connections join and leave instead of users.
    pub leave_delay_ms: u64,
    /// The events that the back end receives.
    pub event_level: EventLevel,
    /// Whether slow subscribers lose publications instead of being disconnected. Only for channels without history.
    pub drop_when_slow: bool,
    /// Which publications subscribers may receive as deltas. Only for channels with history.
    pub delta_mode: DeltaMode,
    /// Whether subscribers may filter publications by tags.
    pub tags_filter: bool,
}

impl NamespaceOptions {
    /// Returns whether the members of the channels are tracked.
    pub fn has_members(&self) -> bool {
        self.presence || self.join_leave || self.event_level == EventLevel::Members
    }
}

/// All namespaces by name. The channels of unknown namespaces have the default options.
#[derive(Clone, Debug, Default)]
pub struct Namespaces {
    by_name: HashMap<Box<str>, NamespaceOptions, RandomState>,
    /// Whether at least one namespace drops publications for slow subscribers.
    has_drop_when_slow: bool,
    /// The namespaces whose name is a pattern, in order of precedence: the first one that matches a channel applies.
    by_pattern: Vec<(PathPattern, NamespaceOptions)>,
    /// The budgets of namespaces in bytes, by the namespace's name.
    budgets: Vec<(Box<str>, usize)>,
    wildcards: Wildcards,
    /// Whether channels of unknown namespaces are rejected.
    denies_unknown: bool,
}

impl Namespaces {
    /// Returns a set without namespaces, in which all channels have the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a set with these wildcard channels, but without namespaces.
    #[must_use]
    pub fn with_wildcards(wildcards: Wildcards) -> Self {
        Self {
            wildcards,
            ..Self::default()
        }
    }

    /// Rejects channels of namespaces that were not [inserted](Self::insert).
    pub fn deny_unknown(&mut self) {
        self.denies_unknown = true;
    }

    /// Returns whether the namespace of a channel is accepted. If unknown namespaces are
    /// [rejected](Self::deny_unknown), the namespace must have been inserted. Names without a `:`
    /// belong to the namespace `""`, which always exists.
    pub fn knows(&self, channel: &str) -> bool {
        let is_there = |name: &str| matches!(name, "" | USERS) || self.by_name.contains_key(name);
        !self.denies_unknown
            || self.find_pattern(channel).is_some()
            || is_there(namespace_of(channel))
    }

    /// Returns the namespaces that have a wildcard channel.
    pub fn wildcards(&self) -> &Wildcards {
        &self.wildcards
    }

    /// Gives a namespace a history budget of its own in bytes, for all workers together and in addition to the common
    /// budget. Returns the value for [`HistoryOptions::budget`].
    ///
    /// # Panics
    /// If there are more than 65,535 budgets.
    pub fn add_budget(&mut self, name: &str, bytes: usize) -> Budget {
        self.budgets.push((name.into(), bytes));
        Budget(
            u16::try_from(self.budgets.len())
                .expect("a configuration can't have more than 65,535 namespaces"),
        )
    }

    /// Iterates over the budgets of namespaces, in the order of their numbers.
    pub(crate) fn budgets(&self) -> impl Iterator<Item = (&str, usize)> + Clone {
        self.budgets.iter().map(|(name, bytes)| (&**name, *bytes))
    }

    /// Sets the options of a namespace: `""` for channels without a `:`, [`USERS`] for personal channels.
    pub fn insert(&mut self, name: &str, options: NamespaceOptions) {
        self.has_drop_when_slow |= options.drop_when_slow;
        self.by_name.insert(name.into(), options);
    }

    /// Sets the options of the channels that match a pattern. If a channel matches several
    /// patterns, they are compared at the first segment where only one of two patterns has a
    /// literal; the pattern with the literal applies.
    pub fn insert_pattern(&mut self, pattern: PathPattern, options: NamespaceOptions) {
        self.has_drop_when_slow |= options.drop_when_slow;
        let others = self.by_pattern.iter();
        let place = others
            .take_while(|(other, _)| !pattern.precedes(other))
            .count();
        self.by_pattern.insert(place, (pattern, options));
    }

    /// Returns the part of a channel name that stands for the parameter `name` of the pattern that matches the channel;
    /// `None` if no pattern matches or the pattern has no such parameter.
    pub fn parameter<'c>(&'c self, channel: &'c str, name: &str) -> Option<&'c str> {
        let (pattern, _) = self.find_pattern(channel)?;
        let mut parameters = pattern.parameters(channel);
        parameters.find_map(|(one, given)| (one == name).then_some(given))
    }

    /// Returns whether publications of a channel are dropped for slow subscribers.
    pub(crate) fn drops_when_slow(&self, channel: &str) -> bool {
        self.has_drop_when_slow && self.of(channel).drop_when_slow
    }

    fn find_pattern(&self, channel: &str) -> Option<&(PathPattern, NamespaceOptions)> {
        if !channel.starts_with('/') {
            return None;
        }
        let mut all = self.by_pattern.iter();
        all.find(|(pattern, _)| pattern.matches(channel))
    }

    /// Returns the options of a channel.
    pub fn of(&self, channel: &str) -> NamespaceOptions {
        if let Some((_, options)) = self.find_pattern(channel) {
            return *options;
        }
        if self.by_name.is_empty() {
            return NamespaceOptions::default();
        }
        let found = self.by_name.get(namespace_of(channel));
        let mut options = found.copied().unwrap_or_default();
        if self.wildcards.channel_for(channel) == Some(channel) {
            options.history = None;
            options.delta_mode = DeltaMode::Off;
        }
        options
    }

    /// Returns whether the channels that a wildcard channel covers have history. The wildcard channel itself has none.
    pub(crate) fn has_history_under(&self, wildcard: &str) -> bool {
        let found = self.by_name.get(namespace_of(wildcard));
        found.is_some_and(|options| options.history.is_some())
    }
}

/// Returns the name of a channel's namespace.
pub fn namespace_of(channel: &str) -> &str {
    match channel.as_bytes() {
        [b'#', ..] => USERS,
        _ => channel.split_once(':').map_or("", |(name, _)| name),
    }
}

/// The namespaces that have a wildcard channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wildcards(Arc<[Wildcard]>);

#[derive(Debug, PartialEq, Eq)]
struct Wildcard {
    namespace: Box<str>,
    channel: Box<str>,
}

impl Wildcards {
    /// Creates the wildcard channels of these namespaces. Personal channels can't have one.
    pub fn new<'n>(namespaces: impl IntoIterator<Item = &'n str>) -> Self {
        let all = namespaces.into_iter().map(|namespace| Wildcard {
            namespace: namespace.into(),
            channel: match namespace {
                "" => "*".into(),
                name => format!("{name}:*").into(),
            },
        });
        Self(all.collect())
    }

    /// Returns whether a namespace has a wildcard channel.
    pub fn has(&self, namespace: &str) -> bool {
        self.0.iter().any(|one| *one.namespace == *namespace)
    }

    /// Returns the wildcard channel of a channel's namespace, if there is one. The result may be `channel` itself.
    pub fn channel_for(&self, channel: &str) -> Option<&str> {
        // A name that begins with `/` can match patterns only and belongs to no named namespace, even if no pattern
        // exists.
        if self.0.is_empty() || channel.starts_with('/') {
            return None;
        }
        let namespace = namespace_of(channel);
        let found = self.0.iter().find(|one| *one.namespace == *namespace);
        found.map(|one| &*one.channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_have_the_options_of_their_namespace() {
        for (channel, name) in [
            ("news", ""),
            ("chat:42", "chat"),
            ("chat:a:b", "chat"),
            (":", ""),
            ("#ann", "#"),
            ("#a:b", "#"),
            ("dialog#1,2", ""),
        ] {
            assert_eq!(namespace_of(channel), name, "{channel}");
        }
        let history = HistoryOptions {
            size: 1,
            ttl_ms: 1,
            position_ttl_ms: 1,
            recovery: RecoveryMode::Missed,
            budget: Budget::COMMON,
        };
        let chat = NamespaceOptions {
            history: Some(history),
            ..NamespaceOptions::default()
        };
        let mut all = Namespaces::new();
        assert_eq!(all.of("chat:1"), NamespaceOptions::default());
        all.insert("chat", chat);
        assert_eq!(all.of("chat:1"), chat);
        assert_eq!(all.of("chat"), NamespaceOptions::default());
        assert_eq!(all.of("other:1"), NamespaceOptions::default());
    }

    #[test]
    fn closed_namespaces_know_their_own_channels() {
        let mut all = Namespaces::new();
        assert!(all.knows("other:1"));
        all.insert("chat", NamespaceOptions::default());
        let pattern = PathPattern::new("/users/:user").expect("a pattern");
        all.insert_pattern(pattern, NamespaceOptions::default());
        all.deny_unknown();
        for (channel, is_known) in [
            ("chat:1", true),
            ("chat:$1", true),
            ("news", true),
            ("#ann", true),
            ("/users/a:b", true),
            ("/other/a:b", false),
            ("other:1", false),
            ("Chat:1", false),
        ] {
            assert_eq!(all.knows(channel), is_known, "{channel}");
        }
    }

    #[test]
    fn patterns_precede_names_and_literals_precede_parameters() {
        let options = |event_level| NamespaceOptions {
            event_level,
            ..NamespaceOptions::default()
        };
        let mut all = Namespaces::new();
        all.insert("", options(EventLevel::Members));
        for (pattern, options) in [
            ("/users/:user", options(EventLevel::Off)),
            ("/users/all", options(EventLevel::Occupancy)),
        ] {
            all.insert_pattern(PathPattern::new(pattern).expect("a pattern"), options);
        }
        assert_eq!(all.of("/users/ann").event_level, EventLevel::Off);
        assert_eq!(all.of("/users/all").event_level, EventLevel::Occupancy);
        assert_eq!(all.of("/users/ann/x").event_level, EventLevel::Members);
        assert_eq!(all.parameter("/users/ann", "user"), Some("ann"));
        assert_eq!(all.parameter("/users/all", "user"), None);
        assert_eq!(all.parameter("users/ann", "user"), None);
    }

    #[test]
    fn a_wildcard_channel_remembers_nothing() {
        let news = NamespaceOptions {
            history: Some(HistoryOptions {
                size: 1,
                ttl_ms: 1,
                position_ttl_ms: 1,
                recovery: RecoveryMode::Missed,
                budget: Budget::COMMON,
            }),
            ..NamespaceOptions::default()
        };
        let mut all = Namespaces::with_wildcards(Wildcards::new(["news"]));
        all.insert("news", news);
        assert_eq!(all.of("news:1"), news);
        assert_eq!(all.of("news:*").history, None);
    }

    #[test]
    fn a_namespace_has_one_channel_for_all_of_its() {
        let wildcards = Wildcards::new(["news", ""]);
        for (channel, expected) in [
            ("news:1", Some("news:*")),
            ("news:a:b", Some("news:*")),
            ("news:*", Some("news:*")),
            ("lobby", Some("*")),
            ("*", Some("*")),
            ("chat:1", None),
            ("#ann", None),
            ("/users/ann", None),
            ("/news:1", None),
        ] {
            assert_eq!(wildcards.channel_for(channel), expected, "{channel}");
        }
        assert!(wildcards.has("") && !wildcards.has("chat"));
        assert_eq!(Wildcards::default().channel_for("news:1"), None);
    }
}
