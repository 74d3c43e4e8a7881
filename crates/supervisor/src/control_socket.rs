//! The control socket's file: claimed at the start, removed at the end.
//!
//! A socket file left by a killed supervisor is replaced. If a server answers on the socket, it is not replaced, so a second
//! `veche serve` with the same configuration fails. Clients are handled in `client`.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use veche_files::{PinnedPath, WriteOptions, lock_holder};

use veche_clock::now;

/// The maximum number of clients in the socket's backlog.
const BACKLOG: i32 = 16;

/// The time limit for getting the lock, which other processes hold only for a few system calls.
const LOCK_WAIT: Duration = Duration::from_secs(5);
const LOCK_STEP: Duration = Duration::from_millis(20);

/// The reason why the control socket can't be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ControlSocketError {
    /// Another server answers on the socket.
    #[error("a server with this config is already running: it answers on {}; see `veche status`", .0.display())]
    Answered(PathBuf),
    /// The path leads to a file that is not a socket.
    #[error("{} exists and is not a socket: remove it, or set server.control to another path", .0.display())]
    NoSocket(PathBuf),
    /// Another process has held the lock for too long.
    #[error("can't claim the control socket: {} has held the lock {} for more than {} s; end that process, or remove the file", of_process(*.pid), path.display(), LOCK_WAIT.as_secs())]
    Locked { path: PathBuf, pid: Option<u32> },
    /// An error of the operating system.
    #[error("can't open the control socket {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// The bound control socket. Dropping it removes its file.
pub(crate) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Binds `path` with access for this user only.
    pub(crate) fn claim(path: &Path) -> Result<Self, ControlSocketError> {
        let io = |source| ControlSocketError::Io {
            path: path.to_owned(),
            source,
        };
        // Without the lock, two processes that start at the same time could both find a dead socket
        // file, and one could then remove the other's new file.
        let _turn = SocketLock::take(path)?;
        match fs::symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(io(e)),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(ControlSocketError::NoSocket(path.to_owned()));
            }
            Ok(_) => match is_answered(path) {
                Ok(true) => return Err(ControlSocketError::Answered(path.to_owned())),
                Ok(false) => fs::remove_file(path).map_err(io)?,
                // The owner of the socket has ended and removed the file in the meantime.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(io(e)),
            },
        }
        let listener = bind(path).map_err(io)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
        })
    }

    /// Wraps a socket bound by the previous program in this process.
    pub(crate) fn adopt(listener: OwnedFd, path: PathBuf) -> Self {
        let listener = UnixListener::from(listener);
        Self { listener, path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts the next client, if one waits.
    pub(crate) fn accept(&self) -> io::Result<Option<UnixStream>> {
        match self.listener.accept() {
            Ok((client, _)) => Ok(Some(client)),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // An error is ignored, since the file may have been removed by hand.
        let _ = fs::remove_file(&self.path);
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// A lock that gives the right to check and replace the socket's file. It is held for a few system calls, and its own file is
/// removed afterwards.
struct SocketLock {
    place: PinnedPath,
    _file: File,
}

impl SocketLock {
    /// Waits for the lock for a limited time.
    fn take(socket: &Path) -> Result<Self, ControlSocketError> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let io = |source| ControlSocketError::Io {
            path: path.clone(),
            source,
        };
        let deadline = now() + LOCK_WAIT;
        loop {
            // A separate file is locked rather than the folder, because any user who can read the folder could lock it.
            let file = WriteOptions::private().open(&path).map_err(io)?.file;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    let place = PinnedPath::open(&path).map_err(io)?;
                    let ours = file.metadata().map_err(io)?;
                    // If the path leads to another file by now, the lock's previous holder has removed the file that
                    // this process locked. Other processes lock the new file, so this process tries again.
                    if place.identity().map_err(io)? == Some((ours.dev(), ours.ino())) {
                        return Ok(Self { place, _file: file });
                    }
                }
                Err(Errno::WOULDBLOCK) if now() < deadline => std::thread::sleep(LOCK_STEP),
                Err(Errno::WOULDBLOCK) => {
                    let pid = lock_holder(&file);
                    return Err(ControlSocketError::Locked { path, pid });
                }
                Err(error) => return Err(io(error.into())),
            }
        }
    }
}

impl Drop for SocketLock {
    fn drop(&mut self) {
        // If the removal fails, the remaining file can be locked like a new one.
        let _ = self.place.remove();
    }
}

fn of_process(pid: Option<u32>) -> String {
    pid.map_or("another process".to_owned(), |pid| format!("process {pid}"))
}

/// Returns whether a server listens on a socket, even if the server's backlog is full. Never blocks.
fn is_answered(path: &Path) -> io::Result<bool> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The mode is set before the bind, because Linux gives it to the file. So the file is never accessible to other users.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn place(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("veche-door-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        path
    }

    #[test]
    fn the_socket_is_private_and_removed_at_the_end() {
        let path = place("owner");
        let control_socket = ControlSocket::claim(&path).expect("claimed");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(control_socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_file_is_replaced_and_a_live_one_is_not() {
        let path = place("dead");
        // Dropping a listener does not remove its socket file.
        drop(UnixListener::bind(&path).expect("bound"));
        assert!(path.exists());
        let control_socket = ControlSocket::claim(&path).expect("claimed");
        assert!(matches!(
            ControlSocket::claim(&path),
            Err(ControlSocketError::Answered(_))
        ));
        drop(control_socket);
        drop(ControlSocket::claim(&path).expect("claimed again"));
    }

    #[test]
    fn another_file_is_left_alone() {
        let path = place("file");
        fs::write(&path, "precious").expect("written");
        assert!(matches!(
            ControlSocket::claim(&path),
            Err(ControlSocketError::NoSocket(_))
        ));
        assert_eq!(fs::read_to_string(&path).expect("still there"), "precious");
        fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn a_lock_on_the_folder_does_not_block_clients() {
        let folder = place("folder");
        fs::create_dir_all(&folder).expect("a folder");
        let locked = File::open(&folder).expect("readable");
        flock(&locked, FlockOperation::LockExclusive).expect("free");
        let path = folder.join("veche.sock");
        let (done, wait) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || done.send(ControlSocket::claim(&path).map(drop)));
        let claimed = wait.recv_timeout(LOCK_WAIT).expect("it does not wait");
        claimed.expect("claimed");
        let left = fs::read_dir(&folder).expect("a folder").count();
        assert_eq!(left, 0, "the lock's file goes with it");
        let _ = fs::remove_dir_all(folder);
    }

    #[test]
    fn a_held_lock_is_reported_with_its_holder() {
        let path = place("held");
        let mut lock = path.clone().into_os_string();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        fs::write(&lock, "").expect("written");
        fs::set_permissions(&lock, fs::Permissions::from_mode(0o666)).expect("set");
        let held = File::open(&lock).expect("there");
        flock(&held, FlockOperation::LockShared).expect("free");
        let begun = now();
        let error = ControlSocket::claim(&path)
            .err()
            .expect("locked")
            .to_string();
        assert!(now() - begun < 2 * LOCK_WAIT);
        let expected = format!(
            "process {} has held the lock {}",
            std::process::id(),
            lock.display()
        );
        assert!(error.contains(&expected), "{error}");
        let mode = fs::metadata(&lock).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "others can't take it next time");
        drop(held);
        fs::remove_file(&lock).expect("removed");
        symlink("nowhere", &lock).expect("a link");
        let error = ControlSocket::claim(&path)
            .err()
            .expect("a link")
            .to_string();
        assert!(error.contains("symbolic link"), "{error}");
        fs::remove_file(&lock).expect("removed");
    }

    /// Tests a socket whose server accepts no connections and whose backlog is full.
    #[test]
    fn a_socket_that_is_full_is_answered() {
        let path = place("full");
        let flags = SocketFlags::CLOEXEC;
        let stream = SocketType::STREAM;
        let socket = |flags| rustix::net::socket_with(AddressFamily::UNIX, stream, flags, None);
        let address = SocketAddrUnix::new(&path).expect("short");
        let full = socket(flags).expect("a socket");
        rustix::net::bind(&full, &address).expect("bound");
        rustix::net::listen(&full, 0).expect("listening");
        let client = || {
            let client = socket(flags | SocketFlags::NONBLOCK).expect("a socket");
            rustix::net::connect(&client, &address).map(|()| client)
        };
        let _clients: Vec<_> = std::iter::from_fn(|| client().ok()).collect();
        assert!(matches!(
            ControlSocket::claim(&path),
            Err(ControlSocketError::Answered(_))
        ));
        fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn of_many_at_once_one_gets_in() {
        let path = place("race");
        drop(UnixListener::bind(&path).expect("bound"));
        let claimed: Vec<_> = std::thread::scope(|scope| {
            let claims: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| ControlSocket::claim(&path).ok()))
                .collect();
            claims
                .into_iter()
                .map(|claim| claim.join().expect("no panic"))
                .collect()
        });
        assert_eq!(claimed.iter().flatten().count(), 1);
    }
}
