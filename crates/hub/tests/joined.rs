//! Several hubs, connected by queues with credits, in random interleavings. Their behaviour is compared with a simple
//! model.
//!
//! For each channel, the model contains only the order in which the home accepted the publications, and for each
//! subscription the point in this order at which the home registered it. Everything else follows: a subscriber receives
//! the publications from there on, up to the latest one or to the point at which it left.
//!
//! If a case fails, its seed is printed; `HUB_SEED=… cargo test -p veche-hub --test joined` repeats the case.

mod common;
mod world;

use world::{Lanes, Setup, World};

/// The seed of a case, which is printed if the case fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with HUB_SEED={}", self.0);
        }
    }
}

/// Runs the case of a seed. Returns the number of deliveries that carried the payload of the preceding publication.
fn run(seed: u64, steps: usize, is_logged: bool) -> u64 {
    let _seed = Seed(seed);
    let mut random = fastrand::Rng::with_seed(seed);
    let setup = Setup {
        workers: random.u16(1..=4),
        lanes: match random.u8(0..3) {
            0 => Lanes::Apart { credits: 1 },
            1 => Lanes::Apart {
                credits: random.usize(2..=8),
            },
            _ => Lanes::Shared {
                credits: random.usize(2..=8),
            },
        },
        queue_publications_max: random.usize(1..=6),
        queue_bytes_max: random.usize(1..=64),
        sessions: random.u32(4..=60),
        channels: random.usize(1..=6),
        is_logged,
    };
    let mut world = World::new(&setup, seed);
    for _ in 0..steps {
        world.step(&mut random);
    }
    world.settle(&mut random);
    world.check_sequences();
    world.check_handed();
    world.check_disconnect(&mut random);
    world.end();
    world.previous()
}

#[test]
fn every_subscriber_gets_the_order_of_its_home() {
    run_all(false);
}

/// Hubs have slow logs; processes crash and restart with another number of workers. After a crash, a random part of the
/// data submitted to a log is on disk.
#[test]
fn delivered_and_acknowledged_publications_survive_a_crash() {
    run_all(true);
}

fn run_all(is_logged: bool) {
    if let Ok(seed) = std::env::var("HUB_SEED") {
        run(
            seed.parse().expect("HUB_SEED is a number"),
            4_000,
            is_logged,
        );
        return;
    }
    let base = fastrand::u64(..);
    let runs = (0..400).map(|case| run(base.wrapping_add(case), 4_000, is_logged));
    assert!(runs.sum::<u64>() > 0, "none came with what was before it");
}
