//! Replays the corpora of the fuzz targets as regression tests.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/connection.rs"]
#[allow(unreachable_pub, reason = "public in the fuzz crate")]
mod connection;
#[path = "../../../fuzz/src/session.rs"]
#[allow(unreachable_pub, reason = "public in the fuzz crate")]
mod session;

fn inputs(target: &str) -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let entries = fs::read_dir(corpus.join(target)).expect("a readable corpus");
    let read = |entry: fs::DirEntry| fs::read(entry.path()).expect("a readable input");
    entries
        .map(|entry| read(entry.expect("an entry")))
        .collect()
}

#[test]
fn the_corpus_holds() {
    let inputs = inputs("connection");
    for input in &inputs {
        connection::run(input);
    }
    assert!(inputs.len() > 20, "{} inputs", inputs.len());
}

#[test]
fn sessions_of_the_corpus_hold() {
    let inputs = inputs("session");
    for input in &inputs {
        session::run(input);
    }
    assert!(inputs.len() > 20, "{} inputs", inputs.len());
}

/// Runs random scripts of sessions; failures are found by the assertions of the test's world.
#[test]
fn sessions_of_any_script_hold() {
    let given = std::env::var("SESSION_SEED").map(|seed| seed.parse().expect("a number"));
    let base = given.clone().unwrap_or_else(|_| fastrand::u64(..));
    let mut all = session::Tally::default();
    for case in 0..given.map_or(1000, |_| 1) {
        let seed = base.wrapping_add(case);
        let mut random = fastrand::Rng::with_seed(seed);
        let script: Vec<u8> = (0..3000).map(|_| random.u8(..)).collect();
        let run = std::panic::catch_unwind(|| session::run(&script));
        let Ok(tally) = run else {
            panic!("the script of seed {seed} has found something");
        };
        all.replies += tally.replies;
        all.whole += tally.whole;
        all.deltas += tally.deltas;
        all.filtered += tally.filtered;
    }
    let rarest = all.replies.min(all.whole).min(all.deltas).min(all.filtered);
    assert!(rarest > 100, "{all:?}");
}
