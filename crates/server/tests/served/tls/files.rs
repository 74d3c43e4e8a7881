//! Certificates that change while clients are connected.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use super::{BOTH, Client, TlsFixture, trust};
use crate::support::{Options, USUAL, on_all, until};

/// Replaces both files of the server's certificate.
fn renew(fixture: &TlsFixture) {
    let folder = fixture.server.folder.join("new");
    fixture.authority.server(&["localhost"], &folder, "own");
    for name in ["own.pem", "own.key"] {
        fs::rename(
            folder.join(name),
            fixture.server.folder.join("tls").join(name),
        )
        .expect("moved");
    }
}

#[test]
fn new_certificates_are_loaded_without_dropping_connections() {
    on_all(|setup| {
        let fixture = TlsFixture::start(setup, "", &Options::default());
        let mut first = fixture.open();
        first.upgrade("/echo").expect("it opens");
        // A resumed handshake does not transmit the certificate, so each client is new and has no ticket.
        let stranger = || {
            let trust = trust(&fixture.authority, BOTH, None);
            Client::open(fixture.server.public, "localhost", &trust).expect("it opens")
        };
        let old = first.shown();
        renew(&fixture);
        until("the new certificate", || stranger().shown() != old);
        first.echoes(b"still there");

        // A reload uses the new certificate at once; earlier tickets remain valid.
        let trust = trust(&fixture.authority, BOTH, None);
        let again = || Client::open(fixture.server.public, "localhost", &trust).expect("it opens");
        again().last_request("/index.html").expect("an answer");
        let old = stranger().shown();
        renew(&fixture);
        let reload = fixture
            .server
            .command(&["reload"])
            .output()
            .expect("it runs");
        assert!(reload.status.success(), "{reload:?}");
        until("the workers to hear of it", || stranger().shown() != old);
        assert!(again().is_resumed());
        first.echoes(b"still there");

        // With only one file of the pair replaced, or with an invalid certificate, the old certificate stays in use.
        let before = stranger().shown();
        let certificate = fixture.server.folder.join("tls/own.pem");
        fs::write(&certificate, "nothing").expect("written");
        until("the bad file to be told", || {
            fixture.server.log().contains("the old certificates stay")
        });
        assert!(stranger().shown() == before);
        let reload = fixture
            .server
            .command(&["reload"])
            .output()
            .expect("it runs");
        let printed = String::from_utf8_lossy(&reload.stderr).into_owned();
        assert!(!reload.status.success(), "{reload:?}");
        assert!(
            printed.contains("own.pem: the file contains no certificate"),
            "{printed}"
        );
        assert!(stranger().shown() == before);
        first.echoes(b"still there");
        first.leave();
    });
}

/// A server process restarted with invalid files starts without them, and recovers when they are valid.
#[test]
fn a_restart_with_bad_files_waits_for_good_ones() {
    let fixture = TlsFixture::start(USUAL, "", &Options::default());
    let certificate = fixture.server.folder.join("tls/own.pem");
    let good = fs::read(&certificate).expect("readable");
    fs::write(&certificate, "nothing").expect("written");
    let pid = fixture.server.pid();
    crate::support::process::kill(pid, Signal::KILL);
    until("another server process", || {
        let status = fixture.server.status();
        status.is_some_and(|status| status["state"] == "ready")
            && fixture.server.try_pid().is_some_and(|other| other != pid)
    });
    // The internal listener serves. The public listener, whose certificate is invalid, accepts no client.
    let internal = crate::support::get(fixture.server.internal, "/health");
    assert_eq!(internal.status, 200);
    assert!(Client::open(fixture.server.public, "localhost", &fixture.trust).is_err());
    fs::write(&certificate, good).expect("written");
    until("it to be mended", || {
        Client::open(fixture.server.public, "localhost", &fixture.trust).is_ok()
    });
}

#[test]
fn check_reports_invalid_certificate_files() {
    let authority = super::Authority::new("checked");
    let folder = std::env::temp_dir().join(format!("veche-tls-check-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    authority.server(&["a.example"], &folder, "a");
    authority.server(&["b.example"], &folder, "b");
    let chain = format!(
        "{}{}",
        fs::read_to_string(folder.join("b.pem")).expect("readable"),
        fs::read_to_string(folder.join("a.pem")).expect("readable"),
    );
    fs::write(folder.join("turned.pem"), chain).expect("written");
    fs::write(folder.join("empty.pem"), "").expect("written");
    let locked =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    fs::write(folder.join("locked.key"), locked).expect("written");
    for (certificate, key, expected) in [
        ("a.pem", "a.key", ""),
        (
            "a.pem",
            "b.key",
            "b.key: the key does not belong to the certificate in",
        ),
        (
            "turned.pem",
            "a.key",
            "a.key: the key belongs to certificate 2 of",
        ),
        ("lost.pem", "a.key", "lost.pem: there is no such file"),
        ("a.pem", "lost.key", "lost.key: there is no such file"),
        (
            "a.key",
            "a.key",
            "a.key: the file contains a key, but no certificate",
        ),
        (
            "a.pem",
            "a.pem",
            "a.pem: the file contains a certificate, but no key",
        ),
        (
            "empty.pem",
            "a.key",
            "empty.pem: the file contains no certificate",
        ),
        (
            "a.pem",
            "locked.key",
            "locked.key: the key is encrypted with a passphrase",
        ),
    ] {
        let config = folder.join("veche.toml");
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\ntls = {{ certificate = \"{certificate}\", key = \"{key}\" }}\n"
        );
        fs::write(&config, text).expect("written");
        let output = check(&config);
        let all = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.success(), expected.is_empty(), "{all}");
        assert!(all.contains(expected), "{expected}\nin\n{all}");
        assert!(
            expected.is_empty() || all.contains("veche.toml:3:7: tls: "),
            "{all}"
        );
    }
    let _ = fs::remove_dir_all(&folder);
}

fn check(config: &Path) -> std::process::Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_veche"));
    let command = command.arg("check").arg("-c").arg(config);
    command.output().expect("it runs")
}
