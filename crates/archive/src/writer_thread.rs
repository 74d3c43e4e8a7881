//! The archive's thread: takes what has come, commits it as one group, tells whoever waits, and keeps the files small
//! meanwhile. What fails is tried again until it works; what comes then waits, as far as the queues have room.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::archive::SharedState;
use crate::database::{Database, Maintenance};
use crate::error::Error;
use crate::index::{ChangeSet, Index};
use crate::lane::Lane;
use crate::lock::Lock;
use crate::options::{FsyncPolicy, Options};
use crate::record::Record;
use crate::run_state;

/// What one commit takes at most, in bytes, and a batch more: bounds how long it lasts.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// How long after a commit the size of the files is looked at: not after each, where they are many and small.
const MAINTENANCE_DELAY: Duration = Duration::from_millis(50);

/// So often the database is found to be damaged before it is given up.
const DAMAGES_MAX: u32 = 2;

/// All that the thread has.
#[derive(Debug)]
pub(crate) struct WriterThread {
    folder: PathBuf,
    fsync: FsyncPolicy,
    boot: Option<String>,
    retry: Duration,
    /// `None` after an error that may be the open file's: the next attempt opens it anew.
    database: Option<Database>,
    index: Index,
    /// What goes before all else, until it is written.
    opening: Option<Opening>,
    shared: Arc<SharedState>,
    /// Which lane is first.
    first_lane: usize,
    /// When the disk has to be asked, if something was written since.
    sync_at: Option<Instant>,
    /// When to look whether the files can be kept smaller, if something was written since nothing was to be done.
    maintain_at: Option<Instant>,
    /// It failed when it was last tried.
    is_maintenance_failing: bool,
    /// How often the database was found to be damaged.
    damages: u32,
    /// Let go of last.
    _lock: Lock,
}

/// What the start has to write.
#[derive(Debug)]
pub(crate) struct Opening {
    /// Something that was told to be durable may be gone, so the streams get other epochs.
    pub(crate) is_lost: bool,
    pub(crate) repairs: ChangeSet,
}

/// What goes into one commit.
#[derive(Default)]
struct Group {
    records: Vec<Record>,
    parts: Vec<LanePart>,
    bytes: usize,
}

/// One lane's part in it.
struct LanePart {
    lane: Arc<Lane>,
    /// The last batch.
    batch: u64,
    batches: u64,
    bytes: usize,
}

impl WriterThread {
    pub(crate) fn new(
        folder: &Path,
        options: &Options,
        database: Option<Database>,
        index: Index,
        opening: Opening,
        shared: Arc<SharedState>,
        lock: Lock,
    ) -> Self {
        let log = Self {
            folder: folder.into(),
            fsync: options.fsync,
            boot: options.boot.clone(),
            // Without a pause at all it would be busy with failing.
            retry: options.retry.max(Duration::from_millis(1)),
            database,
            index,
            opening: Some(opening),
            shared,
            first_lane: 0,
            sync_at: None,
            maintain_at: Some(now()),
            is_maintenance_failing: false,
            damages: 0,
            _lock: lock,
        };
        log.count();
        log
    }

    /// Writes what the start has to write. Where the disk does not take it, that is tried again before anything is told
    /// to be durable.
    ///
    /// # Errors
    /// The archive is damaged.
    pub(crate) fn write_opening_records(&mut self) -> Result<(), Error> {
        match self.open() {
            Err(error) => {
                self.failed(&error);
                self.maintain_at = Some(now() + self.retry);
                match error {
                    Error::Damaged { .. } => Err(error),
                    _ => Ok(()),
                }
            }
            Ok(()) => Ok(()),
        }
    }

    /// What the start has to write, if that is not written yet.
    fn open(&mut self) -> Result<(), Error> {
        let Some(opening) = self.opening.take() else {
            return Ok(());
        };
        let written = self.write_opening(&opening);
        if written.is_err() {
            self.opening = Some(opening);
        }
        written
    }

    fn write_opening(&mut self, opening: &Opening) -> Result<(), Error> {
        let failed = |source| Error::Io {
            path: self.folder.clone(),
            source,
        };
        if opening.is_lost {
            // What shows that something is lost, such as the end of the log, goes before the new epochs are sure to
            // stay: until then the next start is told here.
            run_state::begin(&self.folder, None, FsyncPolicy::Never).map_err(failed)?;
        }
        if !opening.repairs.is_empty() {
            self.database()?.commit(&opening.repairs)?;
        }
        self.database()?.cut_tail()?;
        if opening.is_lost {
            self.database()?.sync()?;
        }
        let failed = |source| Error::Io {
            path: self.folder.clone(),
            source,
        };
        run_state::begin(&self.folder, self.boot.as_deref(), self.fsync).map_err(failed)
    }

    /// Works until the archive is closed.
    pub(crate) fn run(mut self) -> Result<(), Error> {
        let mut unwritten = 0;
        loop {
            // Asked once: what was taken before the lanes were closed is in this group or a later one.
            let is_closing = self.is_closing();
            if is_closing {
                self.close_lanes();
            }
            if self.is_damaged() {
                break;
            }
            let group = self.gather();
            if group.parts.is_empty() {
                if is_closing {
                    break;
                }
                self.idle();
                continue;
            }
            let batches: u64 = group.parts.iter().map(|part| part.batches).sum();
            if !self.commit_group(group) {
                unwritten = batches + self.close_lanes();
                break;
            }
            self.maintain_if_due();
            self.sync_if_due();
        }
        if !self.is_damaged()
            && let Err(error) = self.open()
        {
            self.failed(&error);
        }
        if self.is_damaged() {
            // The next start sets it aside.
            run_state::damaged(&self.folder);
            self.database = None;
            unwritten += self.close_lanes();
        }
        let reason = self.shared.counters.last_error.lock().clone();
        let closed = match self.database.take() {
            // The next start has to find what this one has found.
            Some(_) if self.opening.is_some() => Ok(()),
            Some(database) => database.close().inspect(|()| {
                if unwritten == 0 {
                    run_state::end(&self.folder);
                }
            }),
            None => Ok(()),
        };
        match unwritten {
            0 => closed,
            batches => Err(Error::Unwritten {
                batches,
                reason: reason.unwrap_or_default(),
            }),
        }
    }

    /// What has come while the last group was written: a batch of each lane in turn, until there is enough.
    fn gather(&mut self) -> Group {
        let mut group = Group::default();
        let mut lanes = {
            let mut lanes = self.shared.lanes.lock();
            lanes.retain(|lane| !lane.is_over());
            lanes.clone()
        };
        if !lanes.is_empty() {
            self.first_lane = (self.first_lane + 1) % lanes.len();
            lanes.rotate_left(self.first_lane);
        }
        let mut is_more = true;
        while is_more && group.bytes < GROUP_BYTES_MAX {
            is_more = false;
            for lane in &lanes {
                is_more |= group.take_from(lane);
            }
        }
        group
    }

    /// Writes a group and tells its workers. `false` if the archive is being closed and it can't be written.
    fn commit_group(&mut self, group: Group) -> bool {
        let (records, bytes) = (
            group.records.len() as u64,
            group.records.iter().map(payload_bytes).sum(),
        );
        let plan = self.index.change_set(group.records);
        if !plan.is_empty() && !self.commit(&plan) {
            return false;
        }
        let counters = &self.shared.counters;
        counters.records.fetch_add(records, Relaxed);
        counters.bytes.fetch_add(bytes, Relaxed);
        counters.ignored.fetch_add(plan.ignored, Relaxed);
        self.count();
        for part in group.parts {
            part.lane.committed(part.batch, part.bytes);
        }
        true
    }

    /// Until it works, or the archive is being closed and it still does not.
    fn commit(&mut self, plan: &ChangeSet) -> bool {
        loop {
            let is_last = self.is_closing();
            match self.attempt(plan) {
                Ok(()) => break,
                Err(_) if is_last || self.is_damaged() => return false,
                Err(_) => self.pause(),
            }
        }
        let counters = &self.shared.counters;
        counters.commits.fetch_add(1, Relaxed);
        counters.is_failing.store(false, Relaxed);
        let is_long = self.database.as_ref().is_some_and(Database::is_log_long);
        match is_long && !self.is_maintenance_failing {
            true => self.maintain_at = Some(now()),
            false => {
                self.maintain_at
                    .get_or_insert_with(|| now() + MAINTENANCE_DELAY);
            }
        }
        match self.fsync {
            FsyncPolicy::EveryCommit => {
                counters.fsyncs.fetch_add(1, Relaxed);
            }
            FsyncPolicy::Interval(interval) => {
                self.sync_at.get_or_insert_with(|| now() + interval);
            }
            FsyncPolicy::Never => {}
        }
        true
    }

    fn attempt(&mut self, plan: &ChangeSet) -> Result<(), Error> {
        let result = self.open().and_then(|()| self.database()?.commit(plan));
        if let Err(error) = &result {
            self.failed(error);
        }
        result
    }

    /// The open file, which is opened anew after an error that may have been its own.
    fn database(&mut self) -> Result<&mut Database, Error> {
        if self.database.is_none() {
            self.database = Some(Database::open(&self.folder, self.fsync)?);
        }
        Ok(self.database.as_mut().expect("it was opened"))
    }

    /// Once may be a fault of the open file, which is opened anew.
    fn is_damaged(&self) -> bool {
        self.damages >= DAMAGES_MAX
    }

    fn failed(&mut self, error: &Error) {
        self.damages += u32::from(matches!(error, Error::Damaged { .. }));
        self.shared.counters.failed(error);
        // The open file is as good as before.
        if !error.is_full() {
            self.database = None;
        }
    }

    /// A step of what keeps the files small, where it is time.
    fn maintain_if_due(&mut self) {
        if self.maintain_at.is_none_or(|at| at > now()) {
            return;
        }
        let done = self.open().and_then(|()| {
            let database = self.database()?;
            Ok((database.maintain()?, database.file_bytes()))
        });
        self.is_maintenance_failing = done.is_err();
        let counters = &self.shared.counters;
        match done {
            Ok((done, bytes)) => {
                counters.is_failing.store(false, Relaxed);
                counters.file_bytes.store(bytes, Relaxed);
                counters
                    .checkpoints
                    .fetch_add(u64::from(done == Maintenance::Checkpoint), Relaxed);
                self.maintain_at = self.maintain_at.filter(|_| done != Maintenance::Idle);
            }
            Err(error) => {
                self.maintain_at = Some(now() + self.retry);
                self.failed(&error);
            }
        }
    }

    fn sync_if_due(&mut self) {
        if self.sync_at.is_none_or(|at| at > now()) {
            return;
        }
        match self.database().and_then(|database| database.sync()) {
            Ok(()) => {
                self.sync_at = None;
                self.shared.counters.fsyncs.fetch_add(1, Relaxed);
            }
            Err(error) => {
                self.sync_at = Some(now() + self.retry);
                self.failed(&error);
            }
        }
    }

    /// Nothing has come: what is due is done, or waited for.
    fn idle(&mut self) {
        match [self.sync_at, self.maintain_at].into_iter().flatten().min() {
            Some(at) => thread::park_timeout(at.saturating_duration_since(now())),
            None => thread::park(),
        }
        self.maintain_if_due();
        self.sync_if_due();
    }

    /// Before the next attempt; the end of the archive ends it.
    fn pause(&self) {
        let until = now() + self.retry;
        while !self.is_closing() {
            let left = until.saturating_duration_since(now());
            if left.is_zero() {
                break;
            }
            thread::park_timeout(left);
        }
    }

    /// Nothing is taken from now on. How many batches are left.
    fn close_lanes(&self) -> u64 {
        self.shared
            .lanes
            .lock()
            .iter()
            .map(|lane| lane.close())
            .sum()
    }

    fn is_closing(&self) -> bool {
        self.shared.is_closing.load(Acquire)
    }

    fn count(&self) {
        let counters = &self.shared.counters;
        counters.streams.store(self.index.streams(), Relaxed);
        counters
            .publications
            .store(self.index.publications(), Relaxed);
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.close_lanes();
        // Where that is a fault of ours, nobody should hear of it only with his next batch.
        for lane in self.shared.lanes.lock().iter() {
            lane.wake();
        }
    }
}

impl Group {
    fn take_from(&mut self, lane: &Arc<Lane>) -> bool {
        let Some(batch) = lane.pop() else {
            return false;
        };
        self.bytes += batch.bytes;
        self.records.extend(batch.records);
        match self
            .parts
            .iter_mut()
            .find(|part| Arc::ptr_eq(&part.lane, lane))
        {
            Some(part) => {
                part.batch = batch.number;
                part.batches += 1;
                part.bytes += batch.bytes;
            }
            None => self.parts.push(LanePart {
                lane: Arc::clone(lane),
                batch: batch.number,
                batches: 1,
                bytes: batch.bytes,
            }),
        }
        true
    }
}

fn payload_bytes(record: &Record) -> u64 {
    match record {
        Record::Published { publication, .. } => publication.bytes() as u64,
        Record::Opened { .. }
        | Record::Trimmed { .. }
        | Record::Cleared { .. }
        | Record::Dropped { .. } => 0,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this thread has a life of its own: nothing that decides asks for the time"
)]
fn now() -> Instant {
    Instant::now()
}
