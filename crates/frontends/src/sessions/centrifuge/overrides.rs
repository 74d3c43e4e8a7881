//! What one subscription may have other than its namespace: the `override` of tokens and of the API.

use veche_hub::NamespaceOptions;

/// How one subscription differs from others of its namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PresenceOverrides {
    /// Neither presence nor joins and leaves show it.
    pub(crate) is_hidden: bool,
    /// Whether the client gets joins and leaves without asking; `None`: as the namespace says.
    pub(crate) receives_join_leave: Option<bool>,
}

impl PresenceOverrides {
    /// Whether the client gets joins and leaves of a channel with these options without asking.
    pub(crate) fn receives_join_leave(self, options: &NamespaceOptions) -> bool {
        self.receives_join_leave
            .unwrap_or(options.force_push_join_leave)
    }
}

/// The members of `override`; `None` leaves one as the namespace has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamespaceOverride {
    pub(crate) presence: Option<bool>,
    pub(crate) join_leave: Option<bool>,
    pub(crate) force_push_join_leave: Option<bool>,
    pub(crate) force_positioning: Option<bool>,
    pub(crate) force_recovery: Option<bool>,
}

impl NamespaceOverride {
    /// Returns what it makes of a subscription in a channel with these options, or why that is not possible.
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
                "override.force_positioning: it is so where the namespace has a history_size, and nowhere else",
            );
        }
        if self
            .force_recovery
            .is_some_and(|wanted| wanted != remembers)
        {
            return Err(
                "override.force_recovery: it is so where the namespace has a history_size, and nowhere else",
            );
        }
        let usual = (options.presence, options.join_leave);
        let shown = (
            self.presence.unwrap_or(usual.0),
            self.join_leave.unwrap_or(usual.1),
        );
        if shown != usual && shown != (false, false) {
            return Err(match shown {
                (true, _) if !usual.0 => "override.presence: the namespace keeps none",
                (_, true) if !usual.1 => "override.join_leave: the namespace tells of nobody",
                _ => {
                    "override: presence and join_leave of a subscription can be switched off together only"
                }
            });
        }
        Ok(PresenceOverrides {
            is_hidden: shown != usual,
            receives_join_leave: self.force_push_join_leave,
        })
    }
}
