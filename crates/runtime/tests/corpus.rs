//! Replays the fuzzing corpus as regression tests.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/runtime.rs"]
#[expect(unreachable_pub, reason = "public in the fuzz crate")]
mod runtime;

#[test]
fn the_corpus_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/runtime");
    let mut inputs = 0;
    for entry in fs::read_dir(corpus).expect("a folder") {
        let input = fs::read(entry.expect("a file").path());
        runtime::run(&input.expect("its bytes"));
        inputs += 1;
    }
    assert!(inputs > 0, "the corpus is empty");
}
