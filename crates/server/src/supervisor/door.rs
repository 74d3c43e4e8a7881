//! The control socket's place in the file system: claimed at start, given up at the end.
//!
//! A file that a killed supervisor left behind is replaced, one that somebody answers on is not: that is how a
//! second `veche serve` on the same config learns that it is the second. Who comes through the door is
//! `client`'s business.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Clients that may queue.
const BACKLOG: i32 = 16;

/// Why the control socket can't be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DoorError {
    /// Somebody answers on it.
    #[error("already running with this config: it answers on {}; see `veche status`", .0.display())]
    Answered(PathBuf),
    /// There is something else of that name.
    #[error("{} is there and is no socket: remove it or set another server.control", .0.display())]
    NoSocket(PathBuf),
    /// The system's error.
    #[error("can't open the control socket {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// The bound control socket; its file goes with it.
pub(crate) struct Door {
    listener: UnixListener,
    path: PathBuf,
}

impl Door {
    /// Binds `path`, for this user only.
    pub(crate) fn claim(path: &Path) -> Result<Self, DoorError> {
        let io = |source| DoorError::Io {
            path: path.to_owned(),
            source,
        };
        // Two that start at once must not both find a dead file and then remove each other's.
        let _turn = lock_folder_of(path).map_err(io)?;
        match fs::symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(io(e)),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(DoorError::NoSocket(path.to_owned()));
            }
            Ok(_) => match UnixStream::connect(path) {
                Ok(_) => return Err(DoorError::Answered(path.to_owned())),
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(io)?
                }
                // Gone since: its owner just ended.
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

    /// The door that another supervisor has opened in this process.
    pub(crate) fn adopt(listener: OwnedFd, path: PathBuf) -> Self {
        let listener = UnixListener::from(listener);
        Self { listener, path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The next client, if one waits.
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

impl Drop for Door {
    fn drop(&mut self) {
        // Somebody may have removed it by hand; the socket behind it is gone either way.
        let _ = fs::remove_file(&self.path);
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// An exclusive lock on the folder, for the time of a few system calls; it leaves no file behind.
fn lock_folder_of(path: &Path) -> io::Result<File> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = File::open(folder)?;
    flock(&folder, FlockOperation::LockExclusive)?;
    Ok(folder)
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Before the bind: Linux gives the file the socket's mode, so that it is never open to others.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn place(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("veche-door-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        path
    }

    #[test]
    fn it_is_for_the_owner_only_and_goes_with_the_door() {
        let path = place("owner");
        let door = Door::claim(&path).expect("claimed");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(door);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_file_is_replaced_and_a_live_one_is_not() {
        let path = place("dead");
        // A socket that is dropped leaves its file.
        drop(UnixListener::bind(&path).expect("bound"));
        assert!(path.exists());
        let door = Door::claim(&path).expect("claimed");
        assert!(matches!(Door::claim(&path), Err(DoorError::Answered(_))));
        drop(door);
        drop(Door::claim(&path).expect("claimed again"));
    }

    #[test]
    fn another_file_is_left_alone() {
        let path = place("file");
        fs::write(&path, "precious").expect("written");
        assert!(matches!(Door::claim(&path), Err(DoorError::NoSocket(_))));
        assert_eq!(fs::read_to_string(&path).expect("still there"), "precious");
        fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn of_many_at_once_one_gets_in() {
        let path = place("race");
        drop(UnixListener::bind(&path).expect("bound"));
        let doors: Vec<_> = std::thread::scope(|scope| {
            let claims: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| Door::claim(&path).ok()))
                .collect();
            claims
                .into_iter()
                .map(|claim| claim.join().expect("no panic"))
                .collect()
        });
        assert_eq!(doors.iter().flatten().count(), 1);
    }
}
