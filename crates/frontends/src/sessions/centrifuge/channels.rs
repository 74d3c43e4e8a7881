//! The permissions of clients in a channel. They are determined by the options of the namespace and by the users that
//! the channel's name admits ([`Audience`]).

use veche_centrifuge::ErrorCode;
use veche_hub::{
    Audience, ChannelName, EntryRequirement, NameError, Namespaces, PublishAccess, ReadAccess,
    SubscribeAccess,
};

/// What a permitted command still requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    Granted,
    WithToken,
    WithHook,
}

/// Parses a channel name that a client sent, and checks that its namespace exists.
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

/// Returns what a user's subscription requires, or an error if it is not permitted.
pub(super) fn subscribe_permission(
    channel: ChannelName<'_>,
    user: &str,
    namespaces: &Namespaces,
) -> Result<Permission, ErrorCode> {
    let name = channel.as_str();
    let entry = Audience::of(name, namespaces).entry_requirement(user);
    match (namespaces.of(name).access.subscribe, entry) {
        (SubscribeAccess::Disabled, _) | (_, EntryRequirement::Never) => {
            Err(ErrorCode::PermissionDenied)
        }
        (SubscribeAccess::Client, EntryRequirement::AnyGrant) => Ok(Permission::Granted),
        (SubscribeAccess::Client | SubscribeAccess::Token, _) => Ok(Permission::WithToken),
        (SubscribeAccess::Hook, _) => Ok(Permission::WithHook),
    }
}

/// Returns what a user's publication requires: nothing or a hook decision; `None` if the user may not publish. For a
/// subscriber it makes no difference whether a token granted the subscription.
pub(super) fn publish_permission(
    channel: ChannelName<'_>,
    user: &str,
    is_subscribed: bool,
    namespaces: &Namespaces,
) -> Option<Permission> {
    let name = channel.as_str();
    if namespaces.wildcards().channel_for(name) == Some(name) {
        // Wildcard channels can only be subscribed to.
        return None;
    }
    let audience = Audience::of(name, namespaces);
    let is_included = audience.includes(user);
    let (may, leave) = match namespaces.of(name).access.publish {
        PublishAccess::Disabled => (false, Permission::Granted),
        PublishAccess::Subscriber => (is_subscribed, Permission::Granted),
        PublishAccess::Client => {
            let is_free = is_included && !audience.is_private();
            (is_subscribed || is_free, Permission::Granted)
        }
        PublishAccess::Hook => (is_subscribed || is_included, Permission::WithHook),
    };
    may.then_some(leave)
}

/// Returns whether a user may read a channel's history or presence. `reading` is the namespace's option for the
/// requested data.
pub(super) fn may_read(
    channel: ChannelName<'_>,
    user: &str,
    is_subscribed: bool,
    namespaces: &Namespaces,
    reading: ReadAccess,
) -> bool {
    match reading {
        ReadAccess::Disabled => false,
        ReadAccess::Subscriber => is_subscribed,
        ReadAccess::Client => {
            let audience = Audience::of(channel.as_str(), namespaces);
            is_subscribed || (audience.includes(user) && !audience.is_private())
        }
    }
}

#[cfg(test)]
mod tests {
    use veche_hub::{ChannelAccess, NamespaceOptions, PathPattern, USERS, Wildcards};

    use super::*;

    /// Creates namespaces that all have these permissions.
    fn access(subscribe: SubscribeAccess, publish: PublishAccess) -> Namespaces {
        let options = NamespaceOptions {
            access: ChannelAccess {
                subscribe,
                publish,
                ..ChannelAccess::default()
            },
            ..NamespaceOptions::default()
        };
        let mut all = Namespaces::with_wildcards(Wildcards::new(["news"]));
        for name in ["", "$chat", "chat", "news", USERS] {
            all.insert(name, options);
        }
        for pattern in ["/users/:user/orders", "/rooms/:room"] {
            all.insert_pattern(PathPattern::new(pattern).expect("a pattern"), options);
        }
        all
    }

    #[test]
    fn channel_names_determine_subscribe_permission() {
        use Permission::{Granted, WithToken};
        const NO: Result<Permission, ErrorCode> = Err(ErrorCode::PermissionDenied);
        // Columns: channel, user, and the expected result with `subscribe` set to `client` and to `token`.
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
                (SubscribeAccess::Client, client),
                (SubscribeAccess::Token, token),
                (SubscribeAccess::Disabled, NO),
                (SubscribeAccess::Hook, client.map(|_| Permission::WithHook)),
            ];
            for (subscribe, expected) in rows {
                let access = access(subscribe, PublishAccess::Client);
                assert_eq!(
                    subscribe_permission(channel, user, &access),
                    expected,
                    "{name} {user} {subscribe:?}"
                );
            }
        }
    }

    /// Checks each row of the guide's table of permissions, with each option, for users without and with a
    /// subscription.
    #[test]
    fn names_and_options_determine_publish_permission() {
        use Permission::{Granted, WithHook};
        const OPTIONS: [PublishAccess; 4] = [
            PublishAccess::Disabled,
            PublishAccess::Subscriber,
            PublishAccess::Client,
            PublishAccess::Hook,
        ];
        const SUBSCRIBED: [Option<Permission>; 4] =
            [None, Some(Granted), Some(Granted), Some(WithHook)];
        const FREE: [Option<Permission>; 4] = [None, None, Some(Granted), Some(WithHook)];
        const PRIVATE: [Option<Permission>; 4] = [None, None, None, Some(WithHook)];
        const NO: [Option<Permission>; 4] = [None; 4];
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
            // This name is the personal channel of a single user, `ann,bob`.
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
                    let access = access(SubscribeAccess::Disabled, publish);
                    publish_permission(channel, user, is_subscribed, &access)
                })
            };
            assert_eq!(may(false), free, "{name} {user}");
            assert_eq!(may(true), subscribed, "{name} {user}, subscribed");
        }
    }
}
