//! Notifications to the service manager (`sd_notify`): readiness, reloads, the end, and the watchdog. The service
//! manager also stores the listening sockets for the next start.
//!
//! Notifications are datagrams to the socket named by the variable `NOTIFY_SOCKET`, if it is set. A datagram that can't be sent
//! is dropped: it means that the service manager is gone or does not listen, which is no reason to stop.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::listening::ListeningSockets;
use super::stored::NAME;
use veche_net::scm_rights;

/// How long to wait for the service manager to read a message that carries sockets.
const STORE_WAIT: Duration = Duration::from_secs(1);
/// The variable with the socket's address. The server process does not get it: only the supervisor represents the
/// service.
pub(super) const SOCKET: &str = "NOTIFY_SOCKET";

/// The connection to the service manager.
#[derive(Default)]
pub(super) struct ServiceNotifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// The watchdog interval and the time of the next notification.
    watchdog: Option<(Duration, Instant)>,
}

impl ServiceNotifier {
    /// Connects to the socket named by the environment; adds a remark to `remarks` if that fails.
    pub(super) fn from_environment(now: Instant, remarks: &mut Vec<String>) -> Self {
        let Some(address) = std::env::var_os(SOCKET) else {
            return Self::default();
        };
        let open = || -> io::Result<_> {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            Ok((socket, address_of(&address)?))
        };
        match open() {
            Ok(socket) => Self {
                socket: Some(socket),
                watchdog: watchdog_every().map(|every| (every, now)),
            },
            Err(error) => {
                remarks.push(format!("can't notify the service manager: {error}"));
                Self::default()
            }
        }
    }

    /// Reports that all workers accept connections, or that a reload is over.
    pub(super) fn ready(&self) {
        self.say("READY=1\nSTATUS=ready");
    }

    /// Reports `why` as the service's status, because the server process has died or hangs.
    pub(super) fn waits(&self, why: &str) {
        self.say(&format!("STATUS={}", why.replace('\n', " ")));
    }

    /// Reports that a reload has started; [`Self::ready`] ends it.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let us = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    /// Reports that the service is stopping.
    pub(super) fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=draining");
    }

    /// Returns the time at which [`Self::tick`] has work to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.watchdog.map(|(_, at)| at)
    }

    /// Sends the watchdog notification when it is due.
    pub(super) fn tick(&mut self, now: Instant) {
        if let Some((every, at)) = &mut self.watchdog
            && now >= *at
        {
            *at = now + *every;
            self.say("WATCHDOG=1");
        }
    }

    /// Makes the service manager close the stored sockets.
    pub(super) fn forget_stored(&self) {
        self.say(&format!("FDSTOREREMOVE=1\nFDNAME={NAME}"));
    }

    /// Makes the service manager store exactly these sockets for the next start.
    ///
    /// # Errors
    /// The service manager can't be notified, so connections will be refused between this run and the next one.
    pub(super) fn store(&self, listening: &[ListeningSockets]) -> io::Result<()> {
        let Some((_, address)) = &self.socket else {
            return Ok(());
        };
        self.forget_stored();
        let sockets = listening.iter().flat_map(|listening| &listening.sockets);
        let sockets: Vec<_> = sockets.map(AsFd::as_fd).collect();
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(address)?;
        socket.set_write_timeout(Some(STORE_WAIT))?;
        // FDPOLL=0, because by default the service manager closes stored sockets on which it detects a hang-up.
        let message = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={NAME}");
        for some in sockets.chunks(scm_rights::DESCRIPTORS_MAX) {
            scm_rights::send(&socket, message.as_bytes(), some)?;
        }
        Ok(())
    }

    fn say(&self, what: &str) {
        if let Some((socket, address)) = &self.socket {
            let _ = socket.send_to_addr(what.as_bytes(), address);
        }
    }
}

/// Parses the socket's address, in which a leading `@` stands for the NUL byte of an abstract address.
fn address_of(text: &OsStr) -> io::Result<SocketAddr> {
    match text.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(text),
    }
}

/// Returns half of the watchdog timeout, if the service manager watches this process.
fn watchdog_every() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    let us = number("WATCHDOG_USEC").filter(|&us| us > 0)?;
    Some(Duration::from_micros(us / 2).max(Duration::from_millis(1)))
}
