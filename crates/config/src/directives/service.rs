//! The directives of `[[service]]`.

use super::app::{CPU_BUDGET, MEMORY, SCRIPT};
use super::row::{DefaultValue, Directive, Section};
use crate::value::DirectiveKind;

/// Maximum number of instances of one service.
pub(super) const INSTANCES_MAX: u64 = 1024;

pub(super) static SERVICE: &[Directive] = &[
    Section::Service.row(
        "name",
        DirectiveKind::Text {
            expected: "a name of letters, digits, \"-\" and \"_\"",
        },
        DefaultValue::Required,
        "The name used by the log. Unique among services and apps.",
    ),
    Section::Service.row(
        "script",
        SCRIPT,
        DefaultValue::Required,
        "The Lua file to run. Modules are loaded from its folder.",
    ),
    Section::Service.row(
        "instances",
        DirectiveKind::Integer {
            min: 1,
            max: INSTANCES_MAX,
            words: &[],
        },
        DefaultValue::Toml("1"),
        "The number of instances, each in a VM of its own and spread over the workers. `run` gets the number of its instance, from 1, and the number of instances.",
    ),
    Section::Service.row(
        "restart",
        DirectiveKind::Word {
            words: &["on-failure", "always", "never"],
            hidden: &[],
        },
        DefaultValue::Toml("\"on-failure\""),
        "When a service restarts. Each run has a new VM. `\"on-failure\"`: after an error. `\"always\"`: also when it has finished, that is, when `run` has returned and everything that it started has ended. `\"never\"`: it does not restart. The delay before a restart is 200 ms at first and doubles each time up to 30 s; after a run of 30 s it is 200 ms again.",
    ),
    Section::Service.row(
        "memory",
        MEMORY,
        DefaultValue::Toml("\"64MiB\""),
        "Per instance: see `memory` of `[[app]]`.",
    ),
    Section::Service.row(
        "cpu_budget",
        CPU_BUDGET,
        DefaultValue::Toml("\"20ms\""),
        "The maximum CPU time of the service between two waits. See `cpu_budget` of `[[app]]`.",
    ),
    Section::Service.row(
        "options",
        DirectiveKind::Table,
        DefaultValue::Unset("an empty table"),
        "Options for the script: see `options` of `[[app]]`.",
    ),
];
