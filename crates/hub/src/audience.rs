//! The users to which a channel's name restricts the channel. This is checked whenever a client enters a channel.
//!
//! | name | users |
//! |---|---|
//! | `news`, `chat:42` | everyone admitted by the namespace or a route |
//! | `$42`, `chat:$42` | those admitted to this very channel: by a token for it, its full name in a route, or a hook |
//! | `dialog:7#ann,bob` | the users `ann` and `bob` |
//! | `/users/ann/orders`, where `/users/:user/orders` is a namespace | the user `ann` |
//! | `#ann` | the user `ann`, subscribed by the server; clients can't request it |
//!
//! If a back end grants a subscription by channel name, the back end has decided, and the name is not checked.

use crate::Namespaces;
use crate::pattern::USER;

/// The users to which a channel's name restricts the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audience<'c> {
    /// The owner of a personal channel.
    user: Option<&'c str>,
    /// The comma-separated user names after the last `#`.
    user_list: Option<&'c str>,
    /// The user name that the pattern of the namespace extracts from the channel's name.
    pattern_user: Option<&'c str>,
    /// Whether the name, or its part after the namespace, begins with `$`.
    is_private: bool,
}

/// The kind of grant that a user needs to enter a channel, as far as the channel's name determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryRequirement {
    /// Any grant, including one for a pattern or a whole namespace.
    AnyGrant,
    /// A grant for exactly this channel; a pattern or a namespace is not enough.
    NamedGrant,
    /// No grant that a client can request permits the user to enter.
    Never,
}

impl<'c> Audience<'c> {
    /// Determines the audience of a channel name, which may be any text.
    pub fn of(channel: &'c str, namespaces: &'c Namespaces) -> Self {
        if let Some(user) = channel.strip_prefix('#') {
            return Self {
                user: Some(user),
                user_list: None,
                pattern_user: None,
                is_private: false,
            };
        }
        let local = channel.split_once(':').map_or(channel, |(_, local)| local);
        Self {
            user: None,
            user_list: channel.rsplit_once('#').map(|(_, users)| users),
            pattern_user: namespaces.parameter(channel, USER),
            is_private: channel.starts_with('$') || local.starts_with('$'),
        }
    }

    /// Returns whether the channel's name sets no restriction, so that everyone whom the namespace or a route admits
    /// may enter.
    pub fn is_everyone(&self) -> bool {
        !self.is_private && self.user.or(self.user_list).or(self.pattern_user).is_none()
    }

    /// Returns whether the channel requires a grant for its exact name.
    pub fn is_private(&self) -> bool {
        self.is_private
    }

    /// Returns whether the name permits a user. A name without a restriction to certain users permits all users. `""`
    /// stands for an anonymous user, which such a restriction never permits.
    pub fn includes(&self, user: &str) -> bool {
        let is_user = |name: &str| !user.is_empty() && name == user;
        self.user.is_none_or(is_user)
            && self.pattern_user.is_none_or(is_user)
            && self
                .user_list
                .is_none_or(|names| names.split(',').any(is_user))
    }

    /// Returns the kind of grant that a user needs to enter; `""` stands for an anonymous user.
    pub fn entry_requirement(&self, user: &str) -> EntryRequirement {
        match self.is_private {
            // A personal channel can't be requested: the server subscribes its user.
            _ if self.user.is_some() || !self.includes(user) => EntryRequirement::Never,
            true => EntryRequirement::NamedGrant,
            false => EntryRequirement::AnyGrant,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NamespaceOptions, PathPattern};

    fn namespaces() -> Namespaces {
        let mut all = Namespaces::new();
        for pattern in ["/users/:user/orders", "/users/:user", "/rooms/:room"] {
            let pattern = PathPattern::new(pattern).expect("a pattern");
            all.insert_pattern(pattern, NamespaceOptions::default());
        }
        all
    }

    #[test]
    fn channel_names_restrict_their_subscribers() {
        use EntryRequirement::{AnyGrant, NamedGrant, Never};
        let namespaces = namespaces();
        for (channel, everyone, ann, anonymous) in [
            ("news", true, AnyGrant, AnyGrant),
            ("chat:42", true, AnyGrant, AnyGrant),
            ("chat:a$", true, AnyGrant, AnyGrant),
            ("chat:a:$b", true, AnyGrant, AnyGrant),
            ("", true, AnyGrant, AnyGrant),
            ("$42", false, NamedGrant, NamedGrant),
            ("chat:$42", false, NamedGrant, NamedGrant),
            ("$chat:42", false, NamedGrant, NamedGrant),
            ("dialog:7#ann", false, AnyGrant, Never),
            ("dialog:7#bob,ann", false, AnyGrant, Never),
            ("dialog:7#bob", false, Never, Never),
            ("dialog:7#anna", false, Never, Never),
            ("dialog:7#ann ", false, Never, Never),
            ("dialog:7#", false, Never, Never),
            ("dialog:7#,", false, Never, Never),
            ("dialog:$7#ann", false, NamedGrant, Never),
            // The user list begins after the last `#`; the text before it is arbitrary.
            ("dialog:#ann#bob", false, Never, Never),
            ("dialog:#bob#ann", false, AnyGrant, Never),
            ("#ann", false, Never, Never),
            ("#bob", false, Never, Never),
            ("#ann,bob", false, Never, Never),
            ("/users/ann/orders", false, AnyGrant, Never),
            ("/users/bob/orders", false, Never, Never),
            ("/users/bob", false, Never, Never),
            ("/users/bob#ann", false, Never, Never),
            ("/users/ann/orders#ann", false, AnyGrant, Never),
            ("/users/ann/other", true, AnyGrant, AnyGrant),
            ("/rooms/7", true, AnyGrant, AnyGrant),
            ("/rooms/7#bob", false, Never, Never),
        ] {
            let audience = Audience::of(channel, &namespaces);
            assert_eq!(audience.is_everyone(), everyone, "{channel}");
            assert_eq!(audience.entry_requirement("ann"), ann, "{channel}");
            assert_eq!(audience.entry_requirement(""), anonymous, "{channel}");
        }
    }

    #[test]
    fn an_own_channel_is_its_users_whatever_he_is_called() {
        let namespaces = namespaces();
        for (channel, user) in [("#ann", "ann"), ("#ann,bob", "ann,bob"), ("#a#b", "a#b")] {
            let audience = Audience::of(channel, &namespaces);
            assert!(audience.includes(user), "{channel}");
            assert!(!audience.includes("") && !audience.includes("bob"));
            assert_eq!(audience.entry_requirement(user), EntryRequirement::Never);
        }
        assert!(!Audience::of("#ann,bob", &namespaces).includes("ann"));
        assert!(!Audience::of("#", &namespaces).includes(""));
    }
}
