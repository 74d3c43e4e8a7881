//! Tests listening sockets that a simulated systemd stores and passes to the next start.

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Signal;

use crate::support::process::descriptors;
use crate::support::{SOON, Socket, free_address, now, until};
use crate::veche::{REQUEST, Veche};

/// The lowest number for duplicates of the stored descriptors, which a shell then moves to consecutive numbers from 3.
const FIRST_SOURCE: i32 = 200;

/// A simulated service manager that implements only the descriptor store.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
    /// The descriptors by name (`FDNAME`).
    stored: Vec<(String, OwnedFd)>,
}

impl Manager {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("veche-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(SOON)).expect("set");
        Self {
            socket,
            path,
            stored: Vec::new(),
        }
    }

    /// Handles messages until one contains this line.
    fn take_until(&mut self, line: &str) {
        loop {
            let mut bytes = [0; 4096];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let received = recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(&mut bytes)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            );
            let length = received
                .unwrap_or_else(|error| panic!("no {line}: {error}"))
                .bytes;
            let text = String::from_utf8(bytes[..length].to_vec()).expect("text");
            let value = |name: &str| text.lines().find_map(|found| found.strip_prefix(name));
            let name = value("FDNAME=").unwrap_or("stored").to_owned();
            if value("FDSTOREREMOVE=") == Some("1") {
                self.stored.retain(|(stored, _)| *stored != name);
            }
            let descriptors = ancillary.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(some) => Some(some),
                _ => None,
            });
            for descriptor in descriptors.flatten() {
                assert_eq!(value("FDSTORE="), Some("1"), "{text}");
                self.stored.push((name.clone(), descriptor));
            }
            if text.lines().any(|found| found == line) {
                return;
            }
        }
    }

    /// Starts the server like a service manager, with the stored descriptors.
    fn start(&mut self, veche: &mut Veche) {
        let serve = veche.command();
        let sources: Vec<OwnedFd> = self
            .stored
            .iter()
            .map(|(_, stored)| fcntl_dupfd_cloexec(stored, FIRST_SOURCE).expect("a descriptor"))
            .collect();
        let numbers = sources.iter().map(AsRawFd::as_raw_fd);
        let moved: String = numbers
            .clone()
            .zip(3..)
            .map(|(source, number)| format!("exec {number}<&{source} {source}<&-\n"))
            .collect();
        let names: Vec<&str> = self.stored.iter().map(|(name, _)| name.as_str()).collect();
        let listen = match sources.len() {
            0 => String::new(),
            count => format!(
                "export LISTEN_PID=$$ LISTEN_FDS={count} LISTEN_FDNAMES={}\n",
                names.join(":")
            ),
        };
        let mut command = Command::new("bash");
        command
            .arg("-c")
            .arg(format!("{moved}{listen}exec \"$@\" 2>> \"$LOG\""))
            .arg("bash")
            .arg(serve.get_program())
            .args(serve.get_args())
            .env("LOG", veche.folder().join("log"))
            .env("NOTIFY_SOCKET", &self.path);
        for source in &sources {
            fcntl_setfd(source, FdFlags::empty()).expect("ours");
        }
        veche.run(&mut command);
        drop(sources);
        self.take_until("READY=1");
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn sockets_of(veche: &Veche) -> u64 {
    let status = veche.status();
    status["listeners"][0]["sockets"]
        .as_u64()
        .expect("a number")
}

fn answered(mut client: TcpStream) {
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
}

fn asking(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("the store has the socket");
    client.set_read_timeout(Some(SOON)).expect("set");
    client.write_all(REQUEST).expect("taken");
    client
}

#[test]
fn connections_between_two_runs_are_served_by_the_second() {
    let mut manager = Manager::new("stored");
    let mut veche = Veche::prepare("stored", "drain_time = \"0\"");
    manager.start(&mut veche);
    veche.find_address();
    let address = veche.address();
    veche.set_address(address);
    let sockets = sockets_of(&veche);
    assert_eq!(manager.stored.len() as u64, sockets);

    for _ in 0..2 {
        veche.signal(Signal::TERM);
        assert_eq!(veche.exit_code(), Some(0));
        manager.take_until("STOPPING=1");
        // There are enough connections for each of the sockets to get some.
        let begun = now();
        let waiting: Vec<TcpStream> = (0..100).map(|_| asking(address)).collect();
        manager.start(&mut veche);
        waiting.into_iter().for_each(answered);
        let took = now() - begun;
        println!("100 connections without a server were answered {took:?} after the first one");
        assert_eq!(sockets_of(&veche), sockets);
        assert_eq!(manager.stored.len() as u64, sockets, "each is stored once");
    }

    // The inherited descriptors are closed once they have been duplicated.
    let mut other = Veche::start("stored-not", "");
    until("the same descriptors as without a store", || {
        // The notifier's socket is one more descriptor.
        descriptors(veche.pid()) <= descriptors(other.pid()) + 1
    });
    other.signal(Signal::TERM);
    assert_eq!(other.exit_code(), Some(0));
    assert!(Socket::open(address, "/").is_alive());
}

/// If the store kept a socket from which no process accepts, clients would hang instead of being refused.
#[test]
fn sockets_of_removed_addresses_are_closed() {
    let mut manager = Manager::new("stored-moved");
    let mut veche = Veche::prepare("stored-moved", "drain_time = \"0\"");
    manager.start(&mut veche);
    veche.find_address();
    let old = veche.address();
    veche.signal(Signal::TERM);
    assert_eq!(veche.exit_code(), Some(0));
    manager.take_until("STOPPING=1");
    assert!(TcpStream::connect(old).is_ok(), "the store has it");
    veche.set_address(free_address());
    manager.start(&mut veche);
    assert_eq!(manager.stored.len() as u64, sockets_of(&veche));
    assert!(TcpStream::connect(old).is_err());
    assert!(veche.is_answering().expect("an answer"));
}

/// A server process whose supervisor was killed shuts the sockets down for all processes.
#[test]
fn sockets_that_were_closed_are_bound_again() {
    let mut manager = Manager::new("stored-dead");
    let mut veche = Veche::prepare("stored-dead", "drain_time = \"0\"");
    manager.start(&mut veche);
    veche.find_address();
    let address = veche.address();
    veche.set_address(address);
    veche.kill_supervisor();
    until("the address to be closed", || {
        std::thread::sleep(Duration::from_millis(10));
        TcpStream::connect(address).is_err()
    });
    manager.start(&mut veche);
    assert!(veche.is_answering().expect("an answer"));
    assert_eq!(manager.stored.len() as u64, sockets_of(&veche));
}
