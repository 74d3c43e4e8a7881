//! Banned users and revoked tokens: one table for all workers, and a file that preserves them
//! across processes.
//!
//! The file has a JSON line for each command of the back end, in order. The last line about a user or token is the one
//! in force. A line is written before its command is answered, and synced by the control thread within about a second,
//! so that no worker waits for the disk. A power cut loses the commands since the last sync. A ban that can't be
//! written is still enforced; the back end gets an error, and writing is retried. Expired bans stay in the table and
//! the file for a while, because they are in force again if the clock was ahead and is set back. During a handover two
//! processes use the file. Each of them writes under a lock, and reads the lines of the other process about once a
//! second. When most lines are expired, the file is rewritten.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use tracing::warn;
use veche_clock::now;
use veche_files::WriteOptions;
use veche_frontends::issued_token::{Ban, BanError, IssuedToken};

/// Maximum number of banned users in the table. The same maximum applies separately to revoked tokens and to users with
/// invalidated tokens. A ban beyond the maximum is rejected.
const BLOCKS_MAX: usize = 100_000;

/// The file is rewritten when its number of lines exceeds twice the number of bans in force by more
/// than this.
const OVER_MAX: usize = 1000;

/// For this time after the start, no line is removed, because the clock may not be set yet.
const SETTLED: Duration = Duration::from_secs(3600);

/// The interval at which the control thread syncs the file, and reads lines that another process has written.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of bans that wait to be written to the file. While that many wait, new bans are rejected.
const UNWRITTEN_MAX: usize = 100_000;

/// Maximum number of attempts of a worker to lock the file. [`LOCK_WAIT`] is the pause between two attempts.
const LOCK_TRIES: u32 = 20;
const LOCK_WAIT: Duration = Duration::from_millis(1);

/// The expiry time in seconds since 1970; `None` if the ban never expires.
type ExpiryTime = Option<u64>;

/// The bans of the process.
#[derive(Debug, Default)]
pub(crate) struct Bans {
    /// False until something is banned for the first time. While it is false, checks need no lock.
    is_used: AtomicBool,
    table: RwLock<BanTable>,
    /// Locked until both the file and the table are changed, so that the file's lines have the order of the table's
    /// changes.
    file: Mutex<Option<BanFile>>,
}

/// The file of bans.
#[derive(Debug)]
struct BanFile {
    path: PathBuf,
    /// The part of the file that has been read into the table: the file's identity (inode), and the number of bytes.
    known: (u64, u64),
    /// The number of lines in the file.
    lines: usize,
    /// The number of lines that a power cut has made unreadable.
    holes: usize,
    /// Bans in force that could not be written to the file, in the order in which they were added.
    unwritten: Vec<Ban>,
    /// True while the file may have writes that are not synced to disk.
    is_unsynced: bool,
    /// When the file was opened.
    opened: Instant,
}

#[derive(Debug, Default)]
struct BanTable {
    users: HashMap<Box<str>, ExpiryTime>,
    tokens: HashMap<Box<str>, ExpiryTime>,
    /// By user: the time before which the user's tokens are invalid, and the expiry of this ban.
    tokens_of: HashMap<Box<str>, (u64, ExpiryTime)>,
}

impl Bans {
    /// Loads the bans from the file, to which new bans are appended. If `path` is `None`, bans are kept only in memory.
    ///
    /// # Errors
    /// The file can't be read or written. The text of the error is one line.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, String> {
        let blocks = Self::default();
        let Some(path) = path else {
            return Ok(blocks);
        };
        let mut log = BanFile {
            path: path.to_owned(),
            known: (0, 0),
            lines: 0,
            holes: 0,
            unwritten: Vec::new(),
            // The previous process may have been killed before it synced the file.
            is_unsynced: true,
            opened: now(),
        };
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        // This waits if another process holds the lock. If the disk is full and the lock file can't be created, the
        // server starts without the lock.
        let _lock = or_retry_later(log.lock()).map_err(failed)?;
        let table = log.read().map_err(failed)?;
        if log.holes > 0 {
            let (path, lines) = (path.display(), log.holes);
            warn!(%path, lines, "[api] blocks: skipped lines that are damaged, probably by a power failure");
        }
        if log.known == (0, 0) || log.holes > 0 {
            or_retry_later(log.rewrite(&table)).map_err(failed)?;
        }
        blocks.is_used.store(!table.is_empty(), Relaxed);
        *blocks.table.write() = table;
        *blocks.file.lock() = Some(log);
        Ok(blocks)
    }

    /// Reads the file again if another process has changed it, appends the bans not written yet, rewrites the file if
    /// most lines are expired, and syncs it. Returns when this method has to be called again, and the result of this
    /// call. Returns `None` if bans are kept only in memory.
    ///
    /// # Errors
    /// The file can't be read or written; the bans in the table stay in force.
    pub(crate) fn refresh(&self, now_s: u64) -> Option<(Instant, io::Result<()>)> {
        let mut file = self.file.lock();
        let log = file.as_mut()?;
        let result = self.catch_up(log, now_s);
        let unsynced = std::mem::take(&mut log.is_unsynced).then(|| log.path.clone());
        // The file is unlocked during the sync, so that no worker waits for the disk.
        drop(file);
        let synced = unsynced.map_or(Ok(()), |path| self.sync(&path));
        Some((now() + LOOK_EVERY, result.and(synced)))
    }

    /// Syncs the file and its folder.
    fn sync(&self, path: &Path) -> io::Result<()> {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let file = match veche_files::read(path) {
            // The file does not exist, because the disk was full when it was to be created. So
            // there is nothing to sync.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file,
        };
        let synced = file
            .and_then(|file| file.sync_all())
            .and_then(|()| File::open(folder.unwrap_or(Path::new(".")))?.sync_all());
        if synced.is_err()
            && let Some(log) = &mut *self.file.lock()
        {
            log.is_unsynced = true;
        }
        synced
    }

    fn catch_up(&self, log: &mut BanFile, now_s: u64) -> io::Result<()> {
        let is_another = log.file_identity()? != log.known;
        let is_long = now() >= log.opened + SETTLED
            && log.lines > OVER_MAX
            && log.lines > OVER_MAX + 2 * self.table.read().in_force(now_s);
        if is_another || is_long {
            let _lock = log.lock_within()?;
            let mut table = log.read()?;
            for block in &log.unwritten {
                table.add(block);
            }
            if is_long {
                table.remove_expired(now_s);
                log.rewrite(&table)?;
                log.unwritten.clear();
            }
            self.is_used.store(!table.is_empty(), Relaxed);
            *self.table.write() = table;
        }
        log.write_pending()
    }

    /// Returns all bans, including expired ones.
    pub(crate) fn all(&self) -> Vec<Ban> {
        self.table.read().bans().collect()
    }

    /// Returns whether a user is banned.
    pub(crate) fn has_user(&self, user: &str, now_s: u64) -> bool {
        if !self.is_used.load(Relaxed) {
            return false;
        }
        let table = self.table.read();
        table
            .users
            .get(user)
            .is_some_and(|it| is_in_force(*it, now_s))
    }

    /// Returns whether a token is revoked.
    pub(crate) fn has_token(&self, token: &IssuedToken<'_>, now_s: u64) -> bool {
        if !self.is_used.load(Relaxed) {
            return false;
        }
        let table = self.table.read();
        let by_id = token.id.and_then(|id| table.tokens.get(id));
        let by_user = token.user.and_then(|user| table.tokens_of.get(user));
        by_id.is_some_and(|it| is_in_force(*it, now_s))
            || by_user.is_some_and(|(before_s, until)| {
                is_in_force(*until, now_s) && token.issued_at_s.is_none_or(|at_s| at_s < *before_s)
            })
    }

    /// Adds a ban.
    ///
    /// # Errors
    /// There are too many bans, or the ban is in force but could not be written.
    pub(crate) fn add(&self, block: &Ban, now_s: u64) -> Result<(), BanError> {
        let mut log = self.file.lock();
        let is_crowded = { log.iter() }.any(|log| log.unwritten.len() >= UNWRITTEN_MAX);
        if is_crowded {
            return Err(BanError::TooMany);
        }
        if !self.table.read().has_room(block) {
            let mut table = self.table.write();
            table.remove_expired(now_s);
            if !table.has_room(block) {
                return Err(BanError::TooMany);
            }
        }
        // The table is locked only after this write, so that other workers' checks don't wait for the disk.
        let written = log.as_mut().map_or(Ok(()), |log| log.write(block));
        self.table.write().add(block);
        self.is_used.store(true, Relaxed);
        written.map_err(|error| BanError::NotWritten(error.to_string()))
    }
}

/// Converts the error of a full disk to `None`. The caller then continues, and the operation is retried later.
fn or_retry_later<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(None),
        done => done.map(Some),
    }
}

impl BanTable {
    fn is_empty(&self) -> bool {
        self.users.is_empty() && self.tokens.is_empty() && self.tokens_of.is_empty()
    }

    fn len(&self) -> usize {
        self.users.len() + self.tokens.len() + self.tokens_of.len()
    }

    /// Returns the number of bans in force.
    fn in_force(&self, now_s: u64) -> usize {
        let users = self.users.values().chain(self.tokens.values());
        let all = users.chain(self.tokens_of.values().map(|(_, until)| until));
        all.filter(|until| is_in_force(**until, now_s)).count()
    }

    fn has_room(&self, block: &Ban) -> bool {
        match block {
            Ban::User { user, .. } => {
                self.users.len() < BLOCKS_MAX || self.users.contains_key(&**user)
            }
            Ban::UserAllowed { .. } => true,
            Ban::Token { id, .. } => {
                self.tokens.len() < BLOCKS_MAX || self.tokens.contains_key(&**id)
            }
            Ban::TokensOf { user, .. } => {
                self.tokens_of.len() < BLOCKS_MAX || self.tokens_of.contains_key(&**user)
            }
        }
    }

    fn add(&mut self, block: &Ban) {
        match block {
            Ban::User { user, until_s } => {
                self.users.insert(user.as_str().into(), *until_s);
            }
            Ban::UserAllowed { user } => {
                self.users.remove(&**user);
            }
            Ban::Token { id, until_s } => {
                self.tokens.insert(id.as_str().into(), *until_s);
            }
            Ban::TokensOf {
                user,
                issued_before_s,
                until_s,
            } => {
                let what = (*issued_before_s, *until_s);
                self.tokens_of.insert(user.as_str().into(), what);
            }
        }
    }

    fn remove_expired(&mut self, now_s: u64) {
        self.users.retain(|_, until| is_in_force(*until, now_s));
        self.tokens.retain(|_, until| is_in_force(*until, now_s));
        self.tokens_of
            .retain(|_, (_, until)| is_in_force(*until, now_s));
    }

    fn bans(&self) -> impl Iterator<Item = Ban> {
        let users = self.users.iter().map(|(user, until_s)| Ban::User {
            user: user.to_string(),
            until_s: *until_s,
        });
        let tokens = self.tokens.iter().map(|(id, until_s)| Ban::Token {
            id: id.to_string(),
            until_s: *until_s,
        });
        let tokens_of = self.tokens_of.iter().map(|(user, what)| Ban::TokensOf {
            user: user.to_string(),
            issued_before_s: what.0,
            until_s: what.1,
        });
        users.chain(tokens).chain(tokens_of)
    }
}

impl BanFile {
    /// Opens the lock file, which serialises access by several processes.
    fn lock_file(&self) -> io::Result<File> {
        let path = sibling_path(&self.path, ".lock");
        Ok(WriteOptions::private().open(&path)?.file)
    }

    fn lock(&self) -> io::Result<File> {
        let file = self.lock_file()?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    /// Locks the file for a worker; fails after [`LOCK_TRIES`] attempts, which take about 20 ms.
    fn lock_within(&self) -> io::Result<File> {
        let file = self.lock_file()?;
        for _ in 1..LOCK_TRIES {
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok(file);
            }
            std::thread::sleep(LOCK_WAIT);
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    /// Returns the file's identity and length; zeros if it does not exist.
    fn file_identity(&self) -> io::Result<(u64, u64)> {
        match fs::symlink_metadata(&self.path) {
            Ok(found) => Ok((found.ino(), found.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((0, 0)),
            Err(error) => Err(error),
        }
    }

    /// Reads the whole file into a new table.
    fn read(&mut self) -> io::Result<BanTable> {
        let mut table = BanTable::default();
        let mut bytes = Vec::new();
        match veche_files::read(&self.path) {
            Ok(mut file) => file.read_to_end(&mut bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        (self.lines, self.holes) = (0, 0);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            // An incomplete last line was being written when the machine went down. Its command was never acknowledged.
            let Some(line) = line.strip_suffix(b"\n") else {
                break;
            };
            self.lines += 1;
            // After a power cut the file system may have extended the file without writing all of it: the missing part
            // is zeros, which JSON never contains.
            if line.contains(&0) {
                self.holes += 1;
                continue;
            }
            let Some(block) = read_line(line) else {
                let (number, line) = (self.lines, String::from_utf8_lossy(line));
                let what = format!("line {number} is not a valid ban entry: {line:?}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            };
            table.add(&block);
        }
        self.known = self.file_identity()?;
        Ok(table)
    }

    /// Replaces the file with the table's content.
    fn rewrite(&mut self, table: &BanTable) -> io::Result<()> {
        let new = sibling_path(&self.path, ".new");
        let mut file = BufWriter::new(WriteOptions::private().replace(&new)?);
        for block in table.bans() {
            write_line(&mut file, &block)?;
        }
        file.into_inner()?.sync_all()?;
        fs::rename(&new, &self.path)?;
        self.is_unsynced = true;
        self.lines = table.len();
        self.known = self.file_identity()?;
        Ok(())
    }

    /// Appends the bans that could not be written before, and then this ban.
    fn write(&mut self, block: &Ban) -> io::Result<()> {
        let written = self.write_pending().and_then(|()| self.append(block));
        if written.is_err() {
            self.unwritten.push(block.clone());
        }
        written
    }

    /// Appends the bans that could not be written before.
    fn write_pending(&mut self) -> io::Result<()> {
        let late = std::mem::take(&mut self.unwritten);
        for (at, block) in late.iter().enumerate() {
            if let Err(error) = self.append(block) {
                self.unwritten = late[at..].to_vec();
                return Err(error);
            }
        }
        Ok(())
    }

    fn append(&mut self, block: &Ban) -> io::Result<()> {
        let _lock = self.lock_within()?;
        // The file is opened for each write, since another process may have replaced it.
        let mut file = WriteOptions::private()
            .append()
            .readable()
            .open(&self.path)?
            .file;
        let found = file.metadata()?;
        let mut before = found.len();
        let is_known = self.known == (found.ino(), before);
        if before > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                // A killed process may have left an incomplete line, which would become part of the
                // next line. So it is cut off.
                before = whole_bytes(&mut file)?;
                file.set_len(before)?;
            }
        }
        let mut line = Vec::new();
        write_line(&mut line, block)?;
        if let Err(error) = file.write_all(&line) {
            // A failed write may leave an incomplete line, which would become part of the next line.
            let _ = file.set_len(before);
            return Err(error);
        }
        self.is_unsynced = true;
        self.lines += 1;
        if is_known {
            self.known = (found.ino(), file.metadata()?.len());
        }
        Ok(())
    }
}

fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(suffix);
    beside.into()
}

/// Returns the total length of a file's complete lines in bytes. An incomplete last line is not counted.
fn whole_bytes(file: &mut File) -> io::Result<u64> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    let end = bytes.iter().rposition(|byte| *byte == b'\n');
    Ok(end.map_or(0, |end| end as u64 + 1))
}

fn is_in_force(until: ExpiryTime, now_s: u64) -> bool {
    until.is_none_or(|until_s| now_s < until_s)
}

fn write_line(file: &mut impl io::Write, block: &Ban) -> io::Result<()> {
    let line = match block {
        Ban::User { user, until_s } => json!({"block": user, "until": until_s}),
        Ban::UserAllowed { user } => json!({"unblock": user}),
        Ban::Token { id, until_s } => json!({"revoke": id, "until": until_s}),
        Ban::TokensOf {
            user,
            issued_before_s,
            until_s,
        } => json!({"tokens_of": user, "before": issued_before_s, "until": until_s}),
    };
    writeln!(file, "{line}")
}

fn read_line(line: &[u8]) -> Option<Ban> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let until_s = value.get("until").and_then(Value::as_u64);
    if let Some(user) = text("block") {
        return Some(Ban::User { user, until_s });
    }
    if let Some(user) = text("unblock") {
        return Some(Ban::UserAllowed { user });
    }
    if let Some(id) = text("revoke") {
        return Some(Ban::Token { id, until_s });
    }
    Some(Ban::TokensOf {
        user: text("tokens_of")?,
        issued_before_s: value.get("before").and_then(Value::as_u64)?,
        until_s,
    })
}
