//! The `override` field of subscription tokens and of the API: options of a subscription that take precedence over
//! those of the namespace.

use veche_hub::NamespaceOptions;

/// How a subscription differs from its namespace in presence and in join and leave events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PresenceOverrides {
    /// Whether the client is hidden from presence and from join and leave events.
    pub(crate) is_hidden: bool,
    /// Whether the client receives join and leave events without requesting them; `None`: as configured for the
    /// namespace.
    pub(crate) receives_join_leave: Option<bool>,
}

impl PresenceOverrides {
    /// Returns whether the client receives join and leave events of a channel with these options without requesting
    /// them.
    pub(crate) fn receives_join_leave(self, options: &NamespaceOptions) -> bool {
        self.receives_join_leave
            .unwrap_or(options.force_push_join_leave)
    }
}

/// The fields of `override`; `None` keeps the namespace's option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamespaceOverride {
    pub(crate) presence: Option<bool>,
    pub(crate) join_leave: Option<bool>,
    pub(crate) force_push_join_leave: Option<bool>,
    pub(crate) force_positioning: Option<bool>,
    pub(crate) force_recovery: Option<bool>,
}

impl NamespaceOverride {
    /// Returns how a subscription differs from the `options` of its namespace, or the error text if `options` do not
    /// permit the override.
    pub(crate) fn presence_overrides(
        self,
        options: &NamespaceOptions,
    ) -> Result<PresenceOverrides, &'static str> {
        let remembers = options.history.is_some();
        if self
            .force_positioning
            .is_some_and(|wanted| wanted != remembers)
        {
            return Err(
                "override.force_positioning: history_size of the namespace determines this, so it can't be overridden",
            );
        }
        if self
            .force_recovery
            .is_some_and(|wanted| wanted != remembers)
        {
            return Err(
                "override.force_recovery: history_size of the namespace determines this, so it can't be overridden",
            );
        }
        let usual = (options.presence, options.join_leave);
        let shown = (
            self.presence.unwrap_or(usual.0),
            self.join_leave.unwrap_or(usual.1),
        );
        if shown != usual && shown != (false, false) {
            return Err(match shown {
                (true, _) if !usual.0 => "override.presence: the namespace has no presence",
                (_, true) if !usual.1 => {
                    "override.join_leave: the namespace has no join and leave events"
                }
                _ => {
                    "override: presence and join_leave of a subscription can only be disabled together"
                }
            });
        }
        Ok(PresenceOverrides {
            is_hidden: shown != usual,
            receives_join_leave: self.force_push_join_leave,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_is_hidden_completely_or_the_reason_is_named() {
        let no_presence = Err("override.presence: the namespace has no presence");
        let no_joins = Err("override.join_leave: the namespace has no join and leave events");
        let partial = Err(
            "override: presence and join_leave of a subscription can only be disabled together",
        );
        // Columns: presence and join/leave events of the namespace; the two in the override; the expected `is_hidden`
        // or error.
        for (usual, presence, join_leave, expected) in [
            ((true, true), None, None, Ok(false)),
            ((true, true), Some(true), Some(true), Ok(false)),
            ((true, true), Some(false), Some(false), Ok(true)),
            ((true, true), Some(false), None, partial),
            ((true, true), None, Some(false), partial),
            ((true, false), None, Some(true), no_joins),
            ((true, false), Some(false), Some(true), no_joins),
            ((true, false), Some(false), None, Ok(true)),
            ((false, true), Some(true), None, no_presence),
            ((false, true), Some(true), Some(false), no_presence),
            ((false, true), None, Some(false), Ok(true)),
            ((false, false), Some(true), Some(true), no_presence),
            ((false, false), None, Some(true), no_joins),
            ((false, false), Some(false), Some(false), Ok(false)),
        ] {
            let options = NamespaceOptions {
                presence: usual.0,
                join_leave: usual.1,
                ..NamespaceOptions::default()
            };
            let wanted = NamespaceOverride {
                presence,
                join_leave,
                ..NamespaceOverride::default()
            };
            let found = wanted.presence_overrides(&options);
            let found = found.map(|overrides| overrides.is_hidden);
            assert_eq!(found, expected, "{usual:?} {presence:?} {join_leave:?}");
        }
    }
}
