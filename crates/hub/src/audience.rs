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
    own: Option<&'c str>,
    /// The names behind its last `#`, between commas.
    named: Option<&'c str>,
    /// Whose it is by its namespace, where that is a pattern.
    owner: Option<&'c str>,
    /// A `$` begins the name, or what follows the namespace.
    is_private: bool,
}

/// What lets a user into a channel, as far as its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Whatever lets users into channels, a pattern or a whole namespace too.
    Any,
    /// Only what is said of this very channel.
    ByName,
    /// Nothing that a client asks for.
    None,
}

impl<'c> Audience<'c> {
    /// Reads a channel's name, which is any text.
    pub fn of(channel: &'c str, namespaces: &'c Namespaces) -> Self {
        if let Some(user) = channel.strip_prefix('#') {
            return Self {
                own: Some(user),
                named: None,
                owner: None,
                is_private: false,
            };
        }
        let local = channel.split_once(':').map_or(channel, |(_, local)| local);
        Self {
            own: None,
            named: channel.rsplit_once('#').map(|(_, users)| users),
            owner: namespaces.parameter(channel, USER),
            is_private: channel.starts_with('$') || local.starts_with('$'),
        }
    }

    /// Whether the name leaves nobody out.
    pub fn is_everyone(&self) -> bool {
        !self.is_private && self.own.or(self.named).or(self.owner).is_none()
    }

    /// Whether the name takes a word about this very channel.
    pub fn is_private(&self) -> bool {
        self.is_private
    }

    /// Whether a user is among those whom the name says, if it says any; `""` is anonymous, and never is.
    pub fn includes(&self, user: &str) -> bool {
        let is_user = |name: &str| !user.is_empty() && name == user;
        self.own.is_none_or(is_user)
            && self.owner.is_none_or(is_user)
            && self.named.is_none_or(|names| names.split(',').any(is_user))
    }

    /// What lets a user in who asks for it; `""` is anonymous.
    pub fn entry(&self, user: &str) -> Entry {
        match self.is_private {
            // The server subscribes its user.
            _ if self.own.is_some() || !self.includes(user) => Entry::None,
            true => Entry::ByName,
            false => Entry::Any,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Namespace, Pattern};

    fn namespaces() -> Namespaces {
        let mut all = Namespaces::new();
        for pattern in ["/users/:user/orders", "/users/:user", "/rooms/:room"] {
            let pattern = Pattern::new(pattern).expect("a pattern");
            all.insert_pattern(pattern, Namespace::default());
        }
        all
    }

    #[test]
    fn names_say_for_whom_a_channel_is() {
        use Entry::{Any, ByName, None};
        let namespaces = namespaces();
        for (channel, everyone, ann, anonymous) in [
            ("news", true, Any, Any),
            ("chat:42", true, Any, Any),
            ("chat:a$", true, Any, Any),
            ("chat:a:$b", true, Any, Any),
            ("", true, Any, Any),
            ("$42", false, ByName, ByName),
            ("chat:$42", false, ByName, ByName),
            ("$chat:42", false, ByName, ByName),
            ("dialog:7#ann", false, Any, None),
            ("dialog:7#bob,ann", false, Any, None),
            ("dialog:7#bob", false, None, None),
            ("dialog:7#anna", false, None, None),
            ("dialog:7#ann ", false, None, None),
            ("dialog:7#", false, None, None),
            ("dialog:7#,", false, None, None),
            ("dialog:$7#ann", false, ByName, None),
            // What stands before the last # is free text.
            ("dialog:#ann#bob", false, None, None),
            ("dialog:#bob#ann", false, Any, None),
            ("#ann", false, None, None),
            ("#bob", false, None, None),
            ("#ann,bob", false, None, None),
            ("/users/ann/orders", false, Any, None),
            ("/users/bob/orders", false, None, None),
            ("/users/bob", false, None, None),
            ("/users/bob#ann", false, None, None),
            ("/users/ann/orders#ann", false, Any, None),
            ("/users/ann/other", true, Any, Any),
            ("/rooms/7", true, Any, Any),
            ("/rooms/7#bob", false, None, None),
        ] {
            let audience = Audience::of(channel, &namespaces);
            assert_eq!(audience.is_everyone(), everyone, "{channel}");
            assert_eq!(audience.entry("ann"), ann, "{channel}");
            assert_eq!(audience.entry(""), anonymous, "{channel}");
        }
    }

    #[test]
    fn an_own_channel_is_its_users_whatever_he_is_called() {
        let namespaces = namespaces();
        for (channel, user) in [("#ann", "ann"), ("#ann,bob", "ann,bob"), ("#a#b", "a#b")] {
            let audience = Audience::of(channel, &namespaces);
            assert!(audience.includes(user), "{channel}");
            assert!(!audience.includes("") && !audience.includes("bob"));
            assert_eq!(audience.entry(user), Entry::None);
        }
        assert!(!Audience::of("#ann,bob", &namespaces).includes("ann"));
        assert!(!Audience::of("#", &namespaces).includes(""));
    }
}
