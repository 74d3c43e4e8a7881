//! The directives of `[acme]`.

use super::row::{DefaultValue, Directive, Section};
use crate::value::DirectiveKind;

pub(super) static ACME: &[Directive] = &[
    acme(
        "directory",
        DirectiveKind::Text { expected: "a URL" },
        DefaultValue::Toml("\"https://acme-v02.api.letsencrypt.org/directory\""),
        "The URL of the authority's directory (RFC 8555). The default is Let's Encrypt; `\"https://acme-staging-v02.api.letsencrypt.org/directory\"` is its test environment, whose certificates clients do not trust. A server that orders certificates agrees to the authority's terms.",
    ),
    acme(
        "contact",
        DirectiveKind::List {
            expected: "mail addresses such as [\"ops@example.org\"]",
        },
        DefaultValue::Unset("the account has no contact"),
        "Contact addresses for the authority, sent when the account is created.",
    ),
    acme(
        "cache",
        DirectiveKind::Text {
            expected: "the path of a folder",
        },
        DefaultValue::Unset(
            "`acme` in the folder that systemd gives for state (`$STATE_DIRECTORY`), else beside this file",
        ),
        "The folder of accounts, certificates and keys, with a subfolder per `directory`; created if its parent exists. Accessible to the server's user only. Preserve it: without it certificates are ordered again, and authorities limit orders.",
    ),
    acme(
        "ca",
        DirectiveKind::Text {
            expected: "the path of a PEM file",
        },
        DefaultValue::Unset("the system's authorities"),
        "CA certificates that verify the server behind `directory`, for an authority of your own.",
    ),
];

const fn acme(
    name: &'static str,
    kind: DirectiveKind,
    default: DefaultValue,
    doc: &'static str,
) -> Directive {
    Section::Acme.row(name, kind, default, doc)
}
