//! The server's glue does what the simulator's does: worlds of `veche-sim` run on both, and after each step all that came
//! out of workers and all that clients heard is the same.
//!
//! Below the glue is [`Simulated`](veche_net::Simulated), between workers are mailboxes, each worker in a mesh of its own
//! whose other ends are the world's: so a world decides what arrives when, and every message, credit and flush still
//! passes the mailbox that ships. `VECHE_GLUE_WORLDS` says how many worlds, `VECHE_GLUE_FROM` the first seed.

mod log;
mod mailboxes;
mod observed;
mod worker_glue;

use std::sync::Arc;

use parking_lot::Mutex;
use veche_sim::worker_driver::WorkerOutput;
use veche_sim::{ACTIONS, compare};

/// Worlds that are compared: enough for the faults of `sim/MUTATIONS.md`, in a few seconds.
const WORLDS: u64 = 150;

/// What comes out of one worker, its driver and its mailbox, in order.
type OutputRecord = Arc<Mutex<Vec<WorkerOutput>>>;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number: {text:?}"))
    })
}

#[test]
fn a_world_is_the_same_on_the_servers_glue() {
    let worlds = number("VECHE_GLUE_WORLDS", WORLDS);
    let from = number("VECHE_GLUE_FROM", 1);
    let mut outputs = 0;
    for seed in from..from + worlds {
        match compare(seed, worker_glue::begin) {
            Ok(compared) => outputs += compared,
            Err(difference) => panic!("{difference}"),
        }
    }
    println!("{outputs} outputs in {} steps", worlds * ACTIONS as u64);
    assert!(outputs > worlds * 1_000, "hardly anything happens");
}
