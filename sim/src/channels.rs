//! The channels of a world and their kinds.

use veche_hub::{
    Budget, ChannelAccess, DeltaMode, EventLevel, HistoryOptions, NamespaceOptions, Namespaces,
    PublishAccess, RecoveryMode, SubscribeAccess, USERS, Wildcards,
};

use crate::setup::{FOREVER_MS, RESERVE_BYTES, Setup};

/// A channel with the kind of its namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulatedChannel {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The owner of a personal channel.
    pub(crate) user: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A channel with history and presence.
    Chat,
    /// A channel with a history of 120 publications.
    Log,
    /// A channel that keeps only the latest publication.
    Price,
    /// A channel without history: only clients that are subscribed at the time receive a publication.
    Open,
    /// A channel without history, but with presence and a leave delay.
    Lounge,
    /// A channel with history, which connection tokens list for a server-side subscription.
    Token,
    /// A personal channel with history.
    User,
    /// A channel with history in a namespace with wildcard subscriptions.
    News,
    /// A wildcard, to which clients subscribe like a channel; it has no history.
    Wild,
    /// A channel with a history of versioned states: outdated states are skipped.
    State,
    /// A channel with history and presence, where hooks decide on subscriptions and publications.
    Hooked,
    /// A channel without history, whose slow subscribers lose publications.
    Tick,
}

const fn channel(name: &'static str, kind: Kind) -> SimulatedChannel {
    SimulatedChannel {
        name,
        kind,
        user: None,
    }
}

const fn own(name: &'static str, user: &'static str) -> SimulatedChannel {
    SimulatedChannel {
        name,
        kind: Kind::User,
        user: Some(user),
    }
}

/// All channels: public ones, those granted by tokens, and personal ones in the order of users.
pub(crate) const CHANNELS: &[SimulatedChannel] = &[
    channel("chat:1", Kind::Chat),
    channel("open:1", Kind::Open),
    channel("chat:2", Kind::Chat),
    channel("log:1", Kind::Log),
    channel("price:1", Kind::Price),
    channel("lounge:1", Kind::Lounge),
    channel("news:1", Kind::News),
    channel("news:2", Kind::News),
    channel("news:*", Kind::Wild),
    channel("state:1", Kind::State),
    channel("tick:1", Kind::Tick),
    channel("decided:1", Kind::Hooked),
    channel("decided:2", Kind::Hooked),
    channel("given:1", Kind::Token),
    channel("given:2", Kind::Token),
    own("#ann", "ann"),
    own("#bob", "bob"),
    own("#cid", "cid"),
];

/// The number of public channels.
pub(crate) const COMMON: usize = 13;

/// The channels granted by tokens.
pub(crate) const TOKEN_CHANNELS: std::ops::Range<usize> = COMMON..COMMON + 2;

/// The number of users. Their personal channels are the last ones in [`CHANNELS`].
pub(crate) const USERS_COUNT: usize = CHANNELS.len() - TOKEN_CHANNELS.end;

/// Name of the namespace with wildcard subscriptions.
const WILDCARD_NAMESPACE: &str = "news";

/// Iterates over the channels of the wildcard namespace.
pub(crate) fn wildcard_channels() -> impl Iterator<Item = usize> {
    let all = CHANNELS.iter().enumerate();
    all.filter(|(_, one)| one.kind == Kind::News)
        .map(|(number, _)| number)
}

/// Returns the channel of a name.
pub(crate) fn find(name: &str) -> Option<usize> {
    CHANNELS.iter().position(|one| one.name == name)
}

/// Returns the personal channel of a user.
pub(crate) fn own_channel(user: usize) -> usize {
    TOKEN_CHANNELS.end + user % USERS_COUNT
}

/// The leave delay in milliseconds: long enough to be observed, short enough to end when the world settles.
pub(crate) const LEAVE_DELAY_MS: u64 = 3_000;

impl Kind {
    /// Returns the number of publications in the history; 0 without history.
    pub(crate) fn size(self, setup: &Setup) -> u32 {
        match self {
            Self::Chat | Self::Token | Self::User | Self::News | Self::State | Self::Hooked => {
                setup.history_size
            }
            Self::Log => 120,
            Self::Price => 1,
            Self::Open | Self::Lounge | Self::Wild | Self::Tick => 0,
        }
    }

    pub(crate) fn has_history(self) -> bool {
        !matches!(self, Self::Open | Self::Lounge | Self::Wild | Self::Tick)
    }

    /// Returns whether clients may publish.
    pub(crate) fn takes_clients(self) -> bool {
        !matches!(self, Self::Token | Self::User | Self::Wild | Self::State)
    }

    /// Returns whether publications are possible. A wildcard can only be subscribed to.
    pub(crate) fn takes_any(self) -> bool {
        self != Self::Wild
    }

    /// Returns whether subscribers receive everything, however slowly they read.
    pub(crate) fn is_whole(self) -> bool {
        self != Self::Tick
    }

    /// Returns whether presence can be queried.
    pub(crate) fn has_presence(self) -> bool {
        matches!(self, Self::Chat | Self::Lounge | Self::Hooked)
    }

    /// Returns whether members leave without a delay.
    pub(crate) fn has_exact_presence(self) -> bool {
        matches!(self, Self::Chat | Self::Hooked)
    }

    /// Returns whether hooks decide on subscriptions.
    pub(crate) fn is_hooked(self) -> bool {
        self == Self::Hooked
    }

    fn namespace(self, setup: &Setup, budget: Budget) -> NamespaceOptions {
        let history = self.has_history().then(|| HistoryOptions {
            size: self.size(setup),
            ttl_ms: setup.history_ttl_ms,
            position_ttl_ms: FOREVER_MS,
            recovery: match self {
                Self::Price => RecoveryMode::Latest,
                _ => RecoveryMode::Missed,
            },
            budget,
        });
        NamespaceOptions {
            history,
            access: match self {
                Self::Hooked => ChannelAccess {
                    subscribe: SubscribeAccess::Hook,
                    publish: PublishAccess::Hook,
                    ..ChannelAccess::default()
                },
                _ => ChannelAccess {
                    subscribe: SubscribeAccess::Client,
                    publish: PublishAccess::Subscriber,
                    ..ChannelAccess::default()
                },
            },
            presence: self.has_presence(),
            join_leave: self.has_presence(),
            force_push_join_leave: false,
            leave_delay_ms: if self == Self::Lounge {
                LEAVE_DELAY_MS
            } else {
                0
            },
            event_level: EventLevel::Off,
            drop_when_slow: !self.is_whole(),
            // The hub attaches the preceding publication to each publication, even if no client
            // wants deltas.
            delta_mode: DeltaMode::Always,
            tags_filter: false,
        }
    }
}

pub(crate) fn namespaces(setup: &Setup) -> Namespaces {
    let mut namespaces = Namespaces::with_wildcards(Wildcards::new([WILDCARD_NAMESPACE]));
    for channel in CHANNELS.iter().filter(|one| one.kind != Kind::Wild) {
        let name = match channel.kind {
            Kind::User => USERS,
            _ => veche_hub::namespace_of(channel.name),
        };
        let budget = match channel.kind {
            Kind::Log if setup.has_reserve => namespaces.add_budget(name, RESERVE_BYTES),
            _ => Budget::COMMON,
        };
        namespaces.insert(name, channel.kind.namespace(setup, budget));
    }
    namespaces
}
