//! Tests `[jwt]`, `[identity_hook]`, `[pam]` and the routes that need them.

use std::cell::{Cell, LazyCell};
use std::path::Path;
use std::time::Duration;

use veche_calls::SecretUrl;
use veche_frontends::identity::token::{Anonymous, TokenSource};
use veche_pam::PamService;

use super::bad::{says, says_after_listen};
use super::{LISTEN, good};
use crate::identity::PreviousSecret;
use crate::{IdentitySource, KeySource, PublishedKeySet};

/// Returns a valid listener, and a route with this `identity`.
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
        KeySource::Published(PublishedKeySet {
            url: SecretUrl::new("https://a.example/keys".to_owned()),
            refresh: Duration::from_secs(3600),
            ca: Some("/etc/veche/ca.pem".into()),
        })
    );
}

#[test]
fn what_tokens_may_be_like() {
    let jwt = |lines: &str| {
        let config = good(&format!(
            "{}[jwt]\nsecret_env = \"S\"\n{lines}\n",
            route("jwt")
        ));
        assert_eq!(config.warnings, [], "{lines}");
        config.jwt.expect("a section with keys")
    };
    let usual = jwt("");
    assert!(usual.rules.needs_expiry && !usual.refuses_short_secrets);
    assert_eq!(usual.previous, None);
    assert!(!jwt("require_exp = false").rules.needs_expiry);
    assert!(jwt("short_secret = \"refuse\"").refuses_short_secrets);
    let previous = jwt("previous_secret_file = \"key.pem\"\nprevious_secret_until = 1800000000");
    let expected = PreviousSecret {
        keys: KeySource::SecretFile("/etc/veche/key.pem".into()),
        until_s: Some(1_800_000_000),
    };
    assert_eq!(previous.previous, Some(expected));
    let files: Vec<_> = previous.files().collect();
    assert_eq!(files, [Path::new("/etc/veche/key.pem")]);

    let both =
        "[jwt]\nsecret_env = \"S\"\n[subscription_jwt]\nkey_file = \"key.pem\"\nissuer = [\"a\"]\n";
    let config = good(&format!("{}{both}", route("jwt")));
    let own = config.subscription_jwt.as_ref().expect("keys");
    assert_eq!(own.keys, KeySource::PublicFile("/etc/veche/key.pem".into()));
    assert_eq!((own.rules.issuers.len(), own.places.len()), (1, 0));
    assert_eq!(config.tokens().count(), 2);

    for (line, expected) in [
        ("", Anonymous::None),
        ("anonymous = \"token\"\n", Anonymous::Token),
        ("anonymous = \"all\"\n", Anonymous::All),
    ] {
        let config = good(&format!(
            "{}{line}[jwt]\nsecret_env = \"S\"\n",
            route("jwt")
        ));
        let identity = config.routes[0].handler.identity();
        assert_eq!(identity, Some(&IdentitySource::Token(expected)));
    }
}

#[test]
fn the_rest_of_the_sections() {
    let config = good(&route("jwt").replace(
        "identity = \"jwt\"",
        "identity = \"http:http://127.0.0.1:9000/who\"",
    ));
    assert_eq!(config.jwt, None);
    assert_eq!(config.identity_hook.headers, ["cookie", "authorization"]);
    assert_eq!(config.identity_hook.cache_time, None);
    let Some(identity) = config.routes[0].handler.identity() else {
        panic!("it is one");
    };
    let url = "http://127.0.0.1:9000/who".to_owned();
    assert_eq!(*identity, IdentitySource::Hook(SecretUrl::new(url)));
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
        TokenSource::Bearer,
        TokenSource::Protocol,
        TokenSource::Query("t".to_owned()),
        TokenSource::Header("X-T".to_owned()),
    ];
    assert_eq!(jwt.places, places);
}

#[test]
fn risky_settings_are_warned_of() {
    let warns = |lines: &str, what: &str| {
        let config = good(&format!("{LISTEN}[jwt]\n{lines}\n"));
        let warnings: Vec<&str> = config.warnings.iter().map(|one| &*one.message).collect();
        assert!(
            warnings.iter().any(|one| one.contains(what)),
            "{warnings:?}"
        );
    };
    warns(
        "secret_env = \"SHORT\"",
        "secret_env: the secret has 6 bytes",
    );
    warns(
        "secret_env = \"S\"\nprevious_secret_env = \"SHORT\"",
        "previous_secret_env: the secret has 6 bytes",
    );
    warns("jwks = \"http://a.example/keys\"", "use https://");
}

#[test]
fn tokens_in_cookies_are_risky_for_pages_of_all_origins_only() {
    let warnings = |origins: &str| {
        let jwt = "[jwt]\nsecret_env = \"S\"\ntoken = [\"cookie:t\"]\n";
        let warnings = good(&format!("{}{origins}\n{jwt}", route("jwt"))).warnings;
        warnings
            .iter()
            .map(|one| one.message.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(warnings(""), Vec::<String>::new());
    assert_eq!(
        warnings("origins = [\"https://shop.example\"]"),
        Vec::<String>::new()
    );
    let all = warnings("origins = [\"*\"]");
    assert!(
        all.iter()
            .any(|one| one.contains("adds the token in a cookie")),
        "{all:?}"
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
            "6:12: identity: expected \"http:\" before the URL of an identity hook: \"http:http://a.example/who\", found \"http://a.example/who\"",
        ],
    );
    says(
        &route("http:ftp://a.example/who"),
        &[
            "6:12: identity: a URL must begin with http:// or https://, found \"ftp://a.example/who\", found \"http:ftp://a.example/who\"",
        ],
    );
    says(
        &format!("{}anonymous = \"all\"\n", route("none")),
        &["7:1: anonymous: has no effect without identity = \"jwt\""],
    );
    let bad: &[(&str, &[&str])] = &[
        (
            "secret_env = \"S\"\nkey_file = \"key.pem\"",
            &[&format!(
                "5:1: key_file: only one of these can be the source of keys: {SOURCES}"
            )],
        ),
        (
            "key_file = \"none.pem\"",
            &["4:12: key_file: /etc/veche/none.pem: there is no such file"],
        ),
        (
            "secret_env = \"S\"\njwks_ca = \"ca.pem\"",
            &["5:1: jwks_ca: has no effect without \"jwks\""],
        ),
        (
            "secret_env = \"SHORT\"\nshort_secret = \"refuse\"",
            &[
                "4:14: secret_env: the secret has 6 bytes; secrets of less than 32 bytes can be guessed; create one with `openssl rand -hex 32`",
            ],
        ),
        (
            "key_file = \"key.pem\"\nprevious_secret_env = \"S\"",
            &["5:1: previous_secret_env: has no effect without secret_file or secret_env"],
        ),
        (
            "secret_env = \"S\"\nprevious_secret_env = \"S\"\nprevious_secret_file = \"key.pem\"",
            &["5:1: previous_secret_env: only one previous secret can be set"],
        ),
        (
            "secret_env = \"S\"\nprevious_secret_until = 1",
            &[
                "5:1: previous_secret_until: has no effect without previous_secret_file or previous_secret_env",
            ],
        ),
        (
            "secret_env = \"S\"\n[subscription_jwt]\nissuer = [\"a\"]",
            &[&format!(
                "5:1: [subscription_jwt] needs keys to check tokens with: one of {SOURCES}"
            )],
        ),
        (
            "secret_env = \"S\"\n[subscription_jwt]\nsecret_env = \"S\"\ntoken = [\"bearer\"]",
            &["7:1: unknown directive \"token\" in [subscription_jwt]; it belongs under [jwt]"],
        ),
        (
            "jwks = \"keys.json\"",
            &["4:8: jwks: \"keys.json\" is not a URL: relative URL without a base"],
        ),
        (
            "jwks = \"https://ann:secret@a.example/\"",
            &["4:8: jwks: a URL must not contain a name and password"],
        ),
        (
            "secret_env = \"S\"\ntoken = [\"bearer\", \"body\"]",
            &[
                "5:20: token: expected \"bearer\", \"protocol\", \"query:NAME\", \"cookie:NAME\" or \"header:NAME\", found \"body\"",
            ],
        ),
    ];
    for (lines, expected) in bad {
        says_after_listen(&format!("[jwt]\n{lines}\n"), expected);
    }
    says_after_listen(
        "[identity_hook]\nheaders = [\"cookie\", \"a b\", \"X-Real-IP\", \"x-original-uri\"]\n",
        &[
            "4:22: headers: not a header name, found \"a b\"",
            "4:29: headers: this header can't be passed on, found \"X-Real-IP\"",
            "4:42: headers: this header can't be passed on, found \"x-original-uri\"",
        ],
    );
}

#[test]
fn passwords() {
    let config = good(&route("pam:veche"));
    assert_eq!(config.warnings, []);
    let Some(identity) = config.routes[0].handler.identity() else {
        panic!("it is one");
    };
    assert_eq!(identity.to_string(), "pam:veche");
    assert_eq!(config.pam.realm, "veche");
    assert_eq!(config.pam.cache_time, Some(Duration::from_secs(5)));
    let off = "[pam]\ncache_time = \"off\"\nwrong_per_address = \"off\"\n";
    let pam = good(&format!("{}{off}", route("pam:/srv/rules/veche"))).pam;
    assert_eq!((pam.cache_time, pam.wrong_per_address), (None, None));

    says(
        &route("pam:other"),
        &["6:12: identity: \"pam:other\": there are no such rules"],
    );
    says(
        &route("pam:Veche"),
        &[
            "6:12: identity: a PAM service name must be in lower case: \"veche\" instead of \"Veche\", found \"pam:Veche\"",
        ],
    );
    let relative = "6:12: identity: a PAM service is the name of a file in /etc/pam.d or an absolute path, found \"pam:rules/veche\"";
    says(&route("pam:rules/veche"), &[relative]);
    let realm = "realm: expected visible ASCII characters and spaces, without \" and \\";
    says_after_listen(
        "[pam]\nrealm = \"the \\\"chat\\\"\"\n",
        &[&format!("4:9: {realm}")],
    );
    let sandboxed = format!("[server]\nsandbox = true\n{}", route("pam:veche"));
    says(
        &sandboxed,
        &[
            "8:12: identity: \"pam:veche\" can't be combined with server.sandbox, which prevents running programs and loading modules",
        ],
    );
}

#[test]
fn the_library_is_looked_for_once() {
    let count = Cell::new(0);
    let library = LazyCell::new(|| {
        count.set(count.get() + 1);
        Err("no library".to_owned())
    });
    let judged = |path| {
        let service = PamService::parse(path).expect("a path");
        crate::pam(&service, &library)
    };
    let missing = judged("/etc/there-are-no-such-rules").expect_err("no file");
    assert!(missing.contains("does not exist"), "{missing}");
    assert_eq!(count.get(), 0);
    for _ in 0..3 {
        // `/etc/passwd` exists on every machine, so it serves as the file with the PAM rules.
        assert_eq!(judged("/etc/passwd"), Err("no library".to_owned()));
    }
    assert_eq!(count.get(), 1);
}

#[test]
fn a_check_has_time_for_the_modules_pause() {
    let with = |timeout: &str| format!("{}[pam]\ntimeout = \"{timeout}\"\n", route("pam:veche"));
    assert_eq!(good(&with("5s")).pam.timeout, Duration::from_secs(5));
    says(
        &with("1s"),
        &["8:11: timeout: expected a duration from \"5s\" to \"2m\", found \"1s\""],
    );
}

#[test]
fn passwords_require_an_encrypted_listener() {
    let on = |listen: &str| {
        let listen = format!("[[listen]]\naddress = \"0.0.0.0:8080\"\n{listen}");
        route("pam:veche").replace(LISTEN, &listen)
    };
    says(
        &on(""),
        &[
            "6:12: identity: \"pam:veche\" makes clients send passwords, which could be read on the network at 0.0.0.0:8080; give that listener tls, or let it listen on 127.0.0.1, or name the proxy that terminates TLS in trusted_proxies",
        ],
    );
    let warnings = good(&on("trusted_proxies = [\"10.0.0.0/8\"]\n")).warnings;
    let found: Vec<&str> = warnings.iter().map(|one| &*one.message).collect();
    let expected = "identity: \"pam:veche\": passwords are sent in plain text between the trusted proxies and 0.0.0.0:8080";
    assert!(found.contains(&expected), "{found:?}");
}

#[test]
fn a_hook_that_may_outlast_the_handshake_is_warned_of() {
    let hook = "http:http://127.0.0.1:3000/who";
    for (identity, timeouts, is_warned) in [
        (hook, "", false),
        (hook, "[identity_hook]\ntimeout = \"9999ms\"\n", false),
        (hook, "[identity_hook]\ntimeout = \"10s\"\n", true),
        (hook, "[limits]\nhandshake_timeout = \"2s\"\n", true),
        ("none", "[identity_hook]\ntimeout = \"10s\"\n", false),
    ] {
        let warnings = good(&format!("{}{timeouts}", route(identity))).warnings;
        let shown: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        let is_there = shown.iter().any(|one| one.contains("a handshake may last"));
        assert_eq!(is_there, is_warned, "{timeouts}: {shown:?}");
    }
}
