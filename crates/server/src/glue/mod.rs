//! Compares the server's glue (the code around [`veche_worker::Worker`]) with the simulator's: worlds of `veche-sim`
//! run on both, and after each step all output of workers and all data received by clients has to be equal.
//!
//! The server's glue runs on [`Simulated`](veche_net::Simulated), and each worker has a mailbox mesh of its own whose
//! other ends belong to the world: the world decides what arrives when, while every message, credit and flush passes
//! through the production mailbox. `VECHE_GLUE_WORLDS` sets the number of worlds, `VECHE_GLUE_FROM` the first seed.

mod log;
mod mailboxes;
mod observed;
mod worker_glue;

use std::sync::Arc;

use parking_lot::Mutex;
use veche_sim::worker_driver::WorkerOutput;
use veche_sim::{ACTIONS, compare};

/// The number of worlds compared: enough to detect the faults of `sim/MUTATIONS.md`, in a few seconds.
const WORLDS: u64 = 150;

/// What a worker, its driver and its mailbox have sent, in the order of sending.
type OutputRecord = Arc<Mutex<Vec<WorkerOutput>>>;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is not a number: {text:?}"))
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
