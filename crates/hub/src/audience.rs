//! For whom a channel is by its name, which every way into it goes by.
//!
//! | name | for |
//! |---|---|
//! | `news`, `chat:42` | everybody whom its namespace, or a route, lets in |
//! | `$42`, `chat:$42` | those who are let into this very channel: by a token for it, its whole name in a route, a hook |
//! | `dialog:7#ann,bob` | the users `ann` and `bob` |
//! | `/users/ann/orders`, where `/users/:user/orders` is a namespace | the user `ann` |
//! | `#ann` | the user `ann`, whom the server subscribes; nobody asks for it |
//!
//! What a back end gives a session by the channel's name is the back end's own decision, and not asked about here.

use crate::Namespaces;
use crate::pattern::USER;

/// For whom a channel is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audience<'c> {
    /// Whose own channel it is.
    user: Option<&'c str>,
    /// The names behind its last `#`, between commas.
    user_list: Option<&'c str>,
    /// Whose it is by its namespace, where that is a pattern.
    pattern_user: Option<&'c str>,
    /// A `$` begins the name, or what follows the namespace.
    is_private: bool,
}

/// What lets a user into a channel, as far as its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryRequirement {
    /// Whatever lets users into channels, a pattern or a whole namespace too.
    AnyGrant,
    /// Only what is said of this very channel.
    NamedGrant,
    /// Nothing that a client asks for.
    Never,
}

impl<'c> Audience<'c> {
    /// Reads a channel's name, which is any text.
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

    /// Whether the name leaves nobody out.
    pub fn is_everyone(&self) -> bool {
        !self.is_private && self.user.or(self.user_list).or(self.pattern_user).is_none()
    }

    /// Whether the name takes a word about this very channel.
    pub fn is_private(&self) -> bool {
        self.is_private
    }

    /// Whether a user is among those whom the name says, if it says any; `""` is anonymous, and never is.
    pub fn includes(&self, user: &str) -> bool {
        let is_user = |name: &str| !user.is_empty() && name == user;
        self.user.is_none_or(is_user)
            && self.pattern_user.is_none_or(is_user)
            && self
                .user_list
                .is_none_or(|names| names.split(',').any(is_user))
    }

    /// What lets a user in who asks for it; `""` is anonymous.
    pub fn entry_requirement(&self, user: &str) -> EntryRequirement {
        match self.is_private {
            // The server subscribes its user.
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
    fn names_say_for_whom_a_channel_is() {
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
            // What stands before the last # is free text.
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
