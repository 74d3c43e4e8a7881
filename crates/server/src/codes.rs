//! The reference page of codes: every close code and error status with its text, its cause, the settings that affect it
//! and the metric that counts it.
//!
//! The table is written by hand and tests compare it with the code: each text occurs in a source file, each status and
//! close code of the sources has a row, each setting is a directive, and each metric is on `/metrics`.
//! docs/reference/codes.md is generated from it.

mod centrifuge;
mod closes;
mod errors;
mod row;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use veche_proto::http::Status;
use veche_proto::websocket;
use veche_types::codes::{self, CloseCode, CodeContext};

use crate::generated_page::assert_page_is_current;
use closes::{CLOSES, SILENT};
use errors::{ERRORS, STATUSES, UNSAID};
use row::CodeEntry;

fn every() -> impl Iterator<Item = &'static CodeEntry> {
    let of_centrifuge = [centrifuge::CLOSES, centrifuge::ERRORS];
    let all = [CLOSES, SILENT, STATUSES, ERRORS, UNSAID];
    all.into_iter().chain(of_centrifuge).flatten()
}

fn page() -> String {
    let mut page = String::from(
        "# Codes\n\nThe close codes, error codes and HTTP statuses that Veche sends: the text of each, when it is sent, the \
         [settings](config.md) that affect it and the [metric](metrics.md) that counts it. Codes that an application \
         sends itself are not listed.\n\nThis page is generated, and a test compares it with the code; \
         `VECHE_BLESS=1 cargo test -p veche reference` regenerates it.\n",
    );
    write_table(&mut page);
    for (title, text, first, rows) in [
        (
            "WebSocket close codes",
            "The text is the reason in the Close frame. 1000 to 1015 are defined by RFC 6455; codes from 3500 on tell clients not to reconnect.",
            "code",
            CLOSES,
        ),
        (
            "Close codes of Centrifugo's protocol",
            "Sent on routes with `handler = \"centrifuge\"`, in addition to the WebSocket close codes. SDKs reconnect on their own after every code except 3500 to 3999 and 4500 to 4999; see [the guide](../guide/centrifuge.md).",
            "code",
            centrifuge::CLOSES,
        ),
        (
            "Errors of Centrifugo's protocol",
            "Replies to single commands; the connection stays open.",
            "code",
            centrifuge::ERRORS,
        ),
        (
            "WebSockets closed without a Close frame",
            "In these cases the peer would not receive a Close frame.",
            "code",
            SILENT,
        ),
        (
            "HTTP statuses of requests and handshakes",
            "The text is the response body; in responses of the API it is the `message`. Browsers hide the status of a failed handshake from scripts: the WebSocket fails with 1006.",
            "status",
            STATUSES,
        ),
        (
            "API errors",
            "`{\"error\":{\"code\":…,\"message\":…}}`, in response to an API call, a push line or a message on `/api/socket`.",
            "code",
            ERRORS,
        ),
        (
            "Connections closed without a response",
            "These connections end before a request was read, so no response can be sent. They are counted by reason.",
            "",
            UNSAID,
        ),
    ] {
        let _ = write!(page, "\n## {title}\n\n{text}\n\n");
        let named = match first {
            "" => "reason".to_owned(),
            first => format!("{first} | text"),
        };
        let columns = named.matches('|').count() + 4;
        let _ = writeln!(
            page,
            "| {named} | when | setting | metric |\n|{}",
            "---|".repeat(columns)
        );
        for row in rows {
            let _ = writeln!(page, "| {} |", cells(row, first.is_empty()).join(" | "));
        }
    }
    page
}

/// Writes the table of all codes.
fn write_table(page: &mut String) {
    page.push_str(
        "\n## All codes\n\nWhere the text is empty, the sections below list the texts that occur. *Retry* says whether clients reconnect, \
         resubscribe or resend the command on their own.\n\n\
         | code | name | text | meaning | retry | used in |\n|---|---|---|---|---|---|\n",
    );
    for code in codes::all() {
        let meaning: Vec<&str> = code.meaning.iter().map(|part| part.trim()).collect();
        let again = match code.is_retried {
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        let places: Vec<&str> = code
            .contexts
            .iter()
            .map(|place| context_name(*place))
            .collect();
        let (number, name, text) = (code.number, code.name, code.text);
        let (meaning, places) = (meaning.join(" "), places.join(", "));
        let _ = writeln!(
            page,
            "| {number} | {name} | {text} | {meaning} | {again} | {places} |"
        );
    }
}

fn context_name(place: CodeContext) -> &'static str {
    match place {
        CodeContext::WebSocket => "WebSocket close",
        CodeContext::CentrifugeDisconnect => "Centrifugo's protocol: disconnect",
        CodeContext::CentrifugeUnsubscribe => "Centrifugo's protocol: unsubscribe",
        CodeContext::CentrifugeError => "Centrifugo's protocol: command error",
        CodeContext::Api => "API error",
        CodeContext::Exit => "exit code",
    }
}

fn cells(row: &CodeEntry, has_no_code: bool) -> Vec<String> {
    let link = |setting: &&str| {
        let (_, name) = setting
            .split_once('.')
            .expect("a setting must be written as SECTION.NAME");
        format!("[`{name}`](config.md#{})", setting.replace('.', ""))
    };
    let settings: Vec<String> = row.settings.iter().map(link).collect();
    let metric = match row.metric {
        "" => String::new(),
        metric => format!("`{metric}`"),
    };
    let mut cells = match has_no_code {
        true => vec![format!("`{}`", row.words)],
        false => vec![row.code.to_string(), row.words.to_owned()],
    };
    cells.extend([row.when.to_owned(), settings.join(", "), metric]);
    cells
}

#[test]
fn reference_of_codes_is_current() {
    assert_page_is_current("codes.md", &page());
}

/// Returns the source files with texts that are sent to peers, without their tests.
fn sources() -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<PathBuf> = [
        "centrifuge/src",
        "frontends/src",
        "types/src",
        "proto/src",
        "apps/src",
        "server/src/worker",
        "worker/src",
    ]
    .map(|folder| crates.join(folder))
    .into();
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs")
                && !path.ends_with("status.rs")
            {
                let text = fs::read_to_string(&path).expect("a source");
                let end = text.find("#[cfg(test)]").unwrap_or(text.len());
                sources.push(text[..end].to_owned());
            }
        }
    }
    sources
}

#[test]
fn what_the_page_says_stands_in_the_code() {
    let sources = sources();
    let config = include_str!("../../../docs/reference/config.md");
    for row in every() {
        let quoted = format!("\"{}", row.words);
        assert!(
            sources.iter().any(|source| source.contains(&quoted)),
            "no source file contains {:?}",
            row.words
        );
        for setting in row.settings {
            let is_there = config.contains(&format!("\n### {setting}\n"));
            assert!(
                is_there,
                "the reference of the configuration does not contain {setting}"
            );
        }
    }
}

#[test]
fn every_code_of_the_code_is_on_the_page() {
    let listed: BTreeSet<u16> = every().map(|row| row.code).collect();
    for source in sources() {
        for name in source.split("Status::").skip(1) {
            let name: String = name
                .chars()
                .take_while(|c| c.is_ascii_uppercase() || *c == '_')
                .collect();
            let Some(status) = status_called(&name).filter(|status| status.0 >= 400) else {
                continue;
            };
            // The statuses of conditional and range requests are those of plain HTTP (RFC 9110), so they need no row.
            let is_plain_http = matches!(
                status,
                Status::PRECONDITION_FAILED | Status::RANGE_NOT_SATISFIABLE
            );
            assert!(
                is_plain_http || listed.contains(&status.0),
                "the table of codes has no row for {name}"
            );
        }
    }
    // A code without a text of its own is skipped here: it has a row for each text that is sent
    // with it.
    for code in CloseCode::ALL {
        let is_for_clients = code.row().is_retried.is_some() && !code.text().is_empty();
        let is_there = CLOSES
            .iter()
            .any(|row| (row.code, row.words) == code.parts());
        assert!(
            !is_for_clients || is_there,
            "the table of close codes has no row for {code:?}"
        );
    }
    // Each protocol error must have a row, except a masked frame from a server, which is an error of our own client.
    let errors = include_str!("../../proto/src/websocket/error.rs");
    for words in errors.split("#[error(\"").skip(1) {
        let words = words.split('"').next().unwrap_or_default();
        let is_ours = words == websocket::ProtocolError::Masked.to_string();
        assert!(
            is_ours || CLOSES.iter().any(|row| row.words == words),
            "{words:?} has no row"
        );
    }
}

/// Returns the status that a constant of this name stands for.
fn status_called(name: &str) -> Option<Status> {
    let source = include_str!("../../proto/src/http/status.rs");
    let line = source
        .lines()
        .find(|line| line.split_ascii_whitespace().nth(1) == Some(name))?;
    line.split_ascii_whitespace()
        .next()?
        .parse()
        .ok()
        .map(Status)
}

#[test]
fn every_metric_of_the_page_is_counted() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let reference = fs::read_to_string(file).expect("the reference");
    for row in every().filter(|row| !row.metric.is_empty()) {
        let name = row.metric.trim_end_matches("_total");
        assert!(reference.contains(&format!("`{name}`")), "{name}");
    }
}
