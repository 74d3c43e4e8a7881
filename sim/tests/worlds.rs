//! Runs hundreds of worlds. `VECHE_SIM_STEPS` sets the number of steps, `VECHE_SIM_FROM` the first seed,
//! `VECHE_SIM_SEED` a single world, and with it `VECHE_SIM_ONLY` the actions to perform.

use veche_sim::{ACTIONS, Coverage, SerializedCounts, explore, explore_serialized, replay};

const STEPS: u64 = 100_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is not a number: {text:?}")),
    )
}

#[test]
fn promises_are_kept() {
    if let Some(seed) = number("VECHE_SIM_SEED") {
        return one_world(seed);
    }
    let worlds = number("VECHE_SIM_STEPS")
        .unwrap_or(STEPS)
        .div_ceil(ACTIONS as u64);
    let from = number("VECHE_SIM_FROM").unwrap_or(1);
    println!("{worlds} worlds from seed {from} on");
    let mut seen = Coverage::default();
    for seed in from..from + worlds {
        match explore(seed) {
            Ok(world) => seen.add(&world.coverage),
            Err(report) => panic!("{report}"),
        }
    }
    println!("{seen}");
    // A promise about an event proves nothing if the event never occurs, so each event has to be frequent.
    let (event, count) = seen.rarest();
    assert!(
        count >= worlds / 100,
        "{event} came {count} times in {worlds} worlds"
    );
}

fn hash(seed: u64) -> u64 {
    let world = explore(seed).unwrap_or_else(|report| panic!("{report}"));
    world.hash
}

#[test]
fn a_seed_makes_one_world() {
    let mut hashes: Vec<_> = (1..=8)
        .map(|seed| {
            let hash = hash(seed);
            // The second run is on another thread, so that no state of the first run affects it.
            let again = std::thread::spawn(move || self::hash(seed));
            assert_eq!(again.join().expect("it ends"), hash, "seed {seed}");
            hash
        })
        .collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 8, "two seeds make one world");
}

/// Number of worlds run both with and without serialised messages.
const CARRIED_WORLDS: u64 = 60;

#[test]
fn a_world_is_the_same_when_messages_travel_as_bytes() {
    let mut as_bytes = SerializedCounts::default();
    for seed in 1..=CARRIED_WORLDS {
        let world = explore_serialized(seed).unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(world.hash, hash(seed), "seed {seed}");
        as_bytes += world.serialized;
    }
    println!("{as_bytes:?}");
    let SerializedCounts {
        user_commands,
        relays,
        queries,
    } = as_bytes;
    let fewest = user_commands.min(relays).min(queries);
    assert!(fewest >= CARRIED_WORLDS / 3, "{as_bytes:?}");
}

/// Replays a reported world or a part of it.
fn one_world(seed: u64) {
    let result = match std::env::var("VECHE_SIM_ONLY") {
        Err(_) => explore(seed),
        Ok(places) => {
            let places = places
                .split(',')
                .map(|place| place.parse().expect("a number"));
            replay(seed, &places.collect::<Vec<_>>())
        }
    };
    match result {
        Ok(world) => println!(
            "the world of seed {seed} keeps its promises\n{}",
            world.coverage
        ),
        Err(report) => panic!("{report}"),
    }
}
