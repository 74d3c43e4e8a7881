//! Opening an archive, what a server holds of it, and its end.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

use crate::database::{Contents, Database};
use crate::error::Error;
use crate::lane::{Lane, Writer};
use crate::loaded::Loaded;
use crate::lock::Lock;
use crate::log::{Log, Opening};
use crate::options::Options;
use crate::run::{self, Cause, Last, Renewal};
use crate::stats::{Counters, Stats};

/// An open archive. What is handed over before it is closed, or let go of, is written.
#[derive(Debug)]
pub struct Archive {
    shared: Arc<Shared>,
    queue_bytes_max: usize,
    /// `None` once it was closed.
    thread: Option<JoinHandle<Result<(), Error>>>,
}

/// What the archive's thread shares with the rest.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) lanes: Mutex<Vec<Arc<Lane>>>,
    pub(crate) is_closing: AtomicBool,
    pub(crate) counters: Counters,
}

/// Opens the archive in a folder, which is made if there is none, and reads all there is.
///
/// # Errors
/// [`Error`]; nothing has changed then.
pub fn open(folder: &Path, options: &Options) -> Result<(Archive, Loaded), Error> {
    make(folder).map_err(|source| Error::Io {
        path: folder.into(),
        source,
    })?;
    let lock = Lock::take(folder)?;
    let failed = |source| Error::Io {
        path: folder.into(),
        source,
    };
    let boot = options.boot.as_deref();
    let last = run::last(folder, boot).map_err(failed)?;
    if last == Last::Damaged {
        return Err(Error::Damaged {
            path: folder.into(),
            reason: "the previous run could not write to it".to_owned(),
        });
    }
    let is_new = !Database::is_in(folder);
    let database = match Database::open(folder, options.fsync) {
        // It is made when there is room.
        Err(error) if is_new && error.is_full() => None,
        opened => Some(opened?),
    };
    let cause = match (&database, last) {
        (Some(database), _) if database.has_lost() => Some(Cause::Log),
        (_, Last::Lost) => Some(Cause::Machine),
        (_, Last::Renew) => Some(Cause::Asked),
        _ => None,
    };
    let renewal = cause
        .map(|cause| Ok((cause, Renewal::random()?)))
        .transpose();
    let renewal = renewal.map_err(failed)?;
    let contents = match &database {
        Some(database) => database.load(renewal)?,
        None => Contents::default(),
    };
    let opening = Opening {
        is_lost: renewal.is_some(),
        repairs: contents.repairs,
    };
    let shared = Arc::new(Shared::default());
    let mut log = Log::new(
        folder,
        options,
        database,
        contents.index,
        opening,
        Arc::clone(&shared),
        lock,
    );
    log.begin()?;
    let thread = thread::Builder::new()
        .name("archive".into())
        .spawn(|| log.run());
    let thread = thread.map_err(|source| Error::Io {
        path: folder.into(),
        source,
    })?;
    let archive = Archive {
        shared,
        queue_bytes_max: options.queue_bytes_max,
        thread: Some(thread),
    };
    Ok((archive, contents.loaded))
}

/// Moves the files of a [damaged](Error::Damaged) archive into a folder beside them, so that the next [`open`] begins
/// anew. Says which folder.
///
/// # Errors
/// [`Error::InUse`], [`Error::Io`].
pub fn set_aside(folder: &Path) -> Result<PathBuf, Error> {
    let _lock = Lock::take(folder)?;
    let failed = |source| Error::Io {
        path: folder.into(),
        source,
    };
    let free = (1..)
        .map(|number: u32| folder.join(format!("damaged-{number}")))
        .find(|path| !path.exists());
    let aside = free.ok_or_else(|| failed(io::ErrorKind::AlreadyExists.into()))?;
    make(&aside).map_err(failed)?;
    for name in ["history.sqlite", "history.sqlite-wal"] {
        match fs::rename(folder.join(name), aside.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
    }
    run::end(folder);
    Ok(aside)
}

/// Has the next [`open`] give all streams other epochs: for a folder that comes from a backup, where clients know later
/// offsets by the epochs that are in it.
///
/// # Errors
/// [`Error::InUse`], [`Error::Io`].
pub fn renew_epochs(folder: &Path) -> Result<(), Error> {
    let _lock = Lock::take(folder)?;
    run::renew(folder).map_err(|source| Error::Io {
        path: folder.into(),
        source,
    })
}

/// What was said in channels is nobody else's.
fn make(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    match folder
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

impl Archive {
    /// A way in for one worker. `wake` is called on the archive's thread whenever a batch of that worker has become
    /// durable, and when the thread ends; it must not wait.
    #[must_use]
    pub fn writer(&self, wake: impl Fn() + Send + Sync + 'static) -> Writer {
        let lane = Arc::new(Lane::new(self.queue_bytes_max, Box::new(wake)));
        let Some(thread) = &self.thread else {
            lane.close();
            return Writer::new(lane, Arc::clone(&self.shared), thread::current());
        };
        let mut lanes = self.shared.lanes.lock();
        if self.shared.is_closing.load(Ordering::Acquire) {
            lane.close();
        }
        lanes.push(Arc::clone(&lane));
        Writer::new(lane, Arc::clone(&self.shared), thread.thread().clone())
    }

    /// What was counted so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let queued = self
            .shared
            .lanes
            .lock()
            .iter()
            .map(|lane| lane.bytes() as u64)
            .sum();
        self.shared.counters.snapshot(queued)
    }

    /// Writes what was handed over, and closes the files. Another process may have the folder then.
    ///
    /// # Errors
    /// [`Error::Unwritten`]; others, where only the closing failed: all is on disk then.
    pub fn close(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        self.shared.is_closing.store(true, Ordering::Release);
        thread.thread().unpark();
        // It can't have panicked but by a fault of ours, which the panic hook has told.
        thread.join().unwrap_or(Ok(()))
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
