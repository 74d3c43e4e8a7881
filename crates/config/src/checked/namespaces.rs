//! Checks `[[namespace]]`: history and client permissions of channels.

use veche_hub::{
    ChannelAccess, DeltaMode, EventLevel, PathPattern, PublishAccess, ReadAccess, RecoveryMode,
    SubscribeAccess, USERS,
};

use super::{Checker, identity, word};
use crate::raw::RawTable;
use crate::types::{HistoryConfig, LimitsConfig, NamespaceConfig};
use crate::value::DirectiveValue;

impl Checker<'_> {
    /// Reads the namespaces; `None` for those with a problem.
    pub(super) fn namespaces<'t>(
        &mut self,
        tables: impl Iterator<Item = &'t RawTable>,
    ) -> Vec<Option<NamespaceConfig>> {
        let mut names = Vec::new();
        tables
            .map(|table| self.namespace(table, &mut names))
            .collect()
    }

    /// Returns the names of the namespaces with wildcard subscriptions.
    pub(super) fn wildcards<'t>(tables: impl Iterator<Item = &'t RawTable>) -> Vec<String> {
        let has =
            |table: &&RawTable| matches!(table.value("wildcard"), Some(DirectiveValue::Flag(true)));
        let names = tables
            .filter(has)
            .filter_map(|table| match table.value("name") {
                Some(DirectiveValue::Text(name)) => Some(name),
                _ => None,
            });
        names.collect()
    }

    /// Checks that the sum of the namespaces' history budgets is within `limits.history_bytes`. Warns if the budgets use
    /// the whole limit, so that namespaces without a budget of their own have no history.
    pub(super) fn budgets<'t>(
        &mut self,
        limits: &LimitsConfig,
        namespaces: impl Iterator<Item = (&'t RawTable, &'t Option<NamespaceConfig>)>,
    ) {
        let mut parts: u64 = 0;
        let mut shares = None;
        for (table, namespace) in namespaces {
            let Some(namespace) = namespace else {
                continue;
            };
            if let Some(bytes) = namespace.history_bytes {
                parts = parts.saturating_add(bytes);
                if parts > limits.history_bytes {
                    let all = limits.history_bytes;
                    let why = format!(
                        "history_bytes: with this namespace, the namespaces reserve {parts} bytes in all, but history_bytes in [limits] allows {all} for all channels"
                    );
                    self.problems.add(table.value_at("history_bytes"), why);
                }
            } else if namespace.history.is_some() {
                shares = shares.or(Some(table));
            }
        }
        if let Some(table) = shares.filter(|_| parts == limits.history_bytes) {
            let why = "history_size: other namespaces reserve all of history_bytes in [limits], so these channels have no history";
            self.warn(table.key_at("history_size"), why);
        }
    }

    fn namespace(&mut self, table: &RawTable, names: &mut Vec<String>) -> Option<NamespaceConfig> {
        let name = self.required(table, "name")?;
        if let Some(other) = names.iter().find(|other| is_same(other, &name)) {
            let why = format!("name: another [[namespace]] is already called {other:?}");
            self.problems.add(table.value_at("name"), why);
        }
        names.push(name.clone());
        let size = match table.value("history_size") {
            Some(DirectiveValue::Integer(size)) => Some(
                u32::try_from(size)
                    .expect("the range of the directive must fit into the integer type"),
            ),
            _ => None,
        };
        if size.is_none() {
            for option in [
                "history_bytes",
                "history_ttl",
                "position_ttl",
                "recovery",
                "delta",
            ] {
                if table.has(option) {
                    let why = format!("{option}: has no effect without history_size");
                    self.warn(table.key_at(option), &why);
                }
            }
        }
        let duration = |name| match table.value(name) {
            Some(DirectiveValue::Duration(duration)) => duration,
            other => unreachable!("{name} must be a duration and have a default, not {other:?}"),
        };
        let flag = |name| matches!(table.value(name), Some(DirectiveValue::Flag(true)));
        let is_closed = name == USERS || name.starts_with(['/', '$']);
        if flag("wildcard") && is_closed {
            let why = "wildcard: personal channels, private channels and channels of a pattern can't be subscribed to with a wildcard";
            self.problems.add(table.value_at("wildcard"), why);
        }
        let slow_miss = word(table, "slow_consumer") == "miss";
        if slow_miss && size.is_some() {
            let why = "slow_consumer: can't be combined with history_size, because the namespace's clients rely on receiving every publication";
            self.problems.add(table.value_at("slow_consumer"), why);
        }
        let (presence, join_leave) = (flag("presence"), flag("join_leave"));
        let event_level = match word(table, "events") {
            "occupancy" => EventLevel::Occupancy,
            "members" => EventLevel::Members,
            _ => EventLevel::Off,
        };
        let is_watched = presence || join_leave || event_level != EventLevel::Off;
        if !is_watched && table.has("leave_delay") {
            let why = "leave_delay: has no effect without presence, join_leave or events";
            self.warn(table.key_at("leave_delay"), why);
        }
        let force_push_join_leave = flag("force_push_join_leave");
        if force_push_join_leave && !join_leave {
            let why = "force_push_join_leave: has no effect without join_leave";
            self.warn(table.key_at("force_push_join_leave"), why);
        }
        let differences = match (word(table, "delta"), flag("delta_publish")) {
            ("fossil", true) => DeltaMode::Always,
            ("fossil", false) => DeltaMode::OnRequest,
            _ => DeltaMode::Off,
        };
        if differences == DeltaMode::Off && table.has("delta_publish") {
            let why = "delta_publish: has no effect without delta";
            self.warn(table.key_at("delta_publish"), why);
        }
        let ttl = duration("history_ttl");
        Some(NamespaceConfig {
            name,
            history: size.map(|size| HistoryConfig {
                size,
                ttl,
                position_ttl: duration("position_ttl").max(ttl),
                recovery: match word(table, "recovery") {
                    "latest" => RecoveryMode::Latest,
                    _ => RecoveryMode::Missed,
                },
            }),
            history_bytes: match table.value("history_bytes") {
                Some(DirectiveValue::Size(bytes)) if size.is_some() => Some(bytes),
                _ => None,
            },
            presence,
            join_leave,
            force_push_join_leave,
            slow_miss,
            event_level,
            leave_delay: identity::duration(table, "leave_delay"),
            differences,
            tags_filter: flag("tags_filter"),
            access: ChannelAccess {
                subscribe: match word(table, "subscribe") {
                    "client" => SubscribeAccess::Client,
                    "token" => SubscribeAccess::Token,
                    "hook" => SubscribeAccess::Hook,
                    _ => SubscribeAccess::Disabled,
                },
                publish: match word(table, "publish") {
                    "client" => PublishAccess::Client,
                    "subscriber" => PublishAccess::Subscriber,
                    "hook" => PublishAccess::Hook,
                    _ => PublishAccess::Disabled,
                },
                history: reading(table, "allow_history"),
                presence: reading(table, "allow_presence"),
            },
        })
    }
}

fn reading(table: &RawTable, name: &str) -> ReadAccess {
    match word(table, name) {
        "client" => ReadAccess::Client,
        "none" => ReadAccess::Disabled,
        _ => ReadAccess::Subscriber,
    }
}

/// Returns whether two names match the same channels.
fn is_same(one: &str, other: &str) -> bool {
    match (PathPattern::new(one), PathPattern::new(other)) {
        (Ok(one), Ok(other)) => one.is_same(&other),
        _ => one == other,
    }
}
