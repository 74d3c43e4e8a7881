//! Tests client certificates, and users who are identified by them.

use serde_json::json;

use super::{Authority, BOTH, Client, TlsFixture, trust};
use crate::support::{Options, call, on_all, until};

const ROUTES: &str = "
[[route]]
path = \"/own\"
handler = \"push\"
identity = \"mtls\"
[[route]]
path = \"/mail\"
handler = \"push\"
identity = \"mtls:email\"
";

#[test]
fn a_certificate_identifies_the_client() {
    let people = Authority::new("people");
    let strangers = Authority::new("strangers");
    let ada = people.client("ada", "ada@example.org", "ada");
    let bob = people.client("bob", "", "bob");
    let eve = strangers.client("ada", "", "eve");
    let listen = format!("client_ca = \"{}\"", people.file().display());
    on_all(|setup| {
        for optional in [false, true] {
            let listen = match optional {
                true => format!("{listen}\nclient_certificate = \"optional\""),
                false => listen.clone(),
            };
            let options = Options {
                routes: ROUTES,
                ..Options::default()
            };
            let fixture = TlsFixture::start(setup, &listen, &options);
            let with = |shown: Option<&std::path::Path>| trust(&fixture.authority, BOTH, shown);
            let open = |trust, target: &str| {
                let mut client = Client::open(fixture.server.public, "localhost", trust)?;
                client.upgrade(target).map(|()| client)
            };
            // The second time, the client resumes with a ticket, which contains the client's certificate too.
            let ada = with(Some(&ada));
            for target in ["/own", "/own", "/mail"] {
                let mut client = open(&ada, target).expect("it opens");
                let user = match target {
                    "/own" => "ada",
                    _ => "ada@example.org",
                };
                call(
                    fixture.server.internal,
                    "push",
                    &json!({"user": user, "data": user}),
                );
                assert_eq!(client.hear().expect("a push"), user.as_bytes());
                client.leave();
            }
            let bob = with(Some(&bob));
            assert!(open(&bob, "/own").is_ok());
            let refused = open(&bob, "/mail").err().expect("no mail address in it");
            assert!(refused.to_string().contains("401"), "{refused}");
            // A presented certificate has to be valid even if it is optional.
            let (eve, nobody) = (with(Some(&eve)), with(None));
            assert!(open(&eve, "/echo").is_err());
            assert_eq!(open(&nobody, "/echo").is_ok(), optional);
            assert!(open(&nobody, "/own").is_err());
            // The client may notice its refusal before the server has counted it.
            let failed = if optional { 1 } else { 3 };
            until("failures to be counted", || {
                fixture.count(
                    "veche_tls_handshake_failures_total",
                    "reason=\"client_certificate\"",
                ) == failed
            });
        }
    });
}

/// Tickets are invalid once the client authority changes.
#[test]
fn a_ticket_does_not_outlive_its_authority() {
    let people = Authority::new("people");
    let others = Authority::new("others");
    let ada = people.client("ada", "", "ada");
    let vouching = people.file().with_file_name("vouching.pem");
    std::fs::copy(people.file(), &vouching).expect("copied");
    let listen = format!("client_ca = \"{}\"", vouching.display());
    let fixture = TlsFixture::start(crate::support::USUAL, &listen, &Options::default());
    let trust = trust(&fixture.authority, BOTH, Some(&ada));
    let open = || {
        let mut client = Client::open(fixture.server.public, "localhost", &trust)?;
        client.last_request("/index.html").map(|_| client)
    };
    assert!(!open().expect("it opens").is_resumed());
    assert!(open().expect("it opens").is_resumed());
    std::fs::copy(others.file(), &vouching).expect("copied");
    let reload = fixture.server.command(&["reload"]).output();
    assert!(reload.expect("it runs").status.success());
    until("the others to vouch", || open().is_err());
}
