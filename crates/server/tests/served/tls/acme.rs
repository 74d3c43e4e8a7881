//! Tests certificates that the server orders from a real ACME authority.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::process::Signal;
use rustls::ClientConfig;

use super::BOTH;
use super::certificates::Authority;
use super::client::{Client, trust, trust_file};
use super::pebble::{BLOCKED, Pebble};
use crate::support::metrics::Metrics;
use crate::support::{Options, Server, Setup, USUAL, get, process, setups, until};

const NAME: &str = "push.veche.test";
/// The name of the certificate's files in the cache: the first name, and the beginning of a hash of all names.
const FILE: &str = "push.veche.test-c7916f37";
const LISTEN: &str = "tls = { acme = [\"push.veche.test\", \"www.veche.test\"] }";

fn count(server: &Server, name: &str, label: &str) -> f64 {
    Metrics::scrape(server.internal).sum(name, &[label])
}

fn orders(server: &Server, outcome: &str) -> f64 {
    let label = format!("outcome=\"{outcome}\"");
    count(server, "veche_acme_orders_total", &label)
}

fn open(server: &Server, trust: &Arc<ClientConfig>) -> std::io::Result<Client> {
    Client::open(server.public, NAME, trust)
}

/// Deletes the record of attempts to order a certificate, so that the server retries at once.
fn try_now(cache: &Path) {
    let _ = fs::remove_file(cache.join(format!("{FILE}.attempts")));
}

/// Puts a certificate that is due for renewal into the cache.
fn put_old(authority: &Authority, cache: &Path) {
    authority.old_server(&[NAME, "www.veche.test"], cache, "old");
    let read = |name: &str| fs::read_to_string(cache.join(name)).expect("there");
    let both = read("old.pem") + &read("old.key");
    fs::write(cache.join("both"), both).expect("written");
    fs::rename(cache.join("both"), cache.join(format!("{FILE}.pem"))).expect("moved");
}

#[test]
fn a_certificate_is_ordered_kept_and_renewed() {
    for setup in setups().filter(|setup| setup.workers == USUAL.workers) {
        let Some(pebble) = Pebble::new(&format!("acme-{}", setup.io)) else {
            return;
        };
        life(pebble, setup);
    }
}

fn life(mut pebble: Pebble, setup: Setup) {
    let options = Options {
        listen: LISTEN,
        routes: &pebble.config(),
        server: "sandbox = true",
        log: "debug",
        ..Options::default()
    };
    let copied = |folder: &Path| {
        fs::copy(pebble.ca(), folder.join("ca.pem")).expect("copied");
    };
    let server = Server::prepared(setup, &options, copied);
    let cache = pebble.cache(&server.folder);

    // The authority is down: this is reported, and everything else works.
    until("the first try", || orders(&server, "unreachable") > 0.0);
    until("what came of it", || {
        let log = server.log();
        log.contains("no new certificate for push.veche.test, www.veche.test, there is no certificate to present; the next attempt is in ")
    });
    assert!(
        server
            .log()
            .contains("acme: no certificate for push.veche.test, www.veche.test yet")
    );
    assert!(
        server
            .log()
            .contains("or a TLS alert if it has no other; ordering a certificate in 0 s")
    );
    assert_eq!(count(&server, "veche_acme_certificate_held", ""), 0.0);
    until("the failure to be counted", || {
        count(&server, "veche_acme_failures", FILE) >= 1.0
    });
    let any = trust_file(&pebble.ca(), BOTH, None);
    let refused = open(&server, &any).err().expect("nothing to show");
    assert!(refused.to_string().contains("AccessDenied"), "{refused}");
    let failures = "veche_tls_handshake_failures_total";
    let label = "reason=\"no_certificate\"";
    until("it to be counted", || count(&server, failures, label) > 0.0);
    assert_eq!(get(server.internal, "/health").status, 200);

    // The authority starts, and validates the names.
    pebble.start(server.public.port());
    try_now(&cache);
    until("a certificate", || orders(&server, "issued") == 1.0);
    let root = trust_file(&pebble.root(), BOTH, None);
    let mut own = None;
    until("it to be shown", || {
        own = open(&server, &root).ok();
        own.is_some()
    });
    let own = own.expect("it opens").shown();
    Client::open(server.public, "www.veche.test", &root).expect("for both");
    until("it to be seen", || {
        count(&server, "veche_acme_certificate_held", "") == 1.0
            && count(&server, "veche_acme_failures", "") == 0.0
    });
    let expiry = count(&server, "veche_tls_certificate_expiry_seconds", NAME);
    let next = count(&server, "veche_acme_next_order_seconds", NAME);
    assert!(next < expiry && next > expiry * 0.9, "{next} {expiry}");
    let mut echo = open(&server, &root).expect("it opens");
    echo.upgrade("/echo").expect("it opens");
    echo.echoes(b"over a certificate of our own");
    for entry in fs::read_dir(&cache).expect("the cache") {
        let path = entry.expect("an entry").path();
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{path:?}");
    }
    let mode = fs::metadata(&cache).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    // A restarted server process uses the stored certificate and orders none.
    let pid = server.pid();
    process::kill(pid, Signal::KILL);
    until("another server process", || {
        let status = server.status();
        status.is_some_and(|status| status["state"] == "ready")
            && server.try_pid().is_some_and(|other| other != pid)
    });
    let mut echo = open(&server, &root).expect("it opens at once");
    assert!(echo.shown() == own);
    echo.upgrade("/echo").expect("it opens");
    assert_eq!(orders(&server, "issued"), 0.0);

    // A certificate that is due for renewal is renewed without closing a connection.
    let authority = Authority::new("old");
    put_old(&authority, &cache);
    try_now(&cache);
    until("another", || orders(&server, "issued") == 1.0);
    until("it to be shown", || {
        open(&server, &root).is_ok_and(|client| client.shown() != own)
    });
    echo.echoes(b"still there");

    // An upgraded server uses the stored certificate.
    let renewed = open(&server, &root).expect("it opens").shown();
    let upgraded = server.command(&["upgrade"]).output().expect("it runs");
    assert!(upgraded.status.success(), "{upgraded:?}");
    assert!(open(&server, &root).expect("it opens").shown() == renewed);
    assert_eq!(orders(&server, "issued"), 0.0);

    let log = server.log();
    let account = fs::read_to_string(cache.join("account.json")).expect("kept");
    let account: serde_json::Value = serde_json::from_str(&account).expect("JSON");
    let key = account["key_pkcs8"].as_str().expect("a key");
    assert!(!log.contains("PRIVATE KEY") && !log.contains(key));
}

/// After a failed validation or a refusal, the old certificate stays in use and the authority is not asked repeatedly.
#[test]
fn an_authority_that_refuses_is_left_alone() {
    let Some(mut pebble) = Pebble::new("acme-refused") else {
        return;
    };
    // No server listens on this port.
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr());
    pebble.start(closed.expect("a port").port());
    let authority = Authority::new("old");
    let blocked =
        format!("[[listen]]\naddress = \"127.0.0.1:0\"\ntls = {{ acme = [\"{BLOCKED}\"] }}\n");
    let options = Options {
        listen: LISTEN,
        routes: &(blocked + &pebble.config()),
        ..Options::default()
    };
    let server = Server::prepared(USUAL, &options, |folder| {
        put_old(&authority, &pebble.cache(folder));
    });
    let cache = pebble.cache(&server.folder);
    let trust = trust(&authority, BOTH, None);
    let mut echo = open(&server, &trust).expect("it opens at once");
    echo.upgrade("/echo").expect("it opens");
    until("both to be refused", || orders(&server, "refused") == 2.0);
    until("the reasons", || {
        let log = server.log();
        log.contains(
            "no new certificate for push.veche.test, www.veche.test, the old certificate stays in use and expires in ",
        ) && log.contains("push.veche.test: Failed to connect to 127.0.0.1")
            && log.contains("no new certificate for blocked.veche.test, there is no certificate to present")
            && log.contains("urn:ietf:params:acme:error:rejectedIdentifier")
    });
    echo.echoes(b"still there");
    open(&server, &trust).expect("it opens");

    // The account was stored despite the failure. Neither a reload nor another process orders a certificate again.
    assert!(cache.join("account.json").exists());
    assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
    let pid = server.pid();
    process::kill(pid, Signal::KILL);
    until("another server process", || {
        server.try_pid().is_some_and(|other| other != pid)
    });
    let next = || count(&server, "veche_acme_next_order_seconds", NAME);
    until("it to look", || next() > 0.0);
    let now_s = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("now")
        .as_secs_f64();
    assert!(next() > now_s + 60.0, "{} {now_s}", next());
    for outcome in ["refused", "unreachable", "issued"] {
        assert_eq!(orders(&server, outcome), 0.0);
    }
    open(&server, &trust).expect("it opens");
}

/// If the authority has lost the account, another is created automatically.
#[test]
fn a_lost_account_is_created_again() {
    let Some(mut pebble) = Pebble::new("acme-account") else {
        return;
    };
    let options = Options {
        listen: LISTEN,
        routes: &pebble.config(),
        ..Options::default()
    };
    let server = Server::with(USUAL, &options);
    let cache = pebble.cache(&server.folder);
    pebble.start(server.public.port());
    try_now(&cache);
    until("a certificate", || orders(&server, "issued") == 1.0);
    let account = || fs::read(cache.join("account.json")).unwrap_or_default();
    let before = account();
    // The authority forgets the account when it is restarted.
    pebble.stop();
    pebble.start(server.public.port());
    put_old(&Authority::new("old"), &cache);
    try_now(&cache);
    until("it to be noticed", || {
        server.log().contains("accountDoesNotExist")
    });
    try_now(&cache);
    until("another certificate", || orders(&server, "issued") == 2.0);
    assert!(!account().is_empty() && account() != before);
}
