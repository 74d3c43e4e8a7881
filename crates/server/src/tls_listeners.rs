//! TLS of our listeners: who accepts with which certificates, read anew when files change.
//!
//! The control thread's. Workers get [`TlsAcceptors`], plain values by the site's listeners, and keep the ones they have
//! until others come; connections keep what they began with. What [was ordered](veche_acme) comes as a file too, which
//! may not be there yet. Whatever may add to certificates one day (OCSP) makes doors in the same way.

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

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How often is said that a certificate will expire.
const REMIND_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// How connections come in on a listener.
#[derive(Clone, Debug)]
pub(crate) enum ListenerMode {
    /// As they are.
    Plain,
    /// By TLS.
    Sealed(Acceptor),
    /// Not at all: there should be TLS, but there is no certificate.
    Closed,
}

/// By the site's listeners.
pub(crate) type TlsAcceptors = Arc<[ListenerMode]>;

/// A certificate that is in use, for whoever watches over it.
#[derive(Clone, Debug)]
pub(crate) struct CertificateInUse {
    pub(crate) listener: String,
    pub(crate) file: PathBuf,
    pub(crate) valid_until_s: i64,
    /// Less than so long before its end something is wrong.
    warn_before_s: i64,
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct TlsListeners {
    proofs: AlpnChallenges,
    kept: Mutex<TlsState>,
}

#[derive(Default)]
struct TlsState {
    listeners: Vec<Option<TlsListener>>,
    look_at: Option<Instant>,
    reminded: Option<Instant>,
}

/// A listener that speaks TLS.
struct TlsListener {
    label: String,
    role: ListenerRole,
    tls: config::ListenerTls,
    /// For those who issue certificates, if any are ordered.
    proofs: Option<AlpnChallenges>,
    tickets: Tickets,
    /// What those who vouch for clients were when the keys of tickets were made.
    vouching: Option<Roots>,
    /// `None`: it could not be read yet.
    acceptor: Option<Acceptor>,
    certificates: Vec<CertificateInUse>,
    /// What the files looked like when they were last read, whatever came of it.
    read: Vec<FileFingerprint>,
    /// The same at the last look: whoever writes several files needs a moment.
    seen: Vec<FileFingerprint>,
}

impl TlsListeners {
    /// Shows these proofs where certificates are ordered.
    pub(crate) fn new(proofs: &AlpnChallenges) -> Self {
        Self {
            proofs: proofs.clone(),
            ..Self::default()
        }
    }

    /// Reads what a configuration names. Where that fails the listener is closed until its files are good.
    pub(crate) fn begin(&self, config: &Config) -> TlsAcceptors {
        let mut kept = self.kept.lock();
        kept.listeners = config
            .listeners
            .iter()
            .map(|listener| {
                let mut sealed = TlsListener::new(listener, &self.proofs)?;
                if let Err(why) = sealed.read() {
                    error!(listener = sealed.label, "no TLS: {why}");
                }
                Some(sealed)
            })
            .collect();
        kept.acceptors()
    }

    /// Reads what a new configuration names, all or nothing.
    ///
    /// # Errors
    /// What can't be read, as a line to act on.
    pub(crate) fn reload(&self, config: &Config) -> Result<TlsAcceptors, String> {
        let mut kept = self.kept.lock();
        let mut listeners = Vec::new();
        for (index, listener) in config.listeners.iter().enumerate() {
            let Some(mut sealed) = TlsListener::new(listener, &self.proofs) else {
                listeners.push(None);
                continue;
            };
            if let Some(Some(before)) = kept.listeners.get(index) {
                sealed.inherit_ticket_keys(before);
            }
            sealed.read()?;
            listeners.push(Some(sealed));
        }
        kept.listeners = listeners;
        kept.reminded = None;
        Ok(kept.acceptors())
    }

    /// Looks whether files have changed, if that is due: other doors if they have and are good. Also when to look
    /// next, if ever.
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
        for sealed in kept.listeners.iter_mut().flatten() {
            changed |= sealed.reload_changed();
        }
        if kept.reminded.is_none_or(|at| now >= at + REMIND_EVERY) {
            // What is read at a start or a reload has been judged then.
            if kept.reminded.is_some() {
                kept.log_expiring();
            }
            kept.reminded = Some(now);
        }
        (changed.then(|| kept.acceptors()), kept.look_at)
    }

    /// The certificates in use.
    pub(crate) fn certificates(&self) -> Vec<CertificateInUse> {
        let kept = self.kept.lock();
        let listeners = kept.listeners.iter().flatten();
        listeners
            .flat_map(|sealed| sealed.certificates.iter().cloned())
            .collect()
    }
}

impl TlsState {
    fn acceptors(&self) -> TlsAcceptors {
        let door = |sealed: &Option<TlsListener>| match sealed {
            None => ListenerMode::Plain,
            Some(TlsListener {
                acceptor: Some(acceptor),
                ..
            }) => ListenerMode::Sealed(acceptor.clone()),
            Some(_) => ListenerMode::Closed,
        };
        self.listeners.iter().map(door).collect()
    }

    fn log_expiring(&self) {
        let now_s = config::unix_now_s();
        for sealed in self.listeners.iter().flatten() {
            for one in &sealed.certificates {
                one.warn(now_s);
            }
        }
    }
}

impl CertificateInUse {
    /// Says so if it does not hold much longer.
    fn warn(&self, now_s: i64) {
        let file = self.file.display().to_string();
        if self.valid_until_s < now_s {
            warn!(
                listener = self.listener,
                "tls: the certificate in {file} has expired: clients refuse it"
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
    fn new(listener: &ListenerConfig, proofs: &AlpnChallenges) -> Option<Self> {
        let tls = listener.tls.clone()?;
        let mut certificates = tls.certificates.iter();
        let is_ordered = certificates.any(|one| matches!(one, CertificateOrigin::Acme(_)));
        let tickets = match Tickets::new() {
            Ok(tickets) => tickets,
            Err(error) => {
                // Nothing works without random numbers.
                error!("{error}");
                return None;
            }
        };
        Some(Self {
            label: listener.label(),
            role: listener.role,
            tls,
            proofs: is_ordered.then(|| proofs.clone()),
            tickets,
            vouching: None,
            acceptor: None,
            certificates: Vec::new(),
            read: Vec::new(),
            seen: Vec::new(),
        })
    }

    /// Takes over the keys of tickets, if nothing has changed about what clients have to show.
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

    fn stamps(&self) -> Vec<FileFingerprint> {
        self.files().map(fingerprint).collect()
    }

    /// Reads all files; on an error everything stays.
    fn read(&mut self) -> Result<(), String> {
        self.read = self.stamps();
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
                // Who orders it says so, and gets another.
                Err(why) if is_ordered => debug!(listener = self.label, "no certificate: {why}"),
                Err(why) => return Err(why.to_string()),
            }
        }
        let mut tickets = self.tickets.clone();
        let mut vouching = None;
        let clients = match &self.tls.clients {
            None => None,
            Some(clients) => {
                let roots = Roots::read(&clients.ca).map_err(|error| error.to_string())?;
                vouching = Some(roots.clone());
                if self.vouching.is_some() && vouching != self.vouching {
                    // Whoever was vouched for by the others has to show their certificate again.
                    tickets = Tickets::new().map_err(|error| error.to_string())?;
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
        let acceptor = Acceptor::new(certificates, clients.as_ref(), protocols, &tickets)
            .and_then(|acceptor| match &self.proofs {
                Some(proofs) => acceptor.with_challenges(proofs),
                None => Ok(acceptor),
            })
            .map_err(|error| error.to_string())?;
        (self.acceptor, self.certificates) = (Some(acceptor), in_use);
        (self.tickets, self.vouching) = (tickets, vouching);
        Ok(())
    }

    fn in_use(&self, certificate: &Certificate, is_ordered: bool) -> CertificateInUse {
        let usual_s = EXPIRY_WARNING_DAYS * 24 * 60 * 60;
        let life_s = certificate.valid_until_s() - certificate.valid_from_s();
        CertificateInUse {
            listener: self.label.clone(),
            file: certificate.file().to_owned(),
            valid_until_s: certificate.valid_until_s(),
            // It is renewed when a third is left, however long it holds.
            warn_before_s: match is_ordered {
                true => usual_s.min(life_s / 6),
                false => usual_s,
            },
        }
    }

    /// Reads files that have changed and stay as they are; whether there is another acceptor.
    fn reload_changed(&mut self) -> bool {
        let stamps = self.stamps();
        if stamps == self.read {
            self.seen = stamps;
            return false;
        }
        if stamps != self.seen {
            self.seen = stamps;
            return false;
        }
        debug!(listener = self.label, "files of TLS have changed");
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
                    "files of TLS have changed and are no good, the old certificates stay: {why}"
                );
                false
            }
        }
    }
}
