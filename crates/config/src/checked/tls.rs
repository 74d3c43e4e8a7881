//! Checks `[[listen]] tls`: certificates must be readable and match their keys. Warns about those that expire soon.

use std::path::PathBuf;

use super::{CertificateFacts, Checker, text, word};
use crate::raw::RawTable;
use crate::types::{CertificateOrigin, ClientCertificates, ListenerTls, PairFiles};
use crate::value::{CertificateSource, DirectiveValue};

/// A certificate that expires within this number of days causes a warning.
pub const EXPIRY_WARNING_DAYS: i64 = 14;

const DAY_S: i64 = 24 * 60 * 60;

impl Checker<'_> {
    /// Reads the TLS settings of a listener; `None` if there are none or they are invalid.
    pub(super) fn tls(&mut self, table: &RawTable) -> Option<ListenerTls> {
        let sources = match table.value("tls") {
            Some(DirectiveValue::Certificates(sources)) => sources,
            _ => {
                if table.is_sound("tls") {
                    self.unusable_reason(table, "client_ca", "tls");
                }
                return None;
            }
        };
        let mut certificates = Vec::new();
        for (index, source) in sources.iter().enumerate() {
            // If `tls` is a single table instead of a list, problems are reported at its position.
            let at = match table.items("tls") {
                0 => table.value_at("tls"),
                _ => table.item_at("tls", index),
            };
            let files = match source {
                CertificateSource::Files { certificate, key } => PairFiles {
                    certificate: self.base.join(certificate),
                    key: self.base.join(key),
                },
                CertificateSource::Acme(names) => {
                    let ordered = self.ordered(at, names);
                    certificates.extend(ordered.map(CertificateOrigin::Acme));
                    continue;
                }
            };
            match (self.world.certificate)(&files.certificate, &files.key) {
                Err(why) => self.problems.add(at, format!("tls: {why}")),
                Ok(facts) => self.check_certificate(at, &files, &facts),
            }
            certificates.push(CertificateOrigin::Files(files));
        }
        Some(ListenerTls {
            certificates,
            clients: self.clients(table),
        })
    }

    fn clients(&mut self, table: &RawTable) -> Option<ClientCertificates> {
        let Some(ca) = text(table, "client_ca") else {
            if table.is_sound("client_ca") {
                self.unusable_reason(table, "client_certificate", "client_ca");
            }
            return None;
        };
        let ca: PathBuf = self.base.join(ca);
        if let Err(why) = (self.world.client_ca)(&ca) {
            self.problems
                .add(table.value_at("client_ca"), format!("client_ca: {why}"));
        }
        Some(ClientCertificates {
            ca,
            is_required: word(table, "client_certificate") != "optional",
        })
    }

    /// Reports a directive that has an effect only together with `other`, which is missing.
    fn unusable_reason(&mut self, table: &RawTable, name: &str, other: &str) {
        if table.has(name) {
            self.problems.add(
                table.key_at(name),
                format!("{name}: has no effect without {other:?}"),
            );
        }
    }

    fn check_certificate(
        &mut self,
        at: Option<usize>,
        files: &PairFiles,
        facts: &CertificateFacts,
    ) {
        let file = files.certificate.display();
        let (now_s, until_s) = (self.world.now_s, facts.valid_until_s);
        if until_s < now_s {
            let days = (now_s - until_s) / DAY_S;
            self.warn(
                at,
                format!(
                    "tls: the certificate in {file} expired {}, so clients refuse it",
                    ago(days)
                ),
            );
        } else if until_s < now_s + EXPIRY_WARNING_DAYS * DAY_S {
            self.warn(at, expires(&file.to_string(), until_s, now_s));
        }
        if facts.valid_from_s > now_s {
            self.warn(
                at,
                format!("tls: the certificate in {file} is not valid yet, or the clock of this machine is wrong, so clients refuse it"),
            );
        }
        if facts.is_key_exposed {
            let key = files.key.display();
            self.warn(
                at,
                format!(
                    "tls: every user of this machine can read the key in {key}; run chmod o= {key}"
                ),
            );
        }
    }
}

/// Formats the warning that a certificate expires soon.
pub fn expires(file: &str, until_s: i64, now_s: i64) -> String {
    let when = match (until_s - now_s) / DAY_S {
        0 => "within a day".to_owned(),
        1 => "in 1 day".to_owned(),
        days => format!("in {days} days"),
    };
    format!("tls: the certificate in {file} expires {when}")
}

fn ago(days: i64) -> String {
    match days {
        0 => "today".to_owned(),
        1 => "1 day ago".to_owned(),
        days => format!("{days} days ago"),
    }
}
