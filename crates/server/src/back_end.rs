//! Selects the workers' I/O driver from `io` and the machine's capabilities.

use std::io;

use veche_net::{Delayed, Driver as _, Epoll, Options, Uring, Waker};

use veche_config::IoBackend;

/// The I/O driver of all workers of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DriverKind {
    Epoll,
    Uring,
    Delayed,
}

impl DriverKind {
    /// Returns the driver's name in the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::Uring => "io_uring",
            Self::Delayed => "delayed",
        }
    }

    /// Selects the driver and explains the choice for the log.
    ///
    /// # Errors
    /// io_uring is required, but the kernel or the container does not support it.
    pub(crate) fn choose(io: IoBackend) -> Result<(Self, String), String> {
        const ASKED: &str = "set in the configuration";
        match io {
            IoBackend::Epoll => Ok((Self::Epoll, ASKED.to_owned())),
            IoBackend::Delayed => Ok((Self::Delayed, ASKED.to_owned())),
            IoBackend::Uring => match Uring::probe() {
                Ok(_) => Ok((Self::Uring, ASKED.to_owned())),
                Err(error) => Err(format!(
                    "server.io: \"io_uring\" is not available here: {}; \"auto\" and \"epoll\" work everywhere",
                    why_not(&error)
                )),
            },
            IoBackend::Auto => Ok(match Uring::probe() {
                Ok(true) => (
                    Self::Uring,
                    "io_uring is available and costs less CPU than epoll or about the same".to_owned(),
                ),
                Ok(false) => (
                    Self::Epoll,
                    "io_uring is available, but costs more CPU than epoll under load before Linux 6.12"
                        .to_owned(),
                ),
                Err(error) => (
                    Self::Epoll,
                    format!("io_uring is not available: {}", why_not(&error)),
                ),
            }),
        }
    }
}

/// A worker's driver. It belongs to the thread that opens it.
pub(crate) enum DriverInstance {
    Epoll(Box<Epoll>),
    Uring(Box<Uring>),
    Delayed(Box<Delayed<Epoll>>),
}

impl DriverInstance {
    /// Opens a driver; `seed` is for random delays in tests.
    ///
    /// # Errors
    /// Too few descriptors or too little memory.
    pub(crate) fn open(back_end: DriverKind, seed: u64) -> io::Result<Self> {
        let options = Options::default();
        Ok(match back_end {
            DriverKind::Epoll => Self::Epoll(Box::new(Epoll::new(options)?)),
            DriverKind::Uring => Self::Uring(Box::new(Uring::new(options)?)),
            DriverKind::Delayed => {
                Self::Delayed(Box::new(Delayed::new(Epoll::new(options)?, seed)))
            }
        })
    }

    pub(crate) fn waker(&self) -> Waker {
        match self {
            Self::Epoll(own) => own.waker(),
            Self::Uring(own) => own.waker(),
            Self::Delayed(own) => own.waker(),
        }
    }
}

/// Returns the text of an error from opening io_uring, with its likely cause if one is known.
fn why_not(error: &io::Error) -> String {
    let means = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; a container's seccomp profile or sysctl kernel.io_uring_disabled forbids it"
        }
        io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput => {
            "; it requires Linux 6.1 or later, built with io_uring"
        }
        io::ErrorKind::OutOfMemory => "; the limit of locked memory may be too low (ulimit -l)",
        _ => "",
    };
    format!("{error}{means}")
}
