//! The rows of `[[service]]`.

use super::app::{CPU_BUDGET, MEMORY, SCRIPT};
use super::row::{Default, Directive, Section};
use crate::value::Kind;

/// The most instances of one service.
pub(super) const INSTANCES_MAX: u64 = 1024;

pub(super) static SERVICE: &[Directive] = &[
    Section::Service.row(
        "name",
        Kind::Text {
            expected: "a name of letters, digits, \"-\" and \"_\"",
        },
        Default::Required,
        "What the log calls it. Unlike the names of other services and of apps.",
    ),
    Section::Service.row(
        "script",
        SCRIPT,
        Default::Required,
        "The Lua file that is run. What it `require`s is looked for in its folder.",
    ),
    Section::Service.row(
        "instances",
        Kind::Integer {
            min: 1,
            max: INSTANCES_MAX,
            words: &[],
        },
        Default::Toml("1"),
        "How many of it run, each in a VM of its own and spread over the workers. `run` gets the number of its instance, from 1, and how many there are.",
    ),
    Section::Service.row(
        "restart",
        Kind::Word {
            words: &["on-failure", "always", "never"],
            hidden: &[],
        },
        Default::Toml("\"on-failure\""),
        "What happens when `run` is over. `\"on-failure\"`: after an error it begins again in a new VM, at first after 200 ms, then after twice as long each time, 30 s at most; once it has run for 30 s, from the beginning. When it returns and all that it has begun has ended, it is done. `\"always\"`: it begins again then too. `\"never\"`: it does not.",
    ),
    Section::Service.row(
        "memory",
        MEMORY,
        Default::Toml("\"64MiB\""),
        "Of one instance: see `memory` of `[[app]]`.",
    ),
    Section::Service.row(
        "cpu_budget",
        CPU_BUDGET,
        Default::Toml("\"20ms\""),
        "Time on the processor between two waits: see `cpu_budget` of `[[app]]`.",
    ),
    Section::Service.row(
        "options",
        Kind::Table,
        Default::Unset("an empty table"),
        "Whatever the script wants to know: see `options` of `[[app]]`.",
    ),
];
