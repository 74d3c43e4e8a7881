//! The directives of `[pam]`.

use std::time::Duration;

use super::row::{DefaultValue, Directive, Section, seconds};
use crate::value::DirectiveKind;

const MS: Duration = Duration::from_millis(1);

pub(super) static PAM: &[Directive] = &[
    Section::Pam.row(
        "realm",
        DirectiveKind::Text {
            expected: "a name such as \"chat\"",
        },
        DefaultValue::Toml("\"veche\""),
        "The realm that browsers show and by which they remember the password.",
    ),
    Section::Pam.row(
        "helpers",
        DirectiveKind::Integer {
            min: 1,
            max: 32,
            words: &[],
        },
        DefaultValue::Toml("4"),
        "The number of helper processes, in which PAM's modules run. Each checks one password at a time; a wrong one takes about two seconds, because modules pause. The first helper starts with the first password.",
    ),
    Section::Pam.row(
        "helper_idle",
        DirectiveKind::Duration {
            min: MS,
            max: seconds(86_400),
            off: false,
        },
        DefaultValue::Toml("\"1m\""),
        "A helper process that has been idle for this time is ended.",
    ),
    Section::Pam.row(
        "timeout",
        DirectiveKind::Duration {
            min: seconds(5),
            max: seconds(120),
            off: false,
        },
        DefaultValue::Toml("\"10s\""),
        "The time limit of a request, including the wait for a helper. If it passes, the request gets 503, a helper that is still busy with it is killed, and the check counts as a wrong password. PAM's modules wait for about two seconds after a wrong password, so the limit can't be short.",
    ),
    Section::Pam.row(
        "waiting",
        DirectiveKind::Integer {
            min: 1,
            max: 1_000_000,
            words: &[],
        },
        DefaultValue::Toml("256"),
        "The maximum number of handshakes and requests that wait for an answer, per service; further ones get 503 at once. One client address may have at most half of these. If `wrong_per_address` is set, no more passwords of one address wait at once than that rate permits in a burst.",
    ),
    Section::Pam.row(
        "cache_time",
        DirectiveKind::Duration {
            min: MS,
            max: seconds(600),
            off: true,
        },
        DefaultValue::Toml("\"5s\""),
        "How long a correct password is cached: browsers send it with every request. It is stored as a digest with a key of the process. A user who is locked out or has changed the password may connect for that long; a reload clears the cache. Open WebSockets are not affected: `disconnect` ends them. Wrong passwords are cached for a minute, so that a page that repeats an old one does not count as guessing.",
    ),
    Section::Pam.row(
        "wrong_per_address",
        DirectiveKind::Rate { bytes: false },
        DefaultValue::Toml("\"10/m\""),
        "The rate of wrong passwords per client address, and also the size of a burst. Beyond it every password from the address gets 429 without a check, even a correct one, unless it is cached by `cache_time`. Checks that get no answer, because a helper is too slow or ends, count as wrong. The same wrong password does not count again within a minute. An IPv6 /64 is one address, and so are all clients of a proxy that is not in `trusted_proxies`.",
    ),
];
