//! What a client may do in a channel by itself, by the options of the namespace and the users that its name admits
//! ([`Audience`]).

use veche_centrifuge::ErrorCode;
use veche_hub::{
    Audience, ChannelName, Entry, NameError, Namespaces, Publishing, Reading, Subscribing,
};

/// What a permission additionally requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    Granted,
    WithToken,
    WithVerdict,
}

/// Validates a channel name of a client.
pub(super) fn named<'c>(
    channel: &'c str,
    namespaces: &Namespaces,
) -> Result<ChannelName<'c>, ErrorCode> {
    let name = ChannelName::new(channel).map_err(|error| match error {
        NameError::Long => ErrorCode::BadRequest,
        NameError::Empty | NameError::Control => ErrorCode::UnknownChannel,
    })?;
    match namespaces.knows(channel) {
        true => Ok(name),
        false => Err(ErrorCode::UnknownChannel),
    }
}

/// Returns whether a user may subscribe, and what that requires.
pub(super) fn may_subscribe(
    channel: ChannelName<'_>,
    user: &str,
    namespaces: &Namespaces,
) -> Result<Leave, ErrorCode> {
    let name = channel.as_str();
    let entry = Audience::of(name, namespaces).entry(user);
    match (namespaces.of(name).access.subscribe, entry) {
        (Subscribing::Nobody, _) | (_, Entry::None) => Err(ErrorCode::PermissionDenied),
        (Subscribing::Client, Entry::Any) => Ok(Leave::Granted),
        (Subscribing::Client | Subscribing::Token, _) => Ok(Leave::WithToken),
        (Subscribing::Hook, _) => Ok(Leave::WithVerdict),
    }
}

/// Returns whether a user may publish, and whether that requires a hook decision. Tokens do not matter.
pub(super) fn may_publish(
    channel: ChannelName<'_>,
    user: &str,
    is_subscribed: bool,
    namespaces: &Namespaces,
) -> Option<Leave> {
    let name = channel.as_str();
    if namespaces.wildcards().of(name) == Some(name) {
        // Wildcards are for receiving only.
        return None;
    }
    let audience = Audience::of(name, namespaces);
    let is_included = audience.includes(user);
    let (may, leave) = match namespaces.of(name).access.publish {
        Publishing::Nobody => (false, Leave::Granted),
        Publishing::Subscriber => (is_subscribed, Leave::Granted),
        Publishing::Client => {
            let is_free = is_included && !audience.is_private();
            (is_subscribed || is_free, Leave::Granted)
        }
        Publishing::Hook => (is_subscribed || is_included, Leave::WithVerdict),
    };
    may.then_some(leave)
}

/// Returns whether a user may read a channel's history or presence, by the option `reading` of its namespace.
pub(super) fn may_read(
    channel: ChannelName<'_>,
    user: &str,
    is_subscribed: bool,
    namespaces: &Namespaces,
    reading: Reading,
) -> bool {
    match reading {
        Reading::Nobody => false,
        Reading::Subscriber => is_subscribed,
        Reading::Client => {
            let audience = Audience::of(channel.as_str(), namespaces);
            is_subscribed || (audience.includes(user) && !audience.is_private())
        }
    }
}

#[cfg(test)]
mod tests {
    use veche_hub::{Access, Namespace, Pattern, USERS, Wildcards};

    use super::*;

    /// Returns a namespace with these permissions.
    fn access(subscribe: Subscribing, publish: Publishing) -> Namespaces {
        let options = Namespace {
            access: Access {
                subscribe,
                publish,
                ..Access::default()
            },
            ..Namespace::default()
        };
        let mut all = Namespaces::with_wildcards(Wildcards::new(["news"]));
        for name in ["", "$chat", "chat", "news", USERS] {
            all.insert(name, options);
        }
        for pattern in ["/users/:user/orders", "/rooms/:room"] {
            all.insert_pattern(Pattern::new(pattern).expect("a pattern"), options);
        }
        all
    }

    #[test]
    fn names_say_who_may_subscribe() {
        use Leave::{Granted, WithToken};
        const NO: Result<Leave, ErrorCode> = Err(ErrorCode::PermissionDenied);
        // With "client", with "token".
        for (name, user, client, token) in [
            ("news", "", Ok(Granted), Ok(WithToken)),
            ("chat:1", "ann", Ok(Granted), Ok(WithToken)),
            ("$news", "ann", Ok(WithToken), Ok(WithToken)),
            ("chat:$1", "ann", Ok(WithToken), Ok(WithToken)),
            ("$chat:1", "ann", Ok(WithToken), Ok(WithToken)),
            ("chat:a$", "ann", Ok(Granted), Ok(WithToken)),
            ("chat:1#ann", "ann", Ok(Granted), Ok(WithToken)),
            ("chat:1#bob,ann", "ann", Ok(Granted), Ok(WithToken)),
            ("chat:1#bob", "ann", NO, NO),
            ("chat:1#anna", "ann", NO, NO),
            ("chat:1#", "", NO, NO),
            ("chat:1#,ann", "", NO, NO),
            ("#ann", "ann", NO, NO),
            ("#bob", "ann", NO, NO),
            ("news:*", "", Ok(Granted), Ok(WithToken)),
            ("/users/ann/orders", "ann", Ok(Granted), Ok(WithToken)),
            ("/users/bob/orders", "ann", NO, NO),
            ("/users/ann/orders", "", NO, NO),
            ("/rooms/1", "", Ok(Granted), Ok(WithToken)),
        ] {
            let channel = ChannelName::new(name).expect("a name");
            let rows = [
                (Subscribing::Client, client),
                (Subscribing::Token, token),
                (Subscribing::Nobody, NO),
                (Subscribing::Hook, client.map(|_| Leave::WithVerdict)),
            ];
            for (subscribe, expected) in rows {
                let access = access(subscribe, Publishing::Client);
                assert_eq!(
                    may_subscribe(channel, user, &access),
                    expected,
                    "{name} {user} {subscribe:?}"
                );
            }
        }
    }

    /// The guide's table of permissions, row by row: with each option, not subscribed and subscribed.
    #[test]
    fn names_and_options_say_who_may_publish() {
        use Leave::{Granted, WithVerdict};
        const OPTIONS: [Publishing; 4] = [
            Publishing::Nobody,
            Publishing::Subscriber,
            Publishing::Client,
            Publishing::Hook,
        ];
        const SUBSCRIBED: [Option<Leave>; 4] =
            [None, Some(Granted), Some(Granted), Some(WithVerdict)];
        const FREE: [Option<Leave>; 4] = [None, None, Some(Granted), Some(WithVerdict)];
        const PRIVATE: [Option<Leave>; 4] = [None, None, None, Some(WithVerdict)];
        const NO: [Option<Leave>; 4] = [None; 4];
        for (name, user, free, subscribed) in [
            ("news", "", FREE, SUBSCRIBED),
            ("$news", "ann", PRIVATE, SUBSCRIBED),
            ("chat:$1", "ann", PRIVATE, SUBSCRIBED),
            ("chat:1#ann,bob", "ann", FREE, SUBSCRIBED),
            ("chat:$1#ann,bob", "ann", PRIVATE, SUBSCRIBED),
            ("x#ann,bob", "ann", FREE, SUBSCRIBED),
            ("x#ann,bob", "eve", NO, SUBSCRIBED),
            ("x#ann,bob", "", NO, SUBSCRIBED),
            ("chat:1#bob", "ann", NO, SUBSCRIBED),
            ("#ann", "ann", FREE, SUBSCRIBED),
            ("#bob", "ann", NO, SUBSCRIBED),
            // It is the personal channel of one user with this name.
            ("#ann,bob", "ann", NO, SUBSCRIBED),
            ("#ann,bob", "ann,bob", FREE, SUBSCRIBED),
            ("/users/ann/orders", "ann", FREE, SUBSCRIBED),
            ("/users/bob/orders", "ann", NO, SUBSCRIBED),
            ("/users/ann/orders", "", NO, SUBSCRIBED),
            ("news:*", "ann", NO, NO),
        ] {
            let channel = ChannelName::new(name).expect("a name");
            let may = |is_subscribed| {
                OPTIONS.map(|publish| {
                    let access = access(Subscribing::Nobody, publish);
                    may_publish(channel, user, is_subscribed, &access)
                })
            };
            assert_eq!(may(false), free, "{name} {user}");
            assert_eq!(may(true), subscribed, "{name} {user}, subscribed");
        }
    }
}
