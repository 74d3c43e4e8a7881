//! The contract of engines (`src/engine.rs`), tested on the memory engine with and without a log, on an engine with
//! sparse offsets and a feed that loses and reorders items, and on a model of an engine outside the process.

#[path = "../common/mod.rs"]
mod common;

mod bench;
mod clauses;
mod gaps;
mod interruptions;
mod joins;
mod members;
mod model;
mod occupancy;
mod outside;
mod pair;
mod restarts;
mod unruly;
mod wildcards;

use bench::{Bench, Driven, TestOutlet};
use unruly::{Broken, Unruly};
use veche_hub::{Hub, NodeEngine, Options, WorkerId};

impl Driven for Unruly {
    const KNOWS_SUBSCRIBERS: bool = false;

    fn drive(hub: &mut Hub<Self>, outlet: &mut TestOutlet) -> bool {
        let has_arrived = hub.engine().arrive();
        while hub.take_reports(outlet) {}
        has_arrived
    }

    fn forget_members(&mut self) {
        self.members.clear();
    }
}

impl Bench<Unruly> {
    pub(crate) fn on(engine: Unruly) -> Self {
        let options = Options::default();
        Self::with(Hub::with_engine(WorkerId(0), 1, 7, options, engine))
    }
}

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

/// Runs each clause on each engine. With `breaks $broken with $words`, also runs the clause on an engine that breaks
/// it; the test must then fail with a message that contains `$words`.
macro_rules! clauses {
    ($($clause:ident $(breaks $broken:ident with $words:literal)?),* $(,)?) => {
        mod memory {
            $(#[test] fn $clause() { super::clauses::$clause(super::Bench::<super::NodeEngine>::memory(false)); })*
        }
        mod memory_with_a_log {
            $(#[test] fn $clause() { super::clauses::$clause(super::Bench::<super::NodeEngine>::memory(true)); })*
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
        mod remote {
            $(#[test] fn $clause() {
                for seed in 0..super::SEEDS {
                    super::clauses::$clause(super::model::remote(seed, false));
                }
            })*
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

/// How often each clause is tested on the model of a store outside the process, each time with another seed.
const SEEDS: u64 = 100;

/// Tests the clauses of the contract that hold even if connections are cut: no publication is lost or duplicated.
macro_rules! cut {
    ($($clause:ident),* $(,)?) => {
        mod remote_and_cut {
            $(#[test] fn $clause() {
                for seed in 0..super::SEEDS {
                    super::clauses::$clause(super::model::remote(seed, true));
                }
            })*
        }
    };
}

cut! {
    order, answer, stale, increase, feed, stored, join, top, removal, removal_of_what_waits, handed, chain, lease, presence,
    occupancy,
}

clauses! {
    order breaks Order with "left: [\"1\", \"0\"",
    answer breaks Answer with "stuck: [(\"waiting on channels\", 5)]",
    stale breaks Stale with "left: false",
    increase breaks Increase with "right: 30",
    feed,
    stored,
    join breaks Join with "is_complete",
    top,
    removal breaks Removal with "page.is_empty()",
    removal_of_what_waits,
    handed,
    chain,
    member breaks Member with "left: []",
    lease breaks Lease with "left: []",
    presence breaks Presence with "left: ([], (3, 2))",
    occupancy,
}
