//! Messages to and from a spawner: one JSON object per packet, with file descriptors.
//!
//! The sockets are `SOCK_SEQPACKET`, so a message arrives whole or not at all and needs no framing. The main socket
//! carries `Setup`, `Programs` and `Pool`; all other messages are sent on the sockets of the pools, one for each pool.

use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use veche_net::scm_rights;

/// The maximum length of a message in bytes. Only names of applications and texts of errors are long.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// The configuration of a spawner, which the spawner reads once, before the server process can send it messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnerSetup {
    /// The path of the configuration.
    pub config: PathBuf,
    /// The text of the configuration.
    pub text: String,
    /// The user and group of the server process, if not the spawner's own.
    pub account: Option<(u32, u32)>,
}

/// The worker program of one application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerProgram {
    /// The name of the application.
    pub app: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The working directory.
    pub folder: PathBuf,
    /// The user and group, if not the spawner's own.
    pub account: Option<(u32, u32)>,
}

/// A message to the spawner.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToSpawner {
    /// The first message: a descriptor of a file with a [`SpawnerSetup`].
    Setup,
    /// The first message from a process that starts its own spawner: a descriptor of a file with the [`WorkerProgram`]s.
    Programs,
    /// Opens a pool: the spawner's end of the pool's socket is attached.
    Pool,
    /// Starts a process. Descriptors of its socket, standard output and standard error are attached.
    Start {
        /// The number by which the pool identifies the process.
        key: u64,
        /// The name of the application.
        app: String,
        /// The number of the process among those of the application.
        instance: u32,
    },
    /// Kills a process and its children.
    Kill {
        /// The number of the process.
        key: u64,
    },
}

/// A message of the spawner to a pool.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromSpawner {
    /// The process runs. A descriptor of its `/proc/PID/statm` is attached, if that file is accessible.
    Started {
        /// The number of the process.
        key: u64,
        /// Its process id.
        pid: u32,
    },
    /// The process can't be started.
    Failed {
        /// The number of the process.
        key: u64,
        /// The system's error number, if the failure is an error of the system.
        code: Option<i32>,
        /// The error as text.
        why: String,
    },
    /// The process has ended and is reaped.
    Ended {
        /// The number of the process.
        key: u64,
        /// The process's wait status, as `wait` returns it.
        status: i32,
    },
}

/// One end of a socket that carries messages and descriptors.
#[derive(Debug)]
pub(crate) struct MessageSocket(OwnedFd);

impl MessageSocket {
    pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        Ok(socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None)?)
    }

    /// Wraps a socket and makes it non-blocking.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self(socket))
    }

    /// Sends a message with descriptors.
    ///
    /// # Errors
    /// `WouldBlock`: nothing was sent. `InvalidInput`: the message is too long. Any other error: the other side has
    /// ended.
    pub(crate) fn send(
        &self,
        message: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        scm_rights::send(&self.0, &bytes, descriptors)?;
        Ok(())
    }

    /// Receives a message with its descriptors; `None` once the other side has closed the socket.
    ///
    /// # Errors
    /// `WouldBlock`: no message has arrived yet. `InvalidData`: the packet is not a valid message.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut descriptors = Vec::new();
        let keep = |descriptor| descriptors.push(descriptor);
        let count = match scm_rights::receive(&self.0, &mut bytes, keep) {
            Ok(0) | Err(Errno::CONNRESET) => return Ok(None),
            Ok(count) => count,
            Err(error) => return Err(error.into()),
        };
        let message = serde_json::from_slice(&bytes[..count])?;
        Ok(Some((message, descriptors)))
    }
}

impl AsFd for MessageSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Writes a value as JSON to a file in memory (`memfd`), for values that may be longer than a message.
pub(crate) fn to_memory(value: &impl Serialize) -> io::Result<OwnedFd> {
    let memory = memfd_create("veche-spawner", MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(memory);
    file.write_all(&serde_json::to_vec(value)?)?;
    file.rewind()?;
    Ok(file.into())
}

/// Reads a value from a file written by [`to_memory`].
pub(crate) fn from_memory<T: DeserializeOwned>(memory: OwnedFd) -> io::Result<T> {
    let mut bytes = Vec::new();
    std::fs::File::from(memory).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_with_their_descriptors() {
        let (ours, theirs) = MessageSocket::pair().expect("a pair");
        let (ours, theirs) = (
            MessageSocket::new(ours).expect("ours"),
            MessageSocket::new(theirs).expect("theirs"),
        );
        let memory = to_memory(&"x".repeat(1 << 20)).expect("written");
        ours.send(&ToSpawner::Setup, &[memory.as_fd()])
            .expect("sent");
        ours.send(&ToSpawner::Kill { key: 7 }, &[]).expect("sent");
        let (first, mut with) = theirs.receive().expect("received").expect("a message");
        assert!(matches!(first, ToSpawner::Setup));
        let text: String = from_memory(with.pop().expect("a descriptor")).expect("JSON");
        assert_eq!(text.len(), 1 << 20);
        let (second, with) = theirs.receive().expect("received").expect("a message");
        assert!(matches!(second, ToSpawner::Kill { key: 7 }));
        assert!(with.is_empty());
        let nothing = theirs.receive::<ToSpawner>().expect_err("none yet");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        drop(ours);
        assert!(theirs.receive::<ToSpawner>().expect("the end").is_none());
    }
}
