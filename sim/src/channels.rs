//! The channels of a world, and what kind each is.

use veche_hub::{
    Budget, ChannelAccess, DeltaMode, EventLevel, HistoryOptions, NamespaceOptions, Namespaces,
    PublishAccess, RecoveryMode, SubscribeAccess, USERS, Wildcards,
};

use crate::setup::{FOREVER_MS, RESERVE_BYTES, Setup};

/// A channel and what its namespace promises.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channel {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The user whose own it is.
    pub(crate) user: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It remembers, and knows who is there.
    Chat,
    /// It remembers more.
    Log,
    /// It remembers the latest.
    Price,
    /// It remembers nothing.
    Open,
    /// It remembers nothing, and knows who is there, also those who have left just now.
    Lounge,
    /// It remembers, and those have it whose tokens name it, from the beginning on.
    Token,
    /// A user's own, which remembers.
    User,
    /// It remembers, and is also heard together with the others of its namespace.
    News,
    /// All of a namespace, as one channel, which remembers nothing.
    Wild,
    /// It remembers states, of which older ones are not taken once there is a newer.
    State,
    /// It remembers, knows who is there, and others decide who hears it and what is published there.
    Hooked,
    /// It remembers nothing, and whoever reads too slowly misses some.
    Tick,
}

const fn channel(name: &'static str, kind: Kind) -> Channel {
    Channel {
        name,
        kind,
        user: None,
    }
}

const fn own(name: &'static str, user: &'static str) -> Channel {
    Channel {
        name,
        kind: Kind::User,
        user: Some(user),
    }
}

/// All of them: those that anybody may have, those that are given, and the users' own, the first user's first.
pub(crate) const CHANNELS: &[Channel] = &[
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

/// How many of them are anybody's.
pub(crate) const COMMON: usize = 13;

/// Those that are given.
pub(crate) const TOKEN_CHANNELS: std::ops::Range<usize> = COMMON..COMMON + 2;

/// Users; their own channels are the last ones.
pub(crate) const USERS_COUNT: usize = CHANNELS.len() - TOKEN_CHANNELS.end;

/// The namespace that is heard as a whole.
const WILDCARD_NAMESPACE: &str = "news";

/// Its channels.
pub(crate) fn wildcard_channels() -> impl Iterator<Item = usize> {
    let all = CHANNELS.iter().enumerate();
    all.filter(|(_, one)| one.kind == Kind::News)
        .map(|(number, _)| number)
}

/// The channel of this name.
pub(crate) fn find(name: &str) -> Option<usize> {
    CHANNELS.iter().position(|one| one.name == name)
}

/// The own channel of a user.
pub(crate) fn own_channel(user: usize) -> usize {
    TOKEN_CHANNELS.end + user % USERS_COUNT
}

/// Long enough to be seen, short enough to be over when everything settles.
pub(crate) const LEAVE_DELAY_MS: u64 = 3_000;

impl Kind {
    /// How many publications are kept; 0: it does not remember.
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

    /// Whether clients publish there.
    pub(crate) fn takes_clients(self) -> bool {
        !matches!(self, Self::Token | Self::User | Self::Wild | Self::State)
    }

    /// Whether anything is published there at all.
    pub(crate) fn takes_any(self) -> bool {
        self != Self::Wild
    }

    /// Whether whoever is subscribed hears everything, however slowly he reads.
    pub(crate) fn is_whole(self) -> bool {
        self != Self::Tick
    }

    /// Whether it can be asked who is there.
    pub(crate) fn has_presence(self) -> bool {
        matches!(self, Self::Chat | Self::Lounge | Self::Hooked)
    }

    /// Whether those who leave are gone at once.
    pub(crate) fn has_exact_presence(self) -> bool {
        matches!(self, Self::Chat | Self::Hooked)
    }

    /// Whether others decide who hears it.
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
            // Its publications go out together with the one before, of which no client wants to know.
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
