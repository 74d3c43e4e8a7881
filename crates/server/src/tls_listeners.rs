//! TLS of our listeners: certificates and acceptors, reloaded when files change.
//!
//! The control thread owns the listeners' state. It gives [`TlsAcceptors`], which contain the mode of every listener,
//! to each worker, and sends new ones after a change. Open connections keep the acceptor with which they started. A
//! certificate that [ACME](veche_acme) orders is read from a file like any other, but the file does not exist until the
//! first certificate has been issued.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{debug, error, info, warn};
use veche_clock::now;
use veche_config::{
    self as config, CertificateOrigin, Config, EXPIRY_WARNING_DAYS, ListenerConfig, ListenerRole,
};
use veche_tls::{
    Acceptor, AlpnChallenges, Certificate, ClientAuth, FileFingerprint, Roots, Tickets, fingerprint,
};

/// The interval at which changes of the certificate files are checked for.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The interval of reminders about an expiring certificate.
const REMIND_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// How a listener accepts connections.
#[derive(Clone, Debug)]
pub(crate) enum ListenerMode {
    Plain,
    /// The listener accepts connections with TLS and the current certificates.
    Tls(Acceptor),
    /// Connections are rejected, because TLS is configured but there is no certificate.
    Closed,
}

/// How each listener accepts connections, by listener index.
pub(crate) type TlsAcceptors = Arc<[ListenerMode]>;

/// A certificate in use, for monitoring.
#[derive(Clone, Debug)]
pub(crate) struct CertificateInUse {
    pub(crate) listener: String,
    pub(crate) file: PathBuf,
    pub(crate) valid_until_s: i64,
    /// A warning is logged when the remaining validity in seconds is lower than this.
    warn_before_s: i64,
}

/// The TLS listeners of the process.
#[derive(Default)]
pub(crate) struct TlsListeners {
    alpn_challenges: AlpnChallenges,
    kept: Mutex<TlsState>,
}

#[derive(Default)]
struct TlsState {
    listeners: Vec<Option<TlsListener>>,
    look_at: Option<Instant>,
    reminded: Option<Instant>,
}

/// A listener with TLS.
struct TlsListener {
    label: String,
    role: ListenerRole,
    tls: config::ListenerTls,
    /// ACME challenges to answer, if certificates are ordered.
    alpn_challenges: Option<AlpnChallenges>,
    /// The keys of session tickets; `None` until the files were read for the first time.
    tickets: Option<Tickets>,
    /// The CAs that were trusted for client certificates when the ticket keys were made.
    vouching: Option<Roots>,
    /// The acceptor; `None` if the files could not be read yet.
    acceptor: Option<Acceptor>,
    certificates: Vec<CertificateInUse>,
    /// The files' fingerprints when they were last read, successfully or not.
    read: Vec<FileFingerprint>,
    /// The files' fingerprints at the last check. Changed files are read only when two successive checks find the same
    /// fingerprints, since replacing several files takes a moment.
    seen: Vec<FileFingerprint>,
}

impl TlsListeners {
    /// Creates an empty set. `alpn_challenges` are answered by listeners whose certificates are
    /// ordered with ACME.
    pub(crate) fn new(alpn_challenges: &AlpnChallenges) -> Self {
        Self {
            alpn_challenges: alpn_challenges.clone(),
            ..Self::default()
        }
    }

    /// Reads the configured files. A listener whose files are invalid is closed until they are valid.
    pub(crate) fn begin(&self, config: &Config) -> TlsAcceptors {
        let mut kept = self.kept.lock();
        kept.listeners = config
            .listeners
            .iter()
            .map(|listener| {
                let mut tls_listener = TlsListener::new(listener, &self.alpn_challenges)?;
                if let Err(why) = tls_listener.read() {
                    error!(
                        listener = tls_listener.label,
                        "the listener accepts no TLS connections: {why}"
                    );
                }
                Some(tls_listener)
            })
            .collect();
        kept.acceptors()
    }

    /// Reads the files of a new configuration.
    ///
    /// # Errors
    /// A file can't be read or is invalid. In this case nothing is changed. The error is a message for the operator.
    pub(crate) fn reload(&self, config: &Config) -> Result<TlsAcceptors, String> {
        let mut kept = self.kept.lock();
        let mut listeners = Vec::new();
        for (index, listener) in config.listeners.iter().enumerate() {
            let Some(mut tls_listener) = TlsListener::new(listener, &self.alpn_challenges) else {
                listeners.push(None);
                continue;
            };
            if let Some(Some(before)) = kept.listeners.get(index) {
                tls_listener.inherit_ticket_keys(before);
            }
            tls_listener.read()?;
            listeners.push(Some(tls_listener));
        }
        kept.listeners = listeners;
        kept.reminded = None;
        Ok(kept.acceptors())
    }

    /// Checks for changed files if a check is due. Returns new acceptors if a changed file is
    /// valid, and the time of the next check, which is `None` if no listener uses TLS.
    pub(crate) fn reload_changed(&self) -> (Option<TlsAcceptors>, Option<Instant>) {
        let mut kept = self.kept.lock();
        if kept.listeners.iter().all(Option::is_none) {
            return (None, None);
        }
        let now = now();
        if kept.look_at.is_some_and(|at| now < at) {
            return (None, kept.look_at);
        }
        kept.look_at = Some(now + LOOK_EVERY);
        let mut changed = false;
        for tls_listener in kept.listeners.iter_mut().flatten() {
            changed |= tls_listener.reload_changed();
        }
        if kept.reminded.is_none_or(|at| now >= at + REMIND_EVERY) {
            // The first call logs nothing: certificates were checked when they were read at the start or the reload.
            if kept.reminded.is_some() {
                kept.log_expiring();
            }
            kept.reminded = Some(now);
        }
        (changed.then(|| kept.acceptors()), kept.look_at)
    }

    /// Returns the certificates in use.
    pub(crate) fn certificates(&self) -> Vec<CertificateInUse> {
        let kept = self.kept.lock();
        let listeners = kept.listeners.iter().flatten();
        listeners
            .flat_map(|tls_listener| tls_listener.certificates.iter().cloned())
            .collect()
    }
}

impl TlsState {
    fn acceptors(&self) -> TlsAcceptors {
        let mode = |tls_listener: &Option<TlsListener>| match tls_listener {
            None => ListenerMode::Plain,
            Some(TlsListener {
                acceptor: Some(acceptor),
                ..
            }) => ListenerMode::Tls(acceptor.clone()),
            Some(_) => ListenerMode::Closed,
        };
        self.listeners.iter().map(mode).collect()
    }

    fn log_expiring(&self) {
        let now_s = config::unix_now_s();
        for tls_listener in self.listeners.iter().flatten() {
            for one in &tls_listener.certificates {
                one.warn(now_s);
            }
        }
    }
}

impl CertificateInUse {
    /// Logs a warning if the certificate expires soon.
    fn warn(&self, now_s: i64) {
        let file = self.file.display().to_string();
        if self.valid_until_s < now_s {
            warn!(
                listener = self.listener,
                "tls: the certificate in {file} has expired, so clients refuse it"
            );
        } else if self.valid_until_s < now_s + self.warn_before_s {
            warn!(
                listener = self.listener,
                "{}",
                config::expires(&file, self.valid_until_s, now_s)
            );
        }
    }
}

impl TlsListener {
    fn new(listener: &ListenerConfig, alpn_challenges: &AlpnChallenges) -> Option<Self> {
        let tls = listener.tls.clone()?;
        let mut certificates = tls.certificates.iter();
        let is_ordered = certificates.any(|one| matches!(one, CertificateOrigin::Acme(_)));
        Some(Self {
            label: listener.label(),
            role: listener.role,
            tls,
            alpn_challenges: is_ordered.then(|| alpn_challenges.clone()),
            tickets: None,
            vouching: None,
            acceptor: None,
            certificates: Vec::new(),
            read: Vec::new(),
            seen: Vec::new(),
        })
    }

    /// Takes over the ticket keys of `before` if the requirements for client certificates are unchanged.
    fn inherit_ticket_keys(&mut self, before: &Self) {
        if before.tls.clients == self.tls.clients {
            self.tickets = before.tickets.clone();
            self.vouching.clone_from(&before.vouching);
        }
    }

    fn files(&self) -> impl Iterator<Item = &Path> {
        let pairs = self.tls.certificates.iter();
        let clients = self.tls.clients.iter().map(|clients| clients.ca.as_path());
        pairs
            .flat_map(|certificate| certificate.files())
            .chain(clients)
    }

    fn fingerprints(&self) -> Vec<FileFingerprint> {
        self.files().map(fingerprint).collect()
    }

    /// Reads all files; on an error the previous certificates stay in use.
    fn read(&mut self) -> Result<(), String> {
        self.read = self.fingerprints();
        self.seen.clone_from(&self.read);
        let mut certificates = Vec::new();
        let mut in_use = Vec::new();
        for from in &self.tls.certificates {
            let is_ordered = matches!(from, CertificateOrigin::Acme(_));
            let [file, key] = from.files();
            match Certificate::read(file, key) {
                Ok(read) => {
                    in_use.push(self.in_use(&read, is_ordered));
                    certificates.push(read);
                }
                // The task that orders the certificate logs the failure and retries.
                Err(why) if is_ordered => debug!(
                    listener = self.label,
                    "can't read the ordered certificate: {why}"
                ),
                Err(why) => return Err(why.to_string()),
            }
        }
        let mut kept = self.tickets.clone();
        let mut vouching = None;
        let clients = match &self.tls.clients {
            None => None,
            Some(clients) => {
                let roots = Roots::read(&clients.ca).map_err(|error| error.to_string())?;
                vouching = Some(roots.clone());
                if self.vouching.is_some() && vouching != self.vouching {
                    // The trusted CAs have changed. New ticket keys force every client to present its certificate
                    // again.
                    kept = None;
                }
                Some(ClientAuth {
                    roots,
                    is_required: clients.is_required,
                })
            }
        };
        let protocols: &[&str] = match self.role {
            ListenerRole::Push => &[],
            ListenerRole::Public | ListenerRole::Internal => &["http/1.1"],
        };
        let tickets = match kept {
            Some(tickets) => tickets,
            None => Tickets::new().map_err(|error| error.to_string())?,
        };
        let acceptor = Acceptor::new(certificates, clients.as_ref(), protocols, &tickets)
            .and_then(|acceptor| match &self.alpn_challenges {
                Some(alpn_challenges) => acceptor.with_challenges(alpn_challenges),
                None => Ok(acceptor),
            })
            .map_err(|error| error.to_string())?;
        (self.acceptor, self.certificates) = (Some(acceptor), in_use);
        (self.tickets, self.vouching) = (Some(tickets), vouching);
        Ok(())
    }

    fn in_use(&self, certificate: &Certificate, is_ordered: bool) -> CertificateInUse {
        let usual_s = EXPIRY_WARNING_DAYS * 24 * 60 * 60;
        let life_s = certificate.valid_until_s() - certificate.valid_from_s();
        CertificateInUse {
            listener: self.label.clone(),
            file: certificate.file().to_owned(),
            valid_until_s: certificate.valid_until_s(),
            // Certificates ordered with ACME are renewed when a third of their validity is left. If only a sixth is
            // left, renewals have been failing for some time.
            warn_before_s: match is_ordered {
                true => usual_s.min(life_s / 6),
                false => usual_s,
            },
        }
    }

    /// Reads the files if they have changed, but not since the previous check. Returns whether there is a new acceptor.
    fn reload_changed(&mut self) -> bool {
        let fingerprints = self.fingerprints();
        if fingerprints == self.read {
            self.seen = fingerprints;
            return false;
        }
        if fingerprints != self.seen {
            self.seen = fingerprints;
            return false;
        }
        debug!(listener = self.label, "TLS files have changed");
        match self.read() {
            Ok(()) => {
                info!(listener = self.label, "new certificates are in use");
                let now_s = config::unix_now_s();
                self.certificates.iter().for_each(|one| one.warn(now_s));
                true
            }
            Err(why) => {
                error!(
                    listener = self.label,
                    "TLS files have changed but are invalid; the old certificates stay in use: {why}"
                );
                false
            }
        }
    }
}
