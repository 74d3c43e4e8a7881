//! Checks `[acme]`, and the names that certificates are ordered for.

use std::net::IpAddr;

use super::{Checker, text};
use crate::acme::{AcmeCertificate, AcmeConfig};
use crate::names::{parse_host, parse_url};
use crate::raw::RawTable;

/// Maximum number of names of one certificate; authorities reject more.
const NAMES_MAX: usize = 100;

/// The port that authorities connect to (RFC 8737 section 3).
const PORT: u16 = 443;

impl Checker<'_> {
    /// Reads `[acme]`; `None` if it has a problem.
    pub(super) fn acme(&mut self, table: &RawTable) -> Option<AcmeConfig> {
        let directory = text(table, "directory")?;
        let at = table.value_at("directory");
        let directory = self.take("directory", at, parse_directory(&directory));
        let contact = self.each(table, "contact", parse_contact);
        let cache = match text(table, "cache") {
            Some(cache) => self.base.join(cache),
            None => {
                let state = self.world.state_folder.as_ref();
                state.unwrap_or(&self.base).join("acme")
            }
        };
        let ca = self.ca(table, "ca");
        Some(AcmeConfig {
            directory: directory?,
            contact: contact?,
            cache,
            ca,
        })
    }

    /// Checks `names`, which are at position `at` of the configuration file. Returns the certificate to order for them.
    pub(super) fn ordered(
        &mut self,
        at: Option<usize>,
        names: &[String],
    ) -> Option<AcmeCertificate> {
        let before = self.problems.count();
        let mut all: Vec<String> = Vec::new();
        for name in names {
            match parse_name(name) {
                Err(why) => self.problems.add(at, format!("tls: acme: {why}")),
                Ok(name) if all.contains(&name) => {
                    self.problems
                        .add(at, format!("tls: acme: {name:?} is listed twice"));
                }
                Ok(name) => all.push(name),
            }
        }
        if names.len() > NAMES_MAX {
            let message = format!("tls: acme: a certificate may have at most {NAMES_MAX} names");
            self.problems.add(at, message);
        }
        if self.problems.count() != before {
            return None;
        }
        // An invalid `[acme]` section has no folder; its problem is already reported.
        let file = self.acme.as_ref()?.file(&all);
        Some(AcmeCertificate { names: all, file })
    }

    /// Warns if the authority can't reach a listener.
    pub(super) fn warn_unreachable(&mut self, table: &RawTable, port: Option<u16>) {
        let at = table.value_at("tls");
        if let Some(port) = port.filter(|&port| port != PORT && port != 0) {
            self.warn(
                at,
                format!("tls: acme: the authority connects to port {PORT} of each name: forward that port to port {port} of this machine"),
            );
        }
        if table.has("allow") {
            self.warn(
                table.key_at("allow"),
                "allow: the authority of tls.acme connects from addresses that it does not publish; allow all addresses",
            );
        }
    }
}

fn parse_directory(text: &str) -> Result<String, String> {
    let url = parse_url(text)?;
    match url.expose().starts_with("https://") {
        true => Ok(url.expose().to_owned()),
        // RFC 8555 section 6.1.
        false => Err(format!("expected an https:// URL, found {url:?}")),
    }
}

fn parse_contact(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("mailto:").unwrap_or(text);
    let is_good = match address.split_once('@') {
        Some((before, host)) => {
            let odd = |c: char| !c.is_ascii_graphic() || matches!(c, ',' | '?' | '@');
            !before.is_empty() && !before.contains(odd) && parse_host(host).is_ok()
        }
        None => false,
    };
    match is_good && !address.contains('*') {
        true => Ok(format!("mailto:{address}")),
        false => Err("expected a mail address such as \"ops@example.org\"".to_owned()),
    }
}

/// Parses a name that can be proven by TLS-ALPN-01.
fn parse_name(text: &str) -> Result<String, String> {
    if text.starts_with("*.") || text == "*" {
        return Err(format!(
            "{text:?}: a wildcard can only be validated by DNS; list the names, or use the files of an ACME client with DNS-01"
        ));
    }
    if text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
        return Err(format!("{text:?}: this is an address; use a host name"));
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    match text.len() <= 253 && text.split('.').all(is_label) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(format!(
            "expected a host name such as \"push.example.org\", found {text:?}"
        )),
    }
}
