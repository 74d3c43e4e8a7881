//! Certificates ordered by ACME: decides when to order, and records the outcome of orders.
//!
//! The control thread checks every few seconds whether a certificate is due and has the outbound
//! crate order it. An issued certificate is written to the cache, on a thread of the outbound
//! crate, and the server loads it like any changed file. One order runs at a time among all
//! processes that share the cache.
//!
//! The crate decides when an order is due, and reads and writes the files of the cache. It does not
//! depend on listeners. The protocol is in [`veche_outbound::acme`].

#![forbid(unsafe_code)]

mod folder;
mod timing;

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{debug, error, info, warn};
use veche_calls::masked;
use veche_clock::now;
use veche_config::{self as config, Config};
use veche_outbound::AtomicCounter;
use veche_outbound::Outbound;
use veche_outbound::acme::{CertificateOrder, OrderError, OrderOutcome};
use veche_tls::{AlpnChallenges, Certificate, FileFingerprint, fingerprint};

pub use folder::prepare;
use folder::{CertificateFolder, OrderLock};
use timing::{CertificateInfo, OrderHistory, due_s};

/// The target of this module's log lines.
const TARGET: &str = "veche::acme";

/// The interval of checks for due certificates.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The delay of the next attempt while another process is ordering a certificate.
const BUSY: Duration = Duration::from_secs(10);

/// The delay of the next attempt if the cache can't be written to.
const NO_CACHE: Duration = Duration::from_secs(10 * 60);

/// Orders and renews the configured certificates.
#[derive(Clone, Debug, Default)]
pub struct CertificateManager(Arc<ManagerState>);

#[derive(Debug, Default)]
struct ManagerState {
    outbound: Outbound,
    alpn_challenges: AlpnChallenges,
    figures: OrderMetrics,
    kept: Mutex<ManagedCertificates>,
    /// Whether an order is in progress. Not protected by the mutex of `kept`, because an order may end
    /// while that mutex is locked.
    is_under_way: AtomicBool,
}

/// Counters of ended orders.
#[derive(Debug, Default)]
pub struct OrderMetrics {
    /// The number of issued certificates.
    pub issued: AtomicCounter,
    /// The number of refused orders.
    pub refused: AtomicCounter,
    /// The number of orders that did not reach the authority.
    pub unreachable: AtomicCounter,
}

#[derive(Debug, Default)]
struct ManagedCertificates {
    acme: Option<config::AcmeConfig>,
    wanted: Vec<ManagedCertificate>,
    /// No order starts before this time; `None` if orders may start at once.
    rests_until: Option<Instant>,
    has_stopped: bool,
}

/// A certificate that has to be ordered or renewed.
#[derive(Debug)]
struct ManagedCertificate {
    names: Vec<String>,
    file: PathBuf,
    held: Option<CertificateInfo>,
    attempts: OrderHistory,
    /// The versions of the certificate and history files when they were last read.
    seen: Option<(FileFingerprint, FileFingerprint)>,
    /// A random number from 0 to 1 that spreads renewals.
    random: f64,
    due_s: i64,
}

/// The state of a certificate, for metrics.
#[derive(Debug)]
pub struct CertificateStatus {
    /// The file of the certificate.
    pub file: PathBuf,
    /// Whether the certificate exists, has all names and has not expired.
    pub is_held: bool,
    /// The number of failed orders since the last success.
    pub failures: u32,
    /// The time of the next order, in Unix seconds.
    pub due_s: i64,
}

impl CertificateManager {
    /// Creates a manager that sends its requests through `outbound`.
    pub fn new(outbound: Outbound) -> Self {
        Self(Arc::new(ManagerState {
            outbound,
            ..ManagerState::default()
        }))
    }

    /// Returns the challenges to present to authorities.
    pub fn alpn_challenges(&self) -> &AlpnChallenges {
        &self.0.alpn_challenges
    }

    /// Returns the counters of orders.
    pub fn metrics(&self) -> &OrderMetrics {
        &self.0.figures
    }

    /// Applies a configuration and logs missing certificates.
    pub fn set(&self, config: &Config) {
        let mut kept = self.0.kept.lock();
        let ordered = config.ordered();
        if kept.acme.as_ref() != Some(&config.acme) {
            kept.rests_until = None;
        }
        kept.acme = Some(config.acme.clone());
        let folder = CertificateFolder::new(config.acme.folder());
        let mut before = std::mem::take(&mut kept.wanted);
        for config::AcmeCertificate { names, file } in ordered {
            let known = before
                .iter()
                .position(|one| (&one.names, &one.file) == (&names, &file));
            if let Some(known) = known {
                kept.wanted.push(before.swap_remove(known));
                continue;
            }
            let mut wanted = ManagedCertificate {
                names,
                file,
                held: None,
                attempts: OrderHistory::default(),
                seen: None,
                random: fastrand::f64(),
                due_s: 0,
            };
            let now_s = config::unix_now_s();
            wanted.look(&folder, now_s);
            let names = wanted.names.join(", ");
            let what = match &wanted.held {
                Some(held) if held.is_good(&wanted.names, now_s) => None,
                Some(held) if held.is_for(&wanted.names) => {
                    Some(format!("the certificate for {names} has expired"))
                }
                _ => Some(format!(
                    "no certificate for {names} yet: clients that request these names get the listener's first other certificate, or a TLS alert if it has no other"
                )),
            };
            if let Some(what) = what {
                warn!(target: TARGET, directory = masked(&config.acme.directory),
                    "acme: {what}; ordering a certificate in {} s",
                    (wanted.due_s - now_s).max(0)
                );
            }
            kept.wanted.push(wanted);
        }
    }

    /// Starts an order if one is due; returns when to check again, if ever.
    pub fn look(&self) -> Option<Instant> {
        let mut kept = self.0.kept.lock();
        if kept.wanted.is_empty() || kept.has_stopped {
            return None;
        }
        let next = Some(now() + LOOK_EVERY);
        if self.0.is_under_way.load(Relaxed) || kept.rests_until.is_some_and(|until| now() < until)
        {
            return next;
        }
        let acme = kept.acme.clone()?;
        let folder = CertificateFolder::new(acme.folder());
        let Some(place) = kept.due(&folder) else {
            return next;
        };
        let lock = match folder.lock() {
            Ok(Some(lock)) => lock,
            Ok(None) => {
                debug!(target: TARGET, "acme: another process is already ordering certificates");
                kept.rests_until = Some(now() + BUSY);
                return next;
            }
            Err(error) => {
                kept.no_cache(&error);
                return next;
            }
        };
        // Another process may have ordered this certificate before it released the lock, so this is checked again.
        if kept.due(&folder) != Some(place) {
            return next;
        }
        self.begin(&mut kept, place, acme, folder, lock);
        next
    }

    fn begin(
        &self,
        kept: &mut ManagedCertificates,
        place: usize,
        acme: config::AcmeConfig,
        folder: CertificateFolder,
        lock: OrderLock,
    ) {
        let wanted = &kept.wanted[place];
        let going = ActiveOrder {
            names: wanted.names.clone(),
            file: wanted.file.clone(),
            attempts: wanted.attempts.clone(),
            directory: acme.directory.clone(),
            folder,
            _lock: lock,
        };
        // A failure is recorded in advance, so that a crash during the order counts as a failure.
        if let Err(error) = going.keep(&going.attempts_failed(None)) {
            return kept.no_cache(&error);
        }
        info!(target: TARGET, directory = masked(&acme.directory),
            "acme: ordering a certificate for {}",
            going.names.join(", ")
        );
        self.0.is_under_way.store(true, Relaxed);
        let order = CertificateOrder {
            directory: acme.directory,
            ca: acme.ca,
            contact: acme.contact,
            account: going.folder.account(),
            names: going.names.clone(),
            alpn_challenges: self.0.alpn_challenges.clone(),
        };
        let inner = Arc::clone(&self.0);
        self.0.outbound.order(order, move |ended| {
            going.ended(ended, &inner.figures);
            inner.is_under_way.store(false, Relaxed);
        });
    }

    /// Stops starting orders, since the process is ending.
    pub fn stop(&self) {
        self.0.kept.lock().has_stopped = true;
    }

    /// Returns the state of all certificates.
    pub fn certificates(&self) -> Vec<CertificateStatus> {
        let kept = self.0.kept.lock();
        let now_s = config::unix_now_s();
        let status_of = |wanted: &ManagedCertificate| CertificateStatus {
            file: wanted.file.clone(),
            is_held: wanted
                .held
                .as_ref()
                .is_some_and(|held| held.is_good(&wanted.names, now_s)),
            failures: wanted.attempts.failures,
            due_s: wanted.due_s,
        };
        kept.wanted.iter().map(status_of).collect()
    }
}

impl ManagedCertificates {
    /// Returns the index of the first certificate that is due to be ordered.
    fn due(&mut self, folder: &CertificateFolder) -> Option<usize> {
        let now_s = config::unix_now_s();
        for wanted in &mut self.wanted {
            wanted.look(folder, now_s);
        }
        self.wanted.iter().position(|wanted| now_s >= wanted.due_s)
    }

    fn no_cache(&mut self, error: &io::Error) {
        error!(target: TARGET, "acme: no certificates are ordered until the cache is writable: {error}");
        self.rests_until = Some(now() + NO_CACHE);
    }
}

impl ManagedCertificate {
    /// Reads the certificate's files, if they have changed.
    fn look(&mut self, folder: &CertificateFolder, now_s: i64) {
        let fingerprints = (
            fingerprint(&self.file),
            fingerprint(&folder::attempts_of(&self.file)),
        );
        let (certificate, attempts) = self.seen.replace(fingerprints).unzip();
        if certificate != Some(fingerprints.0) {
            self.held = fingerprints.0.and_then(|_| self.read());
        }
        if attempts != Some(fingerprints.1) {
            self.attempts = folder.attempts(&self.file);
        }
        let held = self.held.as_ref();
        self.due_s = due_s(&self.names, held, &self.attempts, now_s, self.random);
    }

    fn read(&self) -> Option<CertificateInfo> {
        let read = Certificate::read(&self.file, &self.file);
        let why = match read {
            Ok(read) => return Some(held(&read)),
            Err(why) => why,
        };
        warn!(target: TARGET, "acme: a cached certificate is unusable, ordering another: {why}");
        None
    }
}

fn held(certificate: &Certificate) -> CertificateInfo {
    CertificateInfo {
        names: certificate.names().to_vec(),
        valid_from_s: certificate.valid_from_s(),
        valid_until_s: certificate.valid_until_s(),
    }
}

/// An order in progress.
struct ActiveOrder {
    names: Vec<String>,
    file: PathBuf,
    /// The history of earlier orders for this certificate.
    attempts: OrderHistory,
    directory: String,
    folder: CertificateFolder,
    _lock: OrderLock,
}

impl ActiveOrder {
    fn attempts_failed(&self, why: Option<&OrderError>) -> OrderHistory {
        let now_s = config::unix_now_s();
        self.attempts
            .failed(&self.names, why, now_s, fastrand::f64())
    }

    fn keep(&self, attempts: &OrderHistory) -> io::Result<()> {
        self.folder.save_attempts(&self.file, attempts)
    }

    /// Stores the issued certificate. If the order failed, stores the time of the next attempt.
    fn ended(self, ended: OrderOutcome, figures: &OrderMetrics) {
        if let Some(account) = &ended.account
            && let Err(error) = self.folder.save_account(account)
        {
            error!(target: TARGET, "acme: the account can't be saved, so the next order creates another account: {error}");
        }
        let names = self.names.join(", ");
        let now_s = config::unix_now_s();
        let issued = ended.result.and_then(|issued| {
            let mut text = issued.chain;
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&issued.key);
            let check = |file: &Path| {
                let certificate = Certificate::read(file, file);
                let held = held(&certificate.map_err(|error| error.to_string())?);
                held.check_issued(&self.names, now_s)?;
                Ok(held)
            };
            let kept = self.folder.save_certificate(&self.file, &text, check);
            kept.map_err(OrderError::Lost)
        });
        match issued {
            Ok(held) => {
                self.save_or_log(&OrderHistory::issued(&self.names, now_s));
                let days = (held.valid_until_s - now_s) / (24 * 60 * 60);
                info!(target: TARGET, directory = masked(&self.directory),
                    "acme: a certificate for {names} was issued, valid for {days} days"
                );
                figures.issued.add(1);
            }
            Err(why) => {
                if let OrderError::NoAccount(_) = why
                    && let Err(error) = self.folder.forget_account()
                {
                    error!(target: TARGET, "acme: the rejected account can't be set aside: {error}");
                }
                let attempts = self.attempts_failed(Some(&why));
                self.save_or_log(&attempts);
                self.tell(&names, &why, &attempts);
                match why {
                    OrderError::Unreachable(_) => &figures.unreachable,
                    _ => &figures.refused,
                }
                .add(1);
            }
        }
    }

    fn save_or_log(&self, attempts: &OrderHistory) {
        if let Err(error) = self.keep(attempts) {
            error!(target: TARGET, "acme: the time of the next order can't be saved: {error}");
        }
    }

    fn tell(&self, names: &str, why: &OrderError, attempts: &OrderHistory) {
        let now_s = config::unix_now_s();
        let mut words = String::new();
        // Writing to a string can't fail.
        let _ = match Certificate::read(&self.file, &self.file) {
            Ok(old) if old.valid_until_s() > now_s => write!(
                words,
                "the old certificate stays in use and expires in {} h",
                (old.valid_until_s() - now_s) / 3600
            ),
            Ok(_) => write!(words, "the old certificate has expired"),
            Err(_) => write!(words, "there is no certificate to present"),
        };
        warn!(target: TARGET, directory = masked(&self.directory),
            "acme: no new certificate for {names}, {words}; the next attempt is in {} s{}: {why}",
            attempts.next_s - now_s,
            match attempts.failures {
                0 | 1 => String::new(),
                failures => format!(", after {failures} failures in a row"),
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use veche_outbound::acme::IssuedCertificate;

    use super::*;

    /// A certificate that can't be stored was issued nevertheless. It counts towards the authority's limits, so the next
    /// attempt comes late.
    #[test]
    fn what_can_not_be_kept_is_not_ordered_again_soon() {
        let path = std::env::temp_dir().join(format!("veche-lost-{}", std::process::id()));
        let folder = CertificateFolder::new(path.clone());
        let file = path.join("a.example.pem");
        let names = vec!["a.example".to_owned()];
        let made = rcgen::generate_simple_self_signed(["b.example".to_owned()]).expect("made");
        for (chain, key) in [
            ("nonsense".to_owned(), "nonsense".to_owned()),
            (made.cert.pem(), made.signing_key.serialize_pem()),
        ] {
            let going = ActiveOrder {
                names: names.clone(),
                file: file.clone(),
                attempts: OrderHistory::default(),
                directory: String::new(),
                folder: folder.clone(),
                _lock: folder.lock().expect("a folder").expect("it is free"),
            };
            let figures = OrderMetrics::default();
            let ended = OrderOutcome {
                account: None,
                result: Ok(IssuedCertificate { chain, key }),
            };
            going.ended(ended, &figures);
            assert_eq!((figures.issued.read(), figures.refused.read()), (0, 1));
            assert!(!file.exists());
            let attempts = folder.attempts(&file);
            assert_eq!(attempts.failures, 1);
            assert!(attempts.next_s >= config::unix_now_s() + 3500);
        }
        let _ = std::fs::remove_dir_all(&path);
    }
}
