//! TLS of our listeners: certificates and acceptors, reloaded when files change.
//!
//! Owned by the control thread. Workers get [`Doors`], plain values by listener, and use them until the next
//! ones arrive; connections keep those that they started with. An [ordered](veche_acme) certificate is a file too,
//! which may not exist yet.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{debug, error, info, warn};
use veche_clock::now;
use veche_config::{self as config, CertificateFrom, Config, EXPIRY_WARNING_DAYS, Listener, Role};
use veche_tls::{Acceptor, Certificate, Clients, Proofs, Roots, Stamp, Tickets, stamp};

/// The interval of checking files.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The interval of reminders about an expiring certificate.
const REMIND_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// How a listener accepts connections.
#[derive(Clone, Debug)]
pub(crate) enum Door {
    /// Without TLS.
    Plain,
    /// With TLS.
    Sealed(Acceptor),
    /// Not at all: TLS is configured, but there is no certificate.
    Closed,
}

/// The modes by listener index.
pub(crate) type Doors = Arc<[Door]>;

/// A certificate in use, for monitoring.
#[derive(Clone, Debug)]
pub(crate) struct InUse {
    pub(crate) listener: String,
    pub(crate) file: PathBuf,
    pub(crate) valid_until_s: i64,
    /// The remaining validity in seconds below which something is wrong.
    warn_before_s: i64,
}

/// The TLS listeners of the process.
#[derive(Default)]
pub(crate) struct Sealing {
    proofs: Proofs,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    listeners: Vec<Option<Sealed>>,
    look_at: Option<Instant>,
    reminded: Option<Instant>,
}

/// A listener with TLS.
struct Sealed {
    label: String,
    role: Role,
    tls: config::Tls,
    /// ACME challenges to answer, if certificates are ordered.
    proofs: Option<Proofs>,
    tickets: Tickets,
    /// The authorities of client certificates when the ticket keys were made.
    vouching: Option<Roots>,
    /// `None` if the files could not be read yet.
    acceptor: Option<Acceptor>,
    certificates: Vec<InUse>,
    /// The files' fingerprints when they were last read, successfully or not.
    read: Vec<Stamp>,
    /// The files' fingerprints at the last check: a writer of several files needs a moment.
    seen: Vec<Stamp>,
}

impl Sealing {
    /// Creates the set; `proofs` are answered where certificates are ordered.
    pub(crate) fn new(proofs: &Proofs) -> Self {
        Self {
            proofs: proofs.clone(),
            ..Self::default()
        }
    }

    /// Reads the configured files. If that fails the listener is closed until they are valid.
    pub(crate) fn begin(&self, config: &Config) -> Doors {
        let mut kept = self.kept.lock();
        kept.listeners = config
            .listeners
            .iter()
            .map(|listener| {
                let mut sealed = Sealed::new(listener, &self.proofs)?;
                if let Err(why) = sealed.read() {
                    error!(listener = sealed.label, "no TLS: {why}");
                }
                Some(sealed)
            })
            .collect();
        kept.doors()
    }

    /// Reads the files of a new configuration, all or nothing.
    ///
    /// # Errors
    /// A file can't be read, as an actionable line.
    pub(crate) fn reload(&self, config: &Config) -> Result<Doors, String> {
        let mut kept = self.kept.lock();
        let mut listeners = Vec::new();
        for (index, listener) in config.listeners.iter().enumerate() {
            let Some(mut sealed) = Sealed::new(listener, &self.proofs) else {
                listeners.push(None);
                continue;
            };
            if let Some(Some(before)) = kept.listeners.get(index) {
                sealed.go_on_from(before);
            }
            sealed.read()?;
            listeners.push(Some(sealed));
        }
        kept.listeners = listeners;
        kept.reminded = None;
        Ok(kept.doors())
    }

    /// Checks whether files have changed, if that is due: returns new acceptors if they have and are valid, and when to
    /// check again, if ever.
    pub(crate) fn look(&self) -> (Option<Doors>, Option<Instant>) {
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
            changed |= sealed.look();
        }
        if kept.reminded.is_none_or(|at| now >= at + REMIND_EVERY) {
            // Files read at a start or a reload are checked then.
            if kept.reminded.is_some() {
                kept.remind();
            }
            kept.reminded = Some(now);
        }
        (changed.then(|| kept.doors()), kept.look_at)
    }

    /// Returns the certificates in use.
    pub(crate) fn certificates(&self) -> Vec<InUse> {
        let kept = self.kept.lock();
        let listeners = kept.listeners.iter().flatten();
        listeners
            .flat_map(|sealed| sealed.certificates.iter().cloned())
            .collect()
    }
}

impl Kept {
    fn doors(&self) -> Doors {
        let door = |sealed: &Option<Sealed>| match sealed {
            None => Door::Plain,
            Some(Sealed {
                acceptor: Some(acceptor),
                ..
            }) => Door::Sealed(acceptor.clone()),
            Some(_) => Door::Closed,
        };
        self.listeners.iter().map(door).collect()
    }

    fn remind(&self) {
        let now_s = config::unix_now_s();
        for sealed in self.listeners.iter().flatten() {
            for one in &sealed.certificates {
                one.warn(now_s);
            }
        }
    }
}

impl InUse {
    /// Logs a warning if the certificate expires soon.
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

impl Sealed {
    fn new(listener: &Listener, proofs: &Proofs) -> Option<Self> {
        let tls = listener.tls.clone()?;
        let mut certificates = tls.certificates.iter();
        let is_ordered = certificates.any(|one| matches!(one, CertificateFrom::Acme(_)));
        let tickets = match Tickets::new() {
            Ok(tickets) => tickets,
            Err(error) => {
                // Without random numbers nothing works.
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

    /// Takes over the ticket keys if the requirements for client certificates are unchanged.
    fn go_on_from(&mut self, before: &Self) {
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

    fn stamps(&self) -> Vec<Stamp> {
        self.files().map(stamp).collect()
    }

    /// Reads all files; on an error everything stays.
    fn read(&mut self) -> Result<(), String> {
        self.read = self.stamps();
        self.seen.clone_from(&self.read);
        let mut certificates = Vec::new();
        let mut in_use = Vec::new();
        for from in &self.tls.certificates {
            let is_ordered = matches!(from, CertificateFrom::Acme(_));
            let [file, key] = from.files();
            match Certificate::read(file, key) {
                Ok(read) => {
                    in_use.push(self.in_use(&read, is_ordered));
                    certificates.push(read);
                }
                // The order logs this and retries.
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
                    // Clients certified by the old authorities have to present their certificates again.
                    tickets = Tickets::new().map_err(|error| error.to_string())?;
                }
                Some(Clients {
                    roots,
                    is_required: clients.is_required,
                })
            }
        };
        let protocols: &[&str] = match self.role {
            Role::Push => &[],
            Role::Public | Role::Internal => &["http/1.1"],
        };
        let acceptor = Acceptor::new(certificates, clients.as_ref(), protocols, &tickets)
            .and_then(|acceptor| match &self.proofs {
                Some(proofs) => acceptor.with_proofs(proofs),
                None => Ok(acceptor),
            })
            .map_err(|error| error.to_string())?;
        (self.acceptor, self.certificates) = (Some(acceptor), in_use);
        (self.tickets, self.vouching) = (tickets, vouching);
        Ok(())
    }

    fn in_use(&self, certificate: &Certificate, is_ordered: bool) -> InUse {
        let usual_s = EXPIRY_WARNING_DAYS * 24 * 60 * 60;
        let life_s = certificate.valid_until_s() - certificate.valid_from_s();
        InUse {
            listener: self.label.clone(),
            file: certificate.file().to_owned(),
            valid_until_s: certificate.valid_until_s(),
            // It is renewed when a third of its validity is left.
            warn_before_s: match is_ordered {
                true => usual_s.min(life_s / 6),
                false => usual_s,
            },
        }
    }

    /// Reads files that have changed and are stable now; returns whether there is a new acceptor.
    fn look(&mut self) -> bool {
        let stamps = self.stamps();
        if stamps == self.read {
            self.seen = stamps;
            return false;
        }
        if stamps != self.seen {
            self.seen = stamps;
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
                    "TLS files have changed but are invalid, the old certificates stay in use: {why}"
                );
                false
            }
        }
    }
}
