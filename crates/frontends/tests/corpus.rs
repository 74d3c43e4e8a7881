//! Replays the fuzzer's corpus: what it has found once stays found.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/connection.rs"]
#[allow(unreachable_pub, reason = "public in the fuzz crate")]
mod connection;

#[test]
fn the_corpus_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/connection");
    let mut inputs = 0;
    for entry in fs::read_dir(corpus).expect("a readable corpus") {
        connection::run(&fs::read(entry.expect("an entry").path()).expect("a readable input"));
        inputs += 1;
    }
    assert!(inputs > 20, "{inputs} inputs");
}
