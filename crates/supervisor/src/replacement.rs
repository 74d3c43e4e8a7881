//! The rules for replacing the server process by an upgrade or restart: when this may start, and when the supervisor's
//! own program is replaced too.
//!
//! The module has no side effects: it derives decisions from facts. [`upgrade`](super::upgrade)
//! handles processes, sockets and files.

/// The maximum number of server processes that may be draining at a time.
const RETIRING_MAX: usize = 8;

/// The kinds of replacements of the server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplacementKind {
    Upgrade,
    Restart,
}

impl ReplacementKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Upgrade => "upgrade",
            Self::Restart => "restart",
        }
    }

    /// Returns the name of the supervisor's state during the replacement, for `veche status`.
    pub(super) fn state(self) -> &'static str {
        match self {
            Self::Upgrade => "upgrading",
            Self::Restart => "restarting",
        }
    }

    /// Returns the reason why other changes are refused during the replacement.
    pub(super) fn under_way(self) -> &'static str {
        match self {
            Self::Upgrade => "an upgrade is under way",
            Self::Restart => "a restart is under way",
        }
    }
}

/// The facts that decide whether a requested replacement may start.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplacementContext {
    pub(super) is_stopping: bool,
    /// The replacement in progress.
    pub(super) under_way: Option<ReplacementKind>,
    pub(super) is_reloading: bool,
    /// Whether history is stored on disk.
    pub(super) has_archive: bool,
    /// The number of draining server processes.
    pub(super) retiring: usize,
}

impl ReplacementContext {
    /// Returns why no replacement may start now; `None` if it may.
    pub(super) fn refusal(&self) -> Option<String> {
        let why = if self.is_stopping {
            "veche is stopping"
        } else if let Some(kind) = self.under_way {
            kind.under_way()
        } else if self.is_reloading {
            "a reload is under way"
        } else if self.has_archive {
            "[history] path is set, and only one server process at a time can use that folder: stop and start the server instead"
        } else if self.retiring >= RETIRING_MAX {
            return Some(format!(
                "{RETIRING_MAX} server processes are still draining"
            ));
        } else {
            return None;
        };
        Some(why.to_owned())
    }
}

/// The facts that decide whether the supervisor itself is replaced, after the server process has been replaced.
#[derive(Clone, Debug)]
pub(super) struct SelfUpgradeContext {
    /// Whether all messages to server processes have been sent.
    pub(super) is_flushed: bool,
    /// Whether all responses to clients of the control socket have been sent.
    pub(super) are_clients_answered: bool,
    /// Whether the time limit for sending outstanding messages and responses has passed.
    pub(super) is_late: bool,
    pub(super) is_stopping: bool,
    /// Whether the new server process is still the current one.
    pub(super) is_served: bool,
    /// Whether the program's file is still the one that the new server process was started from.
    pub(super) is_same_file: bool,
}

/// The next step of the supervisor's own replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SelfUpgradeStep {
    Wait,
    /// The replacement is cancelled because the supervisor is stopping.
    Drop,
    /// The replacement is cancelled for this reason.
    Stay(String),
    Follow,
}

impl SelfUpgradeContext {
    pub(super) fn next(&self, kind: ReplacementKind) -> SelfUpgradeStep {
        let is_reported = self.is_flushed && self.are_clients_answered;
        if !is_reported && !self.is_late {
            return SelfUpgradeStep::Wait;
        }
        if self.is_stopping {
            return SelfUpgradeStep::Drop;
        }
        if !self.is_served {
            // The upgrade is rolled back, so the next server process runs the old program with the old
            // configuration.
            return SelfUpgradeStep::Stay("the new server process has died".to_owned());
        }
        if !self.is_flushed {
            return SelfUpgradeStep::Stay("a server process does not read its messages".to_owned());
        }
        if !self.is_same_file {
            return SelfUpgradeStep::Stay(format!(
                "the program file has changed since the new server process started: run veche {} again",
                kind.name()
            ));
        }
        SelfUpgradeStep::Follow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_begins_alone() {
        let nothing = ReplacementContext::default();
        assert_eq!(nothing.refusal(), None);
        let full = ReplacementContext {
            retiring: RETIRING_MAX,
            ..nothing.clone()
        };
        let almost_full = ReplacementContext {
            retiring: RETIRING_MAX - 1,
            ..nothing.clone()
        };
        assert_eq!(almost_full.refusal(), None);
        let with = |change: fn(&mut ReplacementContext)| {
            let mut context = ReplacementContext::default();
            change(&mut context);
            context
        };
        for (context, why) in [
            (full, "still draining"),
            (with(|it| it.is_stopping = true), "stopping"),
            (
                with(|it| it.under_way = Some(ReplacementKind::Restart)),
                "a restart is under way",
            ),
            (with(|it| it.is_reloading = true), "a reload"),
            (with(|it| it.has_archive = true), "[history]"),
        ] {
            let refusal = context.refusal().unwrap_or_default();
            assert!(refusal.contains(why), "{context:?}: {refusal}");
        }
    }

    #[test]
    fn the_supervisor_follows_when_all_are_informed_and_nothing_has_changed() {
        let good = SelfUpgradeContext {
            is_flushed: true,
            are_clients_answered: true,
            is_late: false,
            is_stopping: false,
            is_served: true,
            is_same_file: true,
        };
        assert_eq!(good.next(ReplacementKind::Upgrade), SelfUpgradeStep::Follow);
        let with = |change: fn(&mut SelfUpgradeContext)| {
            let mut context = good.clone();
            change(&mut context);
            context.next(ReplacementKind::Upgrade)
        };
        assert_eq!(
            with(|it| it.are_clients_answered = false),
            SelfUpgradeStep::Wait
        );
        assert_eq!(with(|it| it.is_flushed = false), SelfUpgradeStep::Wait);
        assert_eq!(with(|it| it.is_stopping = true), SelfUpgradeStep::Drop);
        let late = with(|it| (it.are_clients_answered, it.is_late) = (false, true));
        assert_eq!(late, SelfUpgradeStep::Follow, "one client holds nothing up");
        for (next, why) in [
            (with(|it| it.is_served = false), "has died"),
            (
                with(|it| (it.is_flushed, it.is_late) = (false, true)),
                "does not read",
            ),
            (with(|it| it.is_same_file = false), "upgrade again"),
        ] {
            assert!(
                matches!(&next, SelfUpgradeStep::Stay(words) if words.contains(why)),
                "{next:?}"
            );
        }
    }
}
