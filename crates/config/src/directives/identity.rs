//! The directives of `[jwt]`, `[subscription_jwt]` and `[identity_hook]`.

use std::time::Duration;

use super::row::{DefaultValue, Directive, Section, seconds};
use crate::value::DirectiveKind;

const FILE: DirectiveKind = DirectiveKind::Text {
    expected: "the path of a file",
};
const CA: DirectiveKind = DirectiveKind::Text {
    expected: "the path of a PEM file",
};
/// The kind of directives whose value is a count.
pub(super) const COUNT: DirectiveKind = DirectiveKind::Integer {
    min: 1,
    max: 1_000_000,
    words: &[],
};
/// The description of `concurrency` in `[identity_hook]` and `[hooks]`.
pub(super) const CONCURRENCY: &str = "The maximum number of concurrent requests of each kind of hook to one URL; further ones queue in order, and `timeout` starts when they are sent. All kinds together should not exceed the number of processes of the back end (`pm.max_children` of php-fpm): further requests would wait there and may time out.";
const MS: Duration = Duration::from_millis(1);

pub(super) static JWT: &[Directive] = &keys_and_rules(Section::Jwt);

pub(super) static SUBSCRIPTION_JWT: &[Directive] = &keys_and_rules(Section::SubscriptionJwt);

/// Directives that `[subscription_jwt]` does not have, since only connection tokens are read from requests.
pub(super) static JWT_PLACES: &[Directive] = &[Section::Jwt.row(
    "token",
    DirectiveKind::List {
        expected: "places such as [\"bearer\", \"cookie:token\"]",
    },
    DefaultValue::Toml("[\"bearer\", \"protocol\", \"query:token\"]"),
    "Where to look for the token; the first place with one is used. `\"bearer\"`: the header `Authorization: Bearer TOKEN`. `\"protocol\"`: a WebSocket subprotocol `bearer.TOKEN`, by which browsers can send one outside of the URL; Veche never echoes it, so offer a second subprotocol, which is selected. `\"query:NAME\"`, `\"cookie:NAME\"`, `\"header:NAME\"`. Proxies log URLs: list the query last.",
)];

/// Returns the directives that `[jwt]` and `[subscription_jwt]` share.
const fn keys_and_rules(section: Section) -> [Directive; 15] {
    [
        section.row(
            "secret_file",
            FILE,
            DefaultValue::Unset("one of `secret_file`, `secret_env`, `key_file` and `jwks` is required"),
            "A file with the secret that signs tokens (HS256, HS384, HS512). All bytes of the file belong to the secret, but a newline at the end is ignored. Create one with `openssl rand -hex 32`. Read at the start and on reload.",
        ),
        section.row(
            "secret_env",
            DirectiveKind::Text {
                expected: "the name of a variable",
            },
            DefaultValue::Unset("see `secret_file`"),
            "The environment variable that contains the secret that signs tokens. It is an alternative to `secret_file`.",
        ),
        section.row(
            "previous_secret_file",
            FILE,
            DefaultValue::Unset("only the current secret is accepted"),
            "With `secret_file` or `secret_env`: a file with the previous secret. Tokens signed with it remain valid, so the secret can be replaced without a gap: move the old one here, and remove it once its tokens have expired. Read at the start and on reload.",
        ),
        section.row(
            "previous_secret_env",
            DirectiveKind::Text {
                expected: "the name of a variable",
            },
            DefaultValue::Unset("see `previous_secret_file`"),
            "The environment variable that contains the previous secret. It is an alternative to `previous_secret_file`.",
        ),
        section.row(
            "previous_secret_until",
            DirectiveKind::Integer {
                min: 1,
                max: 1 << 53,
                words: &[],
            },
            DefaultValue::Unset("the previous secret is valid while it is configured"),
            "When the previous secret becomes invalid, in seconds since 1970.",
        ),
        section.row(
            "short_secret",
            DirectiveKind::Word {
                words: &["warn", "refuse"],
                hidden: &[],
            },
            DefaultValue::Toml("\"warn\""),
            "How to treat a secret of less than 32 bytes, which can be guessed: accept it with a warning, or refuse the configuration.",
        ),
        section.row(
            "key_file",
            FILE,
            DefaultValue::Unset("see `secret_file`"),
            "A PEM file with public keys, `-----BEGIN PUBLIC KEY-----` each: RSA of 2048 to 8192 bits (RS256, RS384, RS512), P-256 (ES256), P-384 (ES384), P-521 (ES512) or Ed25519 (EdDSA). A token has to be signed with one of them, by an algorithm of its kind. With several keys, one can be replaced without a gap. Read at the start and on reload.",
        ),
        section.row(
            "jwks",
            DirectiveKind::Text { expected: "a URL" },
            DefaultValue::Unset("see `secret_file`"),
            "The URL of the issuer's JSON Web Key Set, such as `\"https://issuer.example/.well-known/jwks.json\"`: fetched at the start and every `jwks_refresh`. A token with an unknown key triggers a fetch, at most every ten seconds, and waits for it. While the URL fails, the last keys remain in use. Symmetric keys in a set are ignored.",
        ),
        section.row(
            "jwks_refresh",
            DirectiveKind::Duration {
                min: seconds(10),
                max: seconds(86_400),
                off: false,
            },
            DefaultValue::Toml("\"10m\""),
            "How often the key set is fetched from `jwks`. A key that the issuer has removed becomes invalid after this time at the latest.",
        ),
        section.row(
            "jwks_ca",
            CA,
            DefaultValue::Unset("the system's authorities"),
            "CA certificates that verify the server behind `jwks`.",
        ),
        section.row(
            "issuer",
            DirectiveKind::List {
                expected: "issuers such as [\"https://issuer.example/\"]",
            },
            DefaultValue::Unset("any issuer"),
            "Accepted values of the token's `iss`.",
        ),
        section.row(
            "audience",
            DirectiveKind::List {
                expected: "audiences such as [\"chat\"]",
            },
            DefaultValue::Unset("tokens for any audience"),
            "Accepted values of the claim `aud`: a token must have one of them. If this option is not set, `aud` is not checked, as in Centrifugo. Set it if the issuer signs tokens for other services with the same key.",
        ),
        section.row(
            "require_exp",
            DirectiveKind::Flag { words: &[] },
            DefaultValue::Toml("true"),
            "Whether a token must have the claim `exp`. A token without `exp` is valid until its key is replaced or it is [revoked](../guide/identity.md#blocked-users-and-revoked-tokens). The connection that it opens lasts equally long, unless the token has `expire_at`. For the behaviour of Centrifugo, which accepts tokens without `exp`, use `false`.",
        ),
        section.row(
            "leeway",
            DirectiveKind::Duration {
                min: Duration::ZERO,
                max: seconds(600),
                off: false,
            },
            DefaultValue::Toml("\"30s\""),
            "The tolerated difference between the clocks of the issuer and of this machine: tokens expire that much later and become valid that much earlier.",
        ),
        section.row(
            "user",
            DirectiveKind::Text {
                expected: "the name of a claim",
            },
            DefaultValue::Toml("\"sub\""),
            "The claim with the user: a string or an integer.",
        ),
    ]
}

pub(super) static HOOK: &[Directive] = &[
    hook(
        "headers",
        DirectiveKind::List {
            expected: "names of headers such as [\"cookie\", \"authorization\"]",
        },
        "[\"cookie\", \"authorization\"]",
        "The client's headers that are passed to the back end. All passed values together are the key of a cached answer, so list few.",
    ),
    hook(
        "timeout",
        DirectiveKind::Duration {
            min: MS,
            max: seconds(60),
            off: false,
        },
        "\"3s\"",
        "The time limit of a request to the back end. If it passes, the handshake gets 503.",
    ),
    hook(
        "cache_time",
        DirectiveKind::Duration {
            min: MS,
            max: seconds(3_600),
            off: true,
        },
        "\"off\"",
        "How long an answer that names a user is cached if it has no valid `max-age` in a header `Cache-Control`. `max-age` applies up to an hour, also to refusals, and `no-store` and `no-cache` prevent caching. After a logout the user may still connect while the answer is cached, unless the API disconnects the user. An answer with `expire_at` is never cached beyond that time.",
    ),
    hook(
        "cache_entries",
        DirectiveKind::Integer {
            min: 1,
            max: 10_000_000,
            words: &[],
        },
        "10000",
        "The maximum number of cached answers; the oldest are evicted first.",
    ),
    hook("concurrency", COUNT, "32", CONCURRENCY),
    hook(
        "waiting",
        COUNT,
        "4096",
        "The maximum number of handshakes and requests that wait for an answer, including queued ones; further ones get 503 at once.",
    ),
    hook(
        "failures",
        COUNT,
        "5",
        "No requests are sent for the time of `pause` if there were this many failures within ten seconds, and more failures than answers. Meanwhile handshakes get 503 at once. A failure is a connection that was refused, broken or not open in time, or a response with status 502 or 503. A response that is not complete in time and status 504 also count, but only once per client address. After the pause a single request tests whether the back end answers again.",
    ),
    hook(
        "pause",
        DirectiveKind::Duration {
            min: MS,
            max: seconds(3_600),
            off: false,
        },
        "\"10s\"",
        "How long requests are suspended after the number of failures set by `failures`.",
    ),
    Section::IdentityHook.row(
        "ca",
        CA,
        DefaultValue::Unset("the system's authorities"),
        "CA certificates that verify the back end behind `https`.",
    ),
];

const fn hook(
    name: &'static str,
    kind: DirectiveKind,
    default: &'static str,
    doc: &'static str,
) -> Directive {
    Section::IdentityHook.row(name, kind, DefaultValue::Toml(default), doc)
}
