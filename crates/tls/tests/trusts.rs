//! Loading of trust stores: which files are read when, and which callers wait for it.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use rcgen::generate_simple_self_signed;
use veche_tls::{Believe, Trusts};

fn certificate() -> String {
    let made = generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    made.cert.pem()
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("veche-trusts-{name}-{}", std::process::id()))
}

#[test]
fn a_file_is_read_once_and_again_when_it_has_changed() {
    let (trusts, file) = (Trusts::default(), path("file"));
    let believe = Believe::File(file.clone());
    assert!(trusts.find(&believe).is_err() && trusts.known(&believe).is_none());
    fs::write(&file, certificate()).expect("written");
    assert!(trusts.known(&believe).is_none());
    let is_same = |a: &veche_tls::Trust, b: &veche_tls::Trust| {
        std::sync::Arc::ptr_eq(&a.config(), &b.config())
    };
    let first = trusts.find(&believe).expect("a certificate");
    assert!(is_same(&first, &trusts.find(&believe).expect("kept")));
    assert!(is_same(&first, &trusts.known(&believe).expect("known")));
    // A different length, whatever the clock of the file system says.
    fs::write(&file, certificate() + &certificate()).expect("written");
    assert!(trusts.known(&believe).is_none());
    let second = trusts.find(&believe).expect("certificates");
    assert!(!is_same(&first, &second));
    fs::remove_file(&file).expect("removed");
    assert!(trusts.known(&believe).is_none() && trusts.find(&believe).is_err());
}

#[test]
fn nobody_else_waits_while_a_file_is_read() {
    let (trusts, pipe) = (Trusts::default(), path("pipe"));
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let believe = Believe::File(pipe.clone());
    thread::scope(|scope| {
        let found = scope.spawn(|| trusts.find(&believe).map(drop));
        // Opens once it is being read.
        let mut reads = File::options().write(true).open(&pipe).expect("a reader");
        assert!(trusts.known(&believe).is_none());
        assert!(trusts.find(&Believe::Anybody).is_ok());
        assert!(trusts.known(&Believe::Anybody).is_some());
        reads.write_all(certificate().as_bytes()).expect("written");
        drop(reads);
        found.join().expect("no panic").expect("a certificate");
    });
    fs::remove_file(&pipe).expect("removed");
}
