//! Replays the fuzzer's corpus as a regression test.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/centrifuge.rs"]
#[expect(unreachable_pub, reason = "public in the fuzz crate")]
mod centrifuge;

#[test]
fn the_corpus_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/centrifuge");
    let mut inputs = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        centrifuge::run(&fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "the corpus is empty");
}
