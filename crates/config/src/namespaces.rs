//! Converts the configured namespaces to those of the hub.

use veche_hub::{HistoryOptions, NamespaceOptions, Namespaces, Wildcards};
use veche_terminal::as_ms;

use crate::types::Config;

/// Returns the hub's options of each namespace.
#[must_use]
pub fn namespaces(config: &Config) -> Namespaces {
    let wildcards = Wildcards::new(config.wildcards.iter().map(|name| &**name));
    let mut namespaces = Namespaces::with_wildcards(wildcards);
    for namespace in &config.namespaces {
        let budget = namespace.history_bytes.map(|bytes| {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            namespaces.add_budget(&namespace.name, bytes)
        });
        let history = namespace.history.map(|history| HistoryOptions {
            size: history.size,
            ttl_ms: as_ms(history.ttl),
            position_ttl_ms: as_ms(history.position_ttl),
            recovery: history.recovery,
            budget: budget.unwrap_or_default(),
        });
        let options = NamespaceOptions {
            history,
            access: namespace.access,
            presence: namespace.presence,
            join_leave: namespace.join_leave,
            force_push_join_leave: namespace.force_push_join_leave,
            leave_delay_ms: as_ms(namespace.leave_delay),
            event_level: namespace.event_level,
            drop_when_slow: namespace.slow_miss,
            delta_mode: namespace.differences,
            tags_filter: namespace.tags_filter,
        };
        match veche_hub::PathPattern::new(&namespace.name) {
            Ok(pattern) => namespaces.insert_pattern(pattern, options),
            Err(_) => namespaces.insert(&namespace.name, options),
        }
    }
    if config.limits.refuses_unknown_namespaces {
        namespaces.deny_unknown();
    }
    namespaces
}
