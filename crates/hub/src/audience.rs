//! The users a channel is meant for according to its name. Every way into the channel checks this.
//!
//! | name | meant for |
//! |---|---|
//! | `news`, `chat:42` | everyone admitted by the namespace or a route |
//! | `$42`, `chat:$42` | those admitted to this very channel: by a token for it, its full name in a route, or a hook |
//! | `dialog:7#ann,bob` | the users `ann` and `bob` |
//! | `/users/ann/orders`, where `/users/:user/orders` is a namespace | the user `ann` |
//! | `#ann` | the user `ann`, subscribed by the server; clients can't request it |
//!
//! Subscriptions that a back end grants by channel name are the back end's decision and are not checked here.

use crate::Namespaces;
use crate::pattern::USER;

/// The users that a channel's name restricts it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audience<'c> {
    /// The owner of a personal channel.
    own: Option<&'c str>,
    /// The comma-separated user names after the last `#`.
    named: Option<&'c str>,
    /// The user that the namespace's pattern extracts from the name.
    owner: Option<&'c str>,
    /// The name, or its part after the namespace, begins with `$`.
    is_private: bool,
}

/// The grant that a user needs to enter a channel, as far as its name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Any grant, including one for a pattern or a whole namespace.
    Any,
    /// Only a grant for this very channel.
    ByName,
    /// No grant that a client can request.
    None,
}

impl<'c> Audience<'c> {
    /// Parses a channel name, which is arbitrary text.
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

    /// Returns whether the name excludes no user.
    pub fn is_everyone(&self) -> bool {
        !self.is_private && self.own.or(self.named).or(self.owner).is_none()
    }

    /// Returns whether the channel requires a grant for its exact name.
    pub fn is_private(&self) -> bool {
        self.is_private
    }

    /// Returns whether the name includes a user. A name without a restriction includes all users; the anonymous user
    /// `""` is never part of a restriction.
    pub fn includes(&self, user: &str) -> bool {
        let is_user = |name: &str| !user.is_empty() && name == user;
        self.own.is_none_or(is_user)
            && self.owner.is_none_or(is_user)
            && self.named.is_none_or(|names| names.split(',').any(is_user))
    }

    /// Returns the grant that a user needs; `""` is anonymous.
    pub fn entry(&self, user: &str) -> Entry {
        match self.is_private {
            // The server subscribes the user to a personal channel.
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
            // The text before the last # is arbitrary.
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
