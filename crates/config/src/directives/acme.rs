//! The rows of `[acme]`.

use super::row::{Change, Default, Directive, Section};
use crate::value::Kind;

pub(super) static ACME: &[Directive] = &[
    acme(
        "directory",
        Kind::Text { expected: "a URL" },
        Default::Toml("\"https://acme-v02.api.letsencrypt.org/directory\""),
        "The URL of the authority's directory (RFC 8555). The default is Let's Encrypt; `\"https://acme-staging-v02.api.letsencrypt.org/directory\"` is its place for trying things out, whose certificates nobody believes. To order there is to agree to the authority's terms.",
    ),
    acme(
        "contact",
        Kind::List {
            expected: "mail addresses such as [\"ops@example.org\"]",
        },
        Default::Unset("the authority can write to nobody"),
        "Whom the authority may write to. Told to it when the account is made.",
    ),
    acme(
        "cache",
        Kind::Text {
            expected: "the path of a folder",
        },
        Default::Unset(
            "`acme` in the folder that systemd gives for state (`$STATE_DIRECTORY`), else beside this file",
        ),
        "The folder of accounts, certificates and their keys, with a folder in it for each `directory`; made if its own folder is there. For the server's user only. Keep it: who has lost it orders anew, and authorities limit how often one may.",
    ),
    acme(
        "ca",
        Kind::Text {
            expected: "the path of a PEM file",
        },
        Default::Unset("the system's authorities"),
        "Certificates of the authorities that vouch for the server behind `directory`: for an authority of your own.",
    ),
];

const fn acme(name: &'static str, kind: Kind, default: Default, doc: &'static str) -> Directive {
    Directive {
        section: Section::Acme,
        name,
        kind,
        default,
        handlers: &[],
        change: Change::Reload,
        doc,
    }
}
