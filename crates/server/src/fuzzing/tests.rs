//! Replays the fuzzing corpora as regression tests.

use std::fs;
use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut inputs = 0;
    for entry in fs::read_dir(corpus.join(target)).expect("a readable corpus") {
        let path = entry.expect("an entry").path();
        run(&fs::read(path).expect("a readable input"));
        inputs += 1;
    }
    assert!(inputs > 10, "{inputs} inputs");
}

#[test]
fn the_corpus_under_tls_holds() {
    replay("tls_server", super::tls_server);
}

#[test]
fn the_corpus_of_reloads_holds() {
    replay("reload", super::reload);
}
