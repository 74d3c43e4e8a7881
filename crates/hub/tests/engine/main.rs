//! The contract of engines (`src/engine.rs`) on the memory engine, with and without a log, and on one with sparse
//! offsets and a lossy, unordered feed, also with deferred joins, follows and members.

#[path = "../common/mod.rs"]
mod common;

mod bench;
mod clauses;
mod gaps;
mod joins;
mod members;
mod pair;
mod unruly;

use bench::Bench;
use unruly::{Broken, Unruly};
use veche_hub::MemoryEngine;

fn unruly(is_lossy: bool, broken: Broken) -> Bench<Unruly> {
    let mut bench = Bench::on(Unruly::new(7, broken));
    bench.hub.engine().is_lossy = is_lossy;
    bench
}

fn late(is_lossy: bool, broken: Broken) -> Bench<Unruly> {
    let mut bench = unruly(is_lossy, broken);
    bench.hub.engine().is_late = true;
    bench
}

/// Each clause on each engine; where `$broken` says so, an engine that breaks the clause fails its test with this
/// message.
macro_rules! clauses {
    ($($clause:ident $(breaks $broken:ident with $words:literal)?),* $(,)?) => {
        mod memory {
            $(#[test] fn $clause() { super::clauses::$clause(super::Bench::<super::MemoryEngine>::memory(false)); })*
        }
        mod memory_with_a_log {
            $(#[test] fn $clause() { super::clauses::$clause(super::Bench::<super::MemoryEngine>::memory(true)); })*
        }
        mod sparse {
            $(#[test] fn $clause() { super::clauses::$clause(super::unruly(false, super::Broken::Nothing)); })*
        }
        mod sparse_and_lossy {
            $(#[test] fn $clause() { super::clauses::$clause(super::unruly(true, super::Broken::Nothing)); })*
        }
        mod late {
            $(#[test] fn $clause() { super::clauses::$clause(super::late(false, super::Broken::Nothing)); })*
        }
        mod late_and_lossy {
            $(#[test] fn $clause() { super::clauses::$clause(super::late(true, super::Broken::Nothing)); })*
        }
        mod broken {
            $($(
                #[test]
                #[should_panic(expected = $words)]
                fn $clause() { super::clauses::$clause(super::unruly(false, super::Broken::$broken)); }
            )?)*
        }
    };
}

clauses! {
    order breaks Order with "left: [\"1\", \"0\"",
    answer breaks Answer with "stuck: [(\"waiting on channels\", 5)]",
    stale breaks Stale with "left: false",
    increase breaks Increase with "right: 30",
    feed,
    stored,
    join breaks Join with "is_whole",
    top,
    removal breaks Removal with "page.is_empty()",
    removal_of_what_waits,
    handed,
    chain,
    member breaks Member with "left: []",
    lease breaks Lease with "left: []",
    presence breaks Presence with "left: ([], (3, 2))",
}
