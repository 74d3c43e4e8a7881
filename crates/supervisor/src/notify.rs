//! What the service manager is told (`sd_notify`): that all is ready, that a reload is under way, that it ends, and
//! that the supervisor is alive. It also keeps the listening sockets for the next start.
//!
//! Datagrams to the socket that `NOTIFY_SOCKET` names; without it nobody is told. One that can't be sent is lost: the
//! service manager is gone or does not listen, and neither is a reason to stop.

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
use crate::scm_rights;

/// How long the service manager may leave a message with sockets unread.
const STORE_WAIT: Duration = Duration::from_secs(1);
/// Where the socket's address stands. The server process does not get it: only the supervisor speaks for the service.
pub(super) const SOCKET: &str = "NOTIFY_SOCKET";

/// See the module.
#[derive(Default)]
pub(super) struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often it has to hear that we are alive, and when it hears it next.
    watchdog: Option<(Duration, Instant)>,
}

impl Notifier {
    /// As the environment says; adds to `remarks` why the service manager can't be told anything.
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
                remarks.push(format!(
                    "the service manager can't be told anything: {error}"
                ));
                Self::default()
            }
        }
    }

    /// All workers accept, or a reload is over.
    pub(super) fn ready(&self) {
        self.say("READY=1\nSTATUS=ready");
    }

    /// There is no server process at the moment, or it is not ready.
    pub(super) fn waits(&self, why: &str) {
        self.say(&format!("STATUS={}", why.replace('\n', " ")));
    }

    /// A reload has begun; [`Self::ready`] ends it.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let us = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    /// The end has begun.
    pub(super) fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=draining");
    }

    /// When [`Self::tick`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.watchdog.map(|(_, at)| at)
    }

    /// Says that the supervisor is alive, when that is due.
    pub(super) fn tick(&mut self, now: Instant) {
        if let Some((every, at)) = &mut self.watchdog
            && now >= *at
        {
            *at = now + *every;
            self.say("WATCHDOG=1");
        }
    }

    /// Has the service manager give up the sockets that it keeps.
    pub(super) fn forget_stored(&self) {
        self.say(&format!("FDSTOREREMOVE=1\nFDNAME={NAME}"));
    }

    /// Has the service manager keep these sockets for the next start, and no others.
    ///
    /// # Errors
    /// It can't be told: connections are refused between this run and the next one.
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
        // By default the service manager looks whether one has hung up, and closes it then.
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

/// `@` at the beginning stands for the NUL of an abstract address.
fn address_of(text: &OsStr) -> io::Result<SocketAddr> {
    match text.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(text),
    }
}

/// Half of the time after which the service manager gives us up, if it watches this process.
fn watchdog_every() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    let us = number("WATCHDOG_USEC").filter(|&us| us > 0)?;
    Some(Duration::from_micros(us / 2).max(Duration::from_millis(1)))
}
