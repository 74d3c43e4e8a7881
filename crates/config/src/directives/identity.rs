//! The rows of `[jwt]`, `[subscription_jwt]` and `[identity_hook]`.

use std::time::Duration;

use super::row::{Change, Default, Directive, Section, seconds};
use crate::value::Kind;

const FILE: Kind = Kind::Text {
    expected: "the path of a file",
};
const CA: Kind = Kind::Text {
    expected: "the path of a PEM file",
};
/// How many of something.
pub(super) const COUNT: Kind = Kind::Integer {
    min: 1,
    max: 1_000_000,
    words: &[],
};
/// What `concurrency` of `[identity_hook]` and `[hooks]` limits.
pub(super) const CONCURRENCY: &str = "The most requests to one URL at a time; further ones queue in order, and `timeout` counts from when they are sent. At most the processes that the back end has for them (`pm.max_children` of php-fpm): requests beyond those wait there and may time out.";
const MS: Duration = Duration::from_millis(1);

pub(super) static JWT: &[Directive] = &keys_and_rules(Section::Jwt);

pub(super) static SUBSCRIPTION_JWT: &[Directive] = &keys_and_rules(Section::SubscriptionJwt);

/// Only connection tokens are looked for in requests.
pub(super) static JWT_PLACES: &[Directive] = &[jwt(
    Section::Jwt,
    "token",
    Kind::List {
        expected: "places such as [\"bearer\", \"cookie:token\"]",
    },
    Default::Toml("[\"bearer\", \"protocol\", \"query:token\"]"),
    "Where the token may be; the first place that has one counts. `\"bearer\"`: the header `Authorization: Bearer TOKEN`. `\"protocol\"`: a WebSocket subprotocol `bearer.TOKEN`, which is how a browser can send one outside of the URL; it is never said back, so offer another protocol beside it, which is. `\"query:NAME\"`, `\"cookie:NAME\"`, `\"header:NAME\"`. URLs are written into logs by proxies: take the query last.",
)];

/// Rows that `[jwt]` and `[subscription_jwt]` share.
const fn keys_and_rules(section: Section) -> [Directive; 15] {
    [
        jwt(
            section,
            "secret_file",
            FILE,
            Default::Unset("one of `secret_file`, `secret_env`, `key_file` and `jwks` has to be"),
            "A file with the secret that the back end signs tokens with (HS256, HS384, HS512): its bytes as they are, a line end at the end left out. Make one with `openssl rand -hex 32`. Read at start and at reload.",
        ),
        jwt(
            section,
            "secret_env",
            Kind::Text {
                expected: "the name of a variable",
            },
            Default::Unset("see `secret_file`"),
            "The variable of the environment that holds the secret, instead of a file.",
        ),
        jwt(
            section,
            "previous_secret_file",
            FILE,
            Default::Unset("one secret counts"),
            "Beside `secret_file` or `secret_env`: a file with the secret that was in use before. Tokens that are signed with it still hold, so the secret can be changed without a gap: move the old one here, and take it away once its tokens have expired. Read at start and at reload.",
        ),
        jwt(
            section,
            "previous_secret_env",
            Kind::Text {
                expected: "the name of a variable",
            },
            Default::Unset("see `previous_secret_file`"),
            "The variable of the environment that holds the previous secret, instead of a file.",
        ),
        jwt(
            section,
            "previous_secret_until",
            Kind::Integer {
                min: 1,
                max: 1 << 53,
                words: &[],
            },
            Default::Unset("for as long as there is a previous secret"),
            "Until when the previous secret counts, in seconds since 1970.",
        ),
        jwt(
            section,
            "short_secret",
            Kind::Word {
                words: &["warn", "refuse"],
                hidden: &[],
            },
            Default::Toml("\"warn\""),
            "What becomes of a secret of less than 32 bytes, which can be guessed by trying: it is taken with a warning, or the configuration is refused.",
        ),
        jwt(
            section,
            "key_file",
            FILE,
            Default::Unset("see `secret_file`"),
            "A PEM file with public keys, `-----BEGIN PUBLIC KEY-----` each: RSA of 2048 to 8192 bits (RS256, RS384, RS512), P-256 (ES256), P-384 (ES384), P-521 (ES512) or Ed25519 (EdDSA). A token has to be signed with one of them, by an algorithm of its kind. Several are for the time of a change. Read at start and at reload.",
        ),
        jwt(
            section,
            "jwks",
            Kind::Text { expected: "a URL" },
            Default::Unset("see `secret_file`"),
            "The URL of the issuer's JSON Web Key Set, such as `\"https://issuer.example/.well-known/jwks.json\"`: fetched at start and then every `jwks_refresh`. A token whose key is not among them has it fetched at once, every ten seconds at most, and waits for that. While the URL fails the keys last fetched stay in use. Secrets in a set are not used.",
        ),
        jwt(
            section,
            "jwks_refresh",
            Kind::Duration {
                min: seconds(10),
                max: seconds(86_400),
                off: false,
            },
            Default::Toml("\"10m\""),
            "How often the set is fetched. A key that the issuer has taken out of it is no longer believed after so long.",
        ),
        jwt(
            section,
            "jwks_ca",
            CA,
            Default::Unset("the system's authorities"),
            "Certificates of the authorities that vouch for the server behind `jwks`.",
        ),
        jwt(
            section,
            "issuer",
            Kind::List {
                expected: "issuers such as [\"https://issuer.example/\"]",
            },
            Default::Unset("anybody who has the key"),
            "The token's `iss` has to be one of these.",
        ),
        jwt(
            section,
            "audience",
            Kind::List {
                expected: "audiences such as [\"chat\"]",
            },
            Default::Unset("tokens for any audience"),
            "One of the token's `aud`, a string or an array of strings, has to be one of these. Without any, `aud` is not looked at, as in Centrifugo: set it where an issuer signs tokens for other services with the same key.",
        ),
        jwt(
            section,
            "require_exp",
            Kind::Flag { words: &[] },
            Default::Toml("true"),
            "Whether a token has to have an `exp`. One without holds until its key is changed or it is [revoked](../guide/identity.md#users-and-tokens-that-are-not-let-in), and so does the connection that it opens, unless `expire_at` says when that ends. Centrifugo takes tokens without `exp`: `false`.",
        ),
        jwt(
            section,
            "leeway",
            Kind::Duration {
                min: Duration::ZERO,
                max: seconds(600),
                off: false,
            },
            Default::Toml("\"30s\""),
            "How far the clocks of the issuer and of this machine may differ: so much later a token expires, and so much earlier it is valid.",
        ),
        jwt(
            section,
            "user",
            Kind::Text {
                expected: "the name of a claim",
            },
            Default::Toml("\"sub\""),
            "The claim that holds the user: a string, or a whole number.",
        ),
    ]
}

pub(super) static HOOK: &[Directive] = &[
    hook(
        "headers",
        Kind::List {
            expected: "names of headers such as [\"cookie\", \"authorization\"]",
        },
        "[\"cookie\", \"authorization\"]",
        "The client's headers that the back end gets to see. All that is passed on together is what an answer is kept by, so the fewer the better.",
    ),
    hook(
        "timeout",
        Kind::Duration {
            min: MS,
            max: seconds(60),
            off: false,
        },
        "\"3s\"",
        "How long the back end may take; then the handshake gets 503.",
    ),
    hook(
        "cache_time",
        Kind::Duration {
            min: MS,
            max: seconds(3_600),
            off: true,
        },
        "\"off\"",
        "How long an answer that names a user is kept, if its own `Cache-Control` says nothing. What `max-age` says counts up to an hour, for refusals too; `no-store` and `no-cache` are kept to. Whoever logs out may come in for so long, unless he is disconnected by the API; an answer with `expire_at` is never kept for longer.",
    ),
    hook(
        "cache_entries",
        Kind::Integer {
            min: 1,
            max: 10_000_000,
            words: &[],
        },
        "10000",
        "The most answers that are kept; the oldest go first.",
    ),
    hook("concurrency", COUNT, "32", CONCURRENCY),
    hook(
        "waiting",
        COUNT,
        "4096",
        "The most handshakes and requests that wait for an answer, those in the queue included; further ones get 503 at once.",
    ),
    hook(
        "failures",
        COUNT,
        "5",
        "The back end is not asked for `pause`, and handshakes get 503 at once, after this many failures within ten seconds if they outnumber the answers of that time. A failure is a refused or broken connection, 502 or 503. No answer within `timeout`, and 504, count once for each client address. After the pause one request is tried.",
    ),
    hook(
        "pause",
        Kind::Duration {
            min: MS,
            max: seconds(3_600),
            off: false,
        },
        "\"10s\"",
        "See `failures`.",
    ),
    Directive {
        section: Section::IdentityHook,
        name: "ca",
        kind: CA,
        default: Default::Unset("the system's authorities"),
        handlers: &[],
        change: Change::Reload,
        doc: "Certificates of the authorities that vouch for the back end behind `https`.",
    },
];

const fn jwt(
    section: Section,
    name: &'static str,
    kind: Kind,
    default: Default,
    doc: &'static str,
) -> Directive {
    Directive {
        section,
        name,
        kind,
        default,
        handlers: &[],
        change: Change::Reload,
        doc,
    }
}

const fn hook(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Directive {
    Directive {
        section: Section::IdentityHook,
        name,
        kind,
        default: Default::Toml(default),
        handlers: &[],
        change: Change::Reload,
        doc,
    }
}
