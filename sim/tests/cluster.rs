//! Runs clusters of several nodes. The environment variables are the same as for other worlds: `VECHE_SIM_STEPS`,
//! `VECHE_SIM_FROM`, `VECHE_SIM_SEED` and `VECHE_SIM_ONLY`; with the last, `VECHE_SIM_TRACE` prints all orders and
//! events. With `VECHE_SIM_LIST` the run continues after a failure.

use veche_sim::cluster::{ACTIONS, Coverage, explore, print_traces, replay};

/// The number of steps, which take about twelve seconds of a core.
const STEPS: u64 = 150_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number: {text:?}")),
    )
}

#[test]
fn promises_are_kept() {
    if let Some(seed) = number("VECHE_SIM_SEED") {
        return one_cluster(seed);
    }
    let clusters = number("VECHE_SIM_STEPS")
        .unwrap_or(STEPS)
        .div_ceil(ACTIONS as u64);
    let from = number("VECHE_SIM_FROM").unwrap_or(1);
    println!("{clusters} clusters from seed {from} on");
    if std::env::var_os("VECHE_SIM_LIST").is_some() {
        return list(from..from + clusters);
    }
    let mut seen = Coverage::default();
    for seed in from..from + clusters {
        match explore(seed) {
            Ok(cluster) => seen.add(&cluster.coverage),
            Err(report) => panic!("{report}"),
        }
    }
    println!("{seen}");
    let (event, count) = seen.rarest();
    assert!(
        count >= clusters / 10,
        "{event} came {count} times in {clusters} clusters"
    );
}

#[test]
fn a_seed_makes_one_cluster() {
    let hash = |seed| match explore(seed) {
        Ok(cluster) => cluster.hash,
        Err(report) => panic!("{report}"),
    };
    let mut hashes: Vec<_> = (1..=6)
        .map(|seed| {
            let first = hash(seed);
            let again = std::thread::spawn(move || explore(seed).map(|one| one.hash).ok());
            assert_eq!(again.join().expect("it ends"), Some(first), "seed {seed}");
            first
        })
        .collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 6, "two seeds make one cluster");
}

/// Prints a line for each cluster that breaks a promise, without a search for the minimal list of actions.
fn list(seeds: std::ops::Range<u64>) {
    let all: Vec<_> = (0..ACTIONS).collect();
    let mut broken = 0;
    for seed in seeds {
        if let Err(failure) = replay(seed, &all) {
            broken += 1;
            println!("{seed}: {failure}");
        }
    }
    assert_eq!(broken, 0, "clusters that break promises");
}

/// Runs the cluster with this seed, or only the actions in `VECHE_SIM_ONLY`.
fn one_cluster(seed: u64) {
    match std::env::var("VECHE_SIM_ONLY") {
        Err(_) => match explore(seed) {
            Ok(cluster) => println!("{}", cluster.coverage),
            Err(report) => panic!("{report}"),
        },
        Ok(places) => {
            if std::env::var_os("VECHE_SIM_TRACE").is_some() {
                print_traces();
            }
            let places = places
                .split(',')
                .map(|place| place.parse().expect("a number"));
            match replay(seed, &places.collect::<Vec<_>>()) {
                Ok(cluster) => println!("{}", cluster.coverage),
                Err(failure) => panic!("{failure}"),
            }
        }
    }
}
