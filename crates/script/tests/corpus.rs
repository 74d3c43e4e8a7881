//! Replays the fuzzer's corpus, so that each run checks for the faults that the fuzzer has found. Runs random programs
//! too: `VECHE_FUZZ_ROUNDS=5000` runs more of them, and `VECHE_FUZZ_SEED` selects others.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/script.rs"]
#[allow(unreachable_pub, reason = "public in the fuzz crate")]
mod script;

#[test]
fn the_corpus_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/script");
    let mut inputs = 0;
    for entry in fs::read_dir(corpus).expect("a readable corpus") {
        script::run(&fs::read(entry.expect("an entry").path()).expect("a readable input"));
        inputs += 1;
    }
    assert!(inputs > 20, "{inputs} inputs");
}

#[test]
fn programs_of_chance() {
    let rounds =
        std::env::var("VECHE_FUZZ_ROUNDS").map_or(60, |rounds| rounds.parse().expect("a number"));
    let from = std::env::var("VECHE_FUZZ_SEED").map_or(0, |seed| seed.parse().expect("a number"));
    for seed in from..from + rounds {
        let mut random = fastrand::Rng::with_seed(seed);
        let bytes: Vec<u8> = (0..random.usize(0..3000)).map(|_| random.u8(..)).collect();
        eprintln!("VECHE_FUZZ_SEED={seed}");
        script::run(&bytes);
    }
}
