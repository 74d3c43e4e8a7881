//! Replays the corpora of the HTTP fuzz targets as regression tests.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/http.rs"]
#[expect(unreachable_pub, reason = "public in the fuzz crate")]
mod http;

#[test]
fn corpora_hold() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (folder, run) in [
        ("http_head", http::run_head as fn(&[u8])),
        ("http_body", http::run_body),
    ] {
        let mut inputs = 0;
        for entry in fs::read_dir(corpus.join(folder)).unwrap() {
            run(&fs::read(entry.unwrap().path()).unwrap());
            inputs += 1;
        }
        assert!(inputs > 5, "{folder}: {inputs} inputs");
    }
}
