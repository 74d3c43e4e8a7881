//! Namespaces: what stands before the first `:` of a channel's name carries its options, or a pattern that fits it.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::Pattern;

/// What of a channel is told to the back end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    /// Nothing.
    #[default]
    Nothing,
    /// When it gets its first subscriber and loses its last; when somebody wants its latest publication, and there is none.
    Occupancy,
    /// Also who joins and leaves.
    Members,
}

/// The namespace of users' own channels: `#ann` is the channel of the user `ann`.
pub const USERS: &str = "#";

/// How channels remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// Publications that a channel keeps; at least 1.
    pub size: u32,
    /// How long each is kept.
    pub ttl_ms: u64,
    /// How long a channel without publications and subscribers keeps its position, from its last publication on.
    pub position_ttl_ms: u64,
    /// What those get who come back.
    pub recovery: Recovery,
    /// The budget that they count to.
    pub budget: Budget,
}

/// A part of what all channels may remember: the one of its namespace, which only [`Namespaces::add_budget`] gives, or by
/// default the rest, for all that have none of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget(u16);

impl Budget {
    /// The rest.
    pub const COMMON: Self = Self(0);

    pub(crate) fn place(self) -> usize {
        self.0.into()
    }
}

/// What those get who come back to a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// All that they have missed, or word that it is not there any more.
    #[default]
    Missed,
    /// The latest publication, if they don't have it.
    Latest,
}

/// What clients may do with channels by themselves. What the back end does is not asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Who may subscribe.
    pub subscribe: Subscribing,
    /// Who may publish.
    pub publish: Publishing,
    /// Who may read the history.
    pub history: Reading,
    /// Who may read the presence.
    pub presence: Reading,
}

/// Which clients may read the history or the presence of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// None.
    Nobody,
    /// Those that are subscribed to it.
    #[default]
    Subscriber,
    /// Every one that could subscribe, but of what is private only subscribers.
    Client,
}

/// Which clients may subscribe to a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Subscribing {
    /// None.
    #[default]
    Nobody,
    /// Those with a token for it.
    Token,
    /// Every one, but to what is private or of named users.
    Client,
    /// Those whom somebody else lets in, who is asked each time.
    Hook,
}

/// Which clients may publish to a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Publishing {
    /// None.
    #[default]
    Nobody,
    /// Those who are subscribed to it.
    Subscriber,
    /// Every one that could subscribe, but to what is private.
    Client,
    /// Those whom somebody else lets, who is asked each time and may change what is published.
    Hook,
}

/// Which publications go out together with the one before, so that those who have that one can be told what has changed
/// alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Differences {
    /// None.
    #[default]
    Off,
    /// Those that ask for it.
    Asked,
    /// All that channels keep.
    Always,
}

/// The options of channels of one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Whether its channels remember, and how.
    pub history: Option<History>,
    /// What clients may do there by themselves.
    pub access: Access,
    /// Whether it can be asked who is there.
    pub presence: bool,
    /// Whether subscribers are told who joins and leaves.
    pub join_leave: bool,
    /// Whether clients get these joins and leaves without asking.
    pub force_push_join_leave: bool,
    /// How long after a user's last connection has gone he is told to have left, unless he comes back; 0: connections
    /// come and go, not users.
    pub leave_delay_ms: u64,
    /// What the back end is told of them.
    pub told: Told,
    /// Whether a subscriber who reads too slowly misses what is published meanwhile, rather than being disconnected. Only
    /// where channels don't remember: there nothing may be missing.
    pub slow_miss: bool,
    /// Whether subscribers can be told differences alone, and of which publications; where channels remember.
    pub differences: Differences,
    /// Whether subscribers may say which tags a publication has to have for them.
    pub tags_filter: bool,
}

impl Namespace {
    /// Whether its channels know who is there.
    pub fn has_members(&self) -> bool {
        self.presence || self.join_leave || self.told == Told::Members
    }
}

/// All namespaces, by name. Channels of one that is not there have the default options.
#[derive(Clone, Debug, Default)]
pub struct Namespaces {
    by_name: HashMap<Box<str>, Namespace, RandomState>,
    /// There is one where slow subscribers miss some.
    has_slow_miss: bool,
    /// Those whose name is a pattern; of two that fit a channel the first counts.
    by_pattern: Vec<(Pattern, Namespace)>,
    /// What namespaces may take by themselves.
    budgets: Vec<(Box<str>, usize)>,
    wildcards: Wildcards,
    /// Channels of other namespaces are unknown.
    is_closed: bool,
}

impl Namespaces {
    /// None but the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// The channels of these namespaces are heard together.
    #[must_use]
    pub fn with_wildcards(wildcards: Wildcards) -> Self {
        Self {
            wildcards,
            ..Self::default()
        }
    }

    /// Channels of namespaces that are not [inserted](Self::insert) are unknown from now on.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Whether a channel is of a namespace that is there, where these are [closed](Self::close). Names without a `:` are of
    /// the namespace `""`, which always is.
    pub fn knows(&self, channel: &str) -> bool {
        let is_there = |name: &str| matches!(name, "" | USERS) || self.by_name.contains_key(name);
        !self.is_closed || self.fitting(channel).is_some() || is_there(namespace_of(channel))
    }

    /// Which channels are heard together.
    pub fn wildcards(&self) -> &Wildcards {
        &self.wildcards
    }

    /// The channels of this namespace may take so many bytes for what they remember, those of all workers together, and
    /// nothing of the common budget. For its [`History::budget`].
    ///
    /// # Panics
    /// If there are more than 65,535.
    pub fn add_budget(&mut self, name: &str, bytes: usize) -> Budget {
        self.budgets.push((name.into(), bytes));
        Budget(u16::try_from(self.budgets.len()).expect("a configuration has fewer namespaces"))
    }

    /// The budgets of namespaces, in the order of their numbers.
    pub(crate) fn budgets(&self) -> impl Iterator<Item = (&str, usize)> + Clone {
        self.budgets.iter().map(|(name, bytes)| (&**name, *bytes))
    }

    /// The options of this namespace are these: `""` has the channels without a `:`, [`USERS`] those of users.
    pub fn insert(&mut self, name: &str, options: Namespace) {
        self.has_slow_miss |= options.slow_miss;
        self.by_name.insert(name.into(), options);
    }

    /// The options of the channels whose names fit a pattern. Where several fit, the one counts that is spelled out at the
    /// first place where they differ.
    pub fn insert_pattern(&mut self, pattern: Pattern, options: Namespace) {
        self.has_slow_miss |= options.slow_miss;
        let others = self.by_pattern.iter();
        let place = others
            .take_while(|(other, _)| !pattern.precedes(other))
            .count();
        self.by_pattern.insert(place, (pattern, options));
    }

    /// What stands for a parameter in a channel's name, where a pattern fits that.
    pub fn parameter<'c>(&'c self, channel: &'c str, name: &str) -> Option<&'c str> {
        let (pattern, _) = self.fitting(channel)?;
        let mut parameters = pattern.parameters(channel);
        parameters.find_map(|(one, given)| (one == name).then_some(given))
    }

    /// Whether subscribers of a channel who read too slowly miss what is published meanwhile.
    pub(crate) fn slow_miss(&self, channel: &str) -> bool {
        self.has_slow_miss && self.of(channel).slow_miss
    }

    fn fitting(&self, channel: &str) -> Option<&(Pattern, Namespace)> {
        if !channel.starts_with('/') {
            return None;
        }
        let mut all = self.by_pattern.iter();
        all.find(|(pattern, _)| pattern.fits(channel))
    }

    /// The options of a channel.
    pub fn of(&self, channel: &str) -> Namespace {
        if let Some((_, options)) = self.fitting(channel) {
            return *options;
        }
        if self.by_name.is_empty() {
            return Namespace::default();
        }
        let found = self.by_name.get(namespace_of(channel));
        let mut options = found.copied().unwrap_or_default();
        if self.wildcards.of(channel) == Some(channel) {
            options.history = None;
            options.differences = Differences::Off;
        }
        options
    }
}

/// The name of a channel's namespace.
pub fn namespace_of(channel: &str) -> &str {
    match channel.as_bytes() {
        [b'#', ..] => USERS,
        _ => channel.split_once(':').map_or("", |(name, _)| name),
    }
}

/// The namespaces whose channels are heard together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wildcards(Arc<[Wildcard]>);

#[derive(Debug, PartialEq, Eq)]
struct Wildcard {
    namespace: Box<str>,
    channel: Box<str>,
}

impl Wildcards {
    /// Those of these namespaces. Personal channels have none.
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

    /// Whether a namespace has one.
    pub fn has(&self, namespace: &str) -> bool {
        self.0.iter().any(|one| *one.namespace == *namespace)
    }

    /// The channel by which all of this one's namespace are heard, which may be this one itself.
    pub fn of(&self, channel: &str) -> Option<&str> {
        // What may fit a pattern belongs to no namespace of that kind, whether there is one or not.
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
        let history = History {
            size: 1,
            ttl_ms: 1,
            position_ttl_ms: 1,
            recovery: Recovery::Missed,
            budget: Budget::COMMON,
        };
        let chat = Namespace {
            history: Some(history),
            ..Namespace::default()
        };
        let mut all = Namespaces::new();
        assert_eq!(all.of("chat:1"), Namespace::default());
        all.insert("chat", chat);
        assert_eq!(all.of("chat:1"), chat);
        assert_eq!(all.of("chat"), Namespace::default());
        assert_eq!(all.of("other:1"), Namespace::default());
    }

    #[test]
    fn closed_namespaces_know_their_own_channels() {
        let mut all = Namespaces::new();
        assert!(all.knows("other:1"));
        all.insert("chat", Namespace::default());
        let pattern = Pattern::new("/users/:user").expect("a pattern");
        all.insert_pattern(pattern, Namespace::default());
        all.close();
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
    fn patterns_go_before_names_and_what_is_spelled_out_before_parameters() {
        let told = |told| Namespace {
            told,
            ..Namespace::default()
        };
        let mut all = Namespaces::new();
        all.insert("", told(Told::Members));
        for (pattern, options) in [
            ("/users/:user", told(Told::Nothing)),
            ("/users/all", told(Told::Occupancy)),
        ] {
            all.insert_pattern(Pattern::new(pattern).expect("a pattern"), options);
        }
        assert_eq!(all.of("/users/ann").told, Told::Nothing);
        assert_eq!(all.of("/users/all").told, Told::Occupancy);
        assert_eq!(all.of("/users/ann/x").told, Told::Members);
        assert_eq!(all.parameter("/users/ann", "user"), Some("ann"));
        assert_eq!(all.parameter("/users/all", "user"), None);
        assert_eq!(all.parameter("users/ann", "user"), None);
    }

    #[test]
    fn a_wildcard_channel_remembers_nothing() {
        let news = Namespace {
            history: Some(History {
                size: 1,
                ttl_ms: 1,
                position_ttl_ms: 1,
                recovery: Recovery::Missed,
                budget: Budget::COMMON,
            }),
            ..Namespace::default()
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
            assert_eq!(wildcards.of(channel), expected, "{channel}");
        }
        assert!(wildcards.has("") && !wildcards.has("chat"));
        assert_eq!(Wildcards::default().of("news:1"), None);
    }
}
