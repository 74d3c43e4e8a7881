//! The rows of `[pam]`.

use std::time::Duration;

use super::row::{Default, Directive, Section, seconds};
use crate::value::Kind;

const MS: Duration = Duration::from_millis(1);

pub(super) static PAM: &[Directive] = &[
    Section::Pam.row(
        "realm",
        Kind::Text {
            expected: "a name such as \"chat\"",
        },
        Default::Toml("\"veche\""),
        "What browsers call the place that the password is for, and remember it by.",
    ),
    Section::Pam.row(
        "helpers",
        Kind::Integer {
            min: 1,
            max: 32,
            words: &[],
        },
        Default::Toml("4"),
        "Helper processes at a time, in which PAM's modules run. Each judges one password after the other; a wrong one takes it about two seconds, by the pause that modules make. The first begins with the first password.",
    ),
    Section::Pam.row(
        "helper_idle",
        Kind::Duration {
            min: MS,
            max: seconds(86_400),
            off: false,
        },
        Default::Toml("\"1m\""),
        "A helper that has had nothing to do for so long is ended.",
    ),
    Section::Pam.row(
        "timeout",
        Kind::Duration {
            min: seconds(5),
            max: seconds(120),
            off: false,
        },
        Default::Toml("\"10s\""),
        "How long a request may wait for its answer, the time before a helper is free included; then it gets 503, and a helper that is still at it is killed. What a helper had by then counts as a wrong password. Modules wait for some two seconds where one is wrong, so it can't be short.",
    ),
    Section::Pam.row(
        "waiting",
        Kind::Integer {
            min: 1,
            max: 1_000_000,
            words: &[],
        },
        Default::Toml("256"),
        "The most handshakes and requests that wait for an answer, of each service; further ones get 503 at once. One address may have half of them, and as many passwords among them as `wrong_per_address` has at once, unless that is `\"off\"`.",
    ),
    Section::Pam.row(
        "cache_time",
        Kind::Duration {
            min: MS,
            max: seconds(600),
            off: true,
        },
        Default::Toml("\"5s\""),
        "How long a right password is known to be right without asking again: browsers send it with every request. It is kept as a digest with a key of the process. Whoever is locked out, or has another password by now, may come in for so long; a reload forgets all of them. WebSockets that are open stay open in any case: `disconnect` ends them. Wrong ones are known for a minute, so that a page that sends an old one again and again is no guesser.",
    ),
    Section::Pam.row(
        "wrong_per_address",
        Kind::Rate { bytes: false },
        Default::Toml("\"10/m\""),
        "How many wrong passwords one address may send: as many at once, and then so fast. What gets no answer because a helper takes too long or ends counts too; the same wrong one once more within a minute does not. Further ones get 429, right or wrong, and PAM is not asked; only those that are known by `cache_time` still get in. All addresses of an IPv6 /64 are one, and so are all clients of a proxy that is not in `trusted_proxies`.",
    ),
];
