//! Tests of loading trust stores: when a file is read, and which callers wait for the read.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use rcgen::generate_simple_self_signed;
use veche_tls::{TrustSource, TrustStores};

fn certificate() -> String {
    let made = generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    made.cert.pem()
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("veche-trusts-{name}-{}", std::process::id()))
}

#[test]
fn a_file_is_read_once_and_again_when_it_has_changed() {
    let (trusts, file) = (TrustStores::default(), path("file"));
    let trust_source = TrustSource::File(file.clone());
    assert!(trusts.load(&trust_source).is_err() && trusts.cached(&trust_source).is_none());
    fs::write(&file, certificate()).expect("written");
    assert!(trusts.cached(&trust_source).is_none());
    let is_same = |a: &veche_tls::ClientTrust, b: &veche_tls::ClientTrust| {
        std::sync::Arc::ptr_eq(&a.config(), &b.config())
    };
    let first = trusts.load(&trust_source).expect("a certificate");
    assert!(is_same(&first, &trusts.load(&trust_source).expect("kept")));
    assert!(is_same(
        &first,
        &trusts.cached(&trust_source).expect("known")
    ));
    // The new file has another length, so that the change is noticed even if the file system's clock has not
    // advanced.
    fs::write(&file, certificate() + &certificate()).expect("written");
    assert!(trusts.cached(&trust_source).is_none());
    let second = trusts.load(&trust_source).expect("certificates");
    assert!(!is_same(&first, &second));
    fs::remove_file(&file).expect("removed");
    assert!(trusts.cached(&trust_source).is_none() && trusts.load(&trust_source).is_err());
}

#[test]
fn loading_one_source_does_not_block_others() {
    let (trusts, pipe) = (TrustStores::default(), path("pipe"));
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let trust_source = TrustSource::File(pipe.clone());
    thread::scope(|scope| {
        let found = scope.spawn(|| trusts.load(&trust_source).map(drop));
        // The pipe can be opened for writing as soon as another thread reads it.
        let mut reads = File::options().write(true).open(&pipe).expect("a reader");
        assert!(trusts.cached(&trust_source).is_none());
        assert!(trusts.load(&TrustSource::Insecure).is_ok());
        assert!(trusts.cached(&TrustSource::Insecure).is_some());
        reads.write_all(certificate().as_bytes()).expect("written");
        drop(reads);
        found.join().expect("no panic").expect("a certificate");
    });
    fs::remove_file(&pipe).expect("removed");
}
