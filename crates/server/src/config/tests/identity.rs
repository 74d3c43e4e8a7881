//! `[jwt]`, `[hook]` and the routes that need them.

use std::time::Duration;

use veche_frontends::identity::token::Place;

use super::bad::{says, says_after_listen};
use super::{LISTEN, good};
use crate::config::{Handler, Identity, KeySource, Published};

/// A route with this identity.
fn route(identity: &str) -> String {
    format!("{LISTEN}[[route]]\npath = \"/\"\nhandler = \"push\"\nidentity = \"{identity}\"\n")
}

#[test]
fn keys_of_each_kind() {
    let keys = |lines: &str| {
        let config = good(&format!("{}[jwt]\n{lines}\n", route("jwt")));
        assert_eq!(config.warnings, [], "{lines}");
        config.jwt.expect("a section with keys").keys
    };
    let file = "/etc/veche/key.pem";
    assert_eq!(
        keys("secret_file = \"key.pem\""),
        KeySource::SecretFile(file.into())
    );
    assert_eq!(
        keys("key_file = \"key.pem\""),
        KeySource::PublicFile(file.into())
    );
    assert_eq!(
        keys("secret_env = \"JWT_SECRET\""),
        KeySource::SecretVariable("JWT_SECRET".to_owned())
    );
    assert_eq!(
        keys("jwks = \"https://a.example/keys\"\njwks_refresh = \"1h\"\njwks_ca = \"ca.pem\""),
        KeySource::Published(Published {
            url: "https://a.example/keys".to_owned(),
            refresh: Duration::from_secs(3600),
            ca: Some("/etc/veche/ca.pem".into()),
        })
    );
}

#[test]
fn the_rest_of_the_sections() {
    let config = good(&route("jwt").replace(
        "identity = \"jwt\"",
        "identity = \"http:http://127.0.0.1:9000/who\"",
    ));
    assert_eq!(config.jwt, None);
    assert_eq!(config.hook.headers, ["cookie", "authorization"]);
    assert_eq!(config.hook.cache_time, None);
    let Handler::Push { identity, .. } = &config.routes[0].handler else {
        panic!("it is one");
    };
    let url = "http://127.0.0.1:9000/who".to_owned();
    assert_eq!(*identity, Identity::Hook(url));
    assert_eq!(identity.to_string(), "http:http://127.0.0.1:9000/who");

    let lines = "secret_env = \"S\"\nissuer = [\"a\", \"b\"]\naudience = [\"c\"]\nleeway = \"1m\"\n\
                 user = \"uid\"\ntoken = [\"bearer\", \"protocol\", \"query:t\", \"header:X-T\"]";
    let jwt = good(&format!("{LISTEN}[jwt]\n{lines}\n"))
        .jwt
        .expect("keys");
    assert_eq!(jwt.rules.issuers, ["a", "b"]);
    assert_eq!(jwt.rules.audiences, ["c"]);
    assert_eq!((jwt.rules.leeway_s, jwt.rules.user.as_str()), (60, "uid"));
    let places = [
        Place::Bearer,
        Place::Protocol,
        Place::Query("t".to_owned()),
        Place::Header("X-T".to_owned()),
    ];
    assert_eq!(jwt.places, places);
}

#[test]
fn what_is_risky_is_said() {
    let warns = |lines: &str, what: &str| {
        let config = good(&format!("{LISTEN}[jwt]\n{lines}\n"));
        let warnings: Vec<&str> = config.warnings.iter().map(|one| &*one.message).collect();
        assert!(
            warnings.iter().any(|one| one.contains(what)),
            "{warnings:?}"
        );
    };
    warns("jwks = \"http://a.example/keys\"", "take https://");
    warns(
        "secret_env = \"S\"\ntoken = [\"cookie:t\"]",
        "keep \"origins\"",
    );
}

#[test]
fn what_is_wrong() {
    const SOURCES: &str = "\"secret_file\", \"secret_env\", \"key_file\", \"jwks\"";
    says(
        &route("jwt"),
        &[&format!(
            "6:12: identity: \"jwt\" needs keys to check tokens with: a section [jwt] with one of {SOURCES}"
        )],
    );
    says(
        &route("http://a.example/who"),
        &[
            "6:12: identity: a back end that is asked is \"http:URL\": \"http:http://a.example/who\", found \"http://a.example/who\"",
        ],
    );
    says(
        &route("http:ftp://a.example/who"),
        &[
            "6:12: identity: a URL begins with http:// or https://, found \"ftp://a.example/who\", found \"http:ftp://a.example/who\"",
        ],
    );
    let bad: &[(&str, &[&str])] = &[
        (
            "secret_env = \"S\"\nkey_file = \"key.pem\"",
            &[&format!("5:1: key_file: keys come from one of {SOURCES}")],
        ),
        (
            "key_file = \"none.pem\"",
            &["4:12: key_file: /etc/veche/none.pem: there is no such file"],
        ),
        (
            "secret_env = \"S\"\njwks_ca = \"ca.pem\"",
            &["5:1: jwks_ca: it means nothing without \"jwks\""],
        ),
        (
            "jwks = \"keys.json\"",
            &["4:8: jwks: \"keys.json\" is no URL: relative URL without a base"],
        ),
        (
            "jwks = \"https://ann:secret@a.example/\"",
            &["4:8: jwks: name and password don't belong into a URL"],
        ),
        (
            "secret_env = \"S\"\ntoken = [\"bearer\", \"body\"]",
            &[
                "5:20: token: it is \"bearer\", \"protocol\", \"query:NAME\", \"cookie:NAME\" or \"header:NAME\", found \"body\"",
            ],
        ),
    ];
    for (lines, expected) in bad {
        says_after_listen(&format!("[jwt]\n{lines}\n"), expected);
    }
    says_after_listen(
        "[hook]\nheaders = [\"cookie\", \"a b\", \"X-Real-IP\", \"x-original-uri\"]\n",
        &[
            "4:22: headers: it is no name of a header, found \"a b\"",
            "4:29: headers: this header is never passed on, found \"X-Real-IP\"",
            "4:42: headers: this header is never passed on, found \"x-original-uri\"",
        ],
    );
}
