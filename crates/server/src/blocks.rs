//! Users and tokens that are not let in: one table for all workers, and a file, so that a new process knows them too.
//!
//! The file has a line of JSON for each word of the back end, in order; the last one of a user or token counts. It is
//! written before the back end gets its answer, without asking the disk: what the machine forgets when its power fails
//! is the last seconds. At a start it is read and written anew without what is over.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use veche_frontends::blocks::{Block, Issued, NotBlocked};

/// Most users, and most tokens, and most users whose tokens don't hold.
const BLOCKS_MAX: usize = 100_000;

/// When it is over, in seconds since 1970.
type Until = Option<u64>;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Nobody was ever blocked: the usual case costs nothing.
    is_used: AtomicBool,
    table: RwLock<Table>,
    path: Mutex<Option<PathBuf>>,
}

#[derive(Debug, Default)]
struct Table {
    users: HashMap<Box<str>, Until>,
    tokens: HashMap<Box<str>, Until>,
    /// With the time before which they were issued.
    tokens_of: HashMap<Box<str>, (u64, Until)>,
}

impl Blocks {
    /// Knows what the file says; what comes is written there.
    ///
    /// # Errors
    /// The file can't be read or written, on one line.
    pub(crate) fn open(path: Option<&Path>, now_s: u64) -> Result<Self, String> {
        let blocks = Self::default();
        let Some(path) = path else {
            return Ok(blocks);
        };
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let mut table = Table::default();
        let lock = locked(path).map_err(failed)?;
        table.read(path).map_err(failed)?;
        table.forget(now_s);
        table.write(path).map_err(failed)?;
        drop(lock);
        blocks.is_used.store(!table.is_empty(), Relaxed);
        *blocks.table.write() = table;
        *blocks.path.lock() = Some(path.to_owned());
        Ok(blocks)
    }

    /// Whether a user is not let in.
    pub(crate) fn has_user(&self, user: &str, now_s: u64) -> bool {
        if !self.is_used.load(Relaxed) {
            return false;
        }
        let table = self.table.read();
        table.users.get(user).is_some_and(|it| holds(*it, now_s))
    }

    /// Whether a token does not hold.
    pub(crate) fn has_token(&self, token: &Issued<'_>, now_s: u64) -> bool {
        if !self.is_used.load(Relaxed) {
            return false;
        }
        let table = self.table.read();
        let by_id = token.id.and_then(|id| table.tokens.get(id));
        let by_user = token.user.and_then(|user| table.tokens_of.get(user));
        by_id.is_some_and(|it| holds(*it, now_s))
            || by_user.is_some_and(|(before_s, until)| {
                holds(*until, now_s) && token.at_s.is_none_or(|at_s| at_s < *before_s)
            })
    }

    /// From now on.
    ///
    /// # Errors
    /// It is not so.
    pub(crate) fn add(&self, block: &Block, now_s: u64) -> Result<(), NotBlocked> {
        // Held while it is written, so that the file has the order of the table.
        let mut table = self.table.write();
        if !table.has_room(block) {
            table.forget(now_s);
            if !table.has_room(block) {
                return Err(NotBlocked::TooMany);
            }
        }
        if let Some(path) = &*self.path.lock() {
            append(path, block).map_err(|error| NotBlocked::NotWritten(error.to_string()))?;
        }
        table.add(block);
        self.is_used.store(true, Relaxed);
        Ok(())
    }
}

impl Table {
    fn is_empty(&self) -> bool {
        self.users.is_empty() && self.tokens.is_empty() && self.tokens_of.is_empty()
    }

    fn has_room(&self, block: &Block) -> bool {
        match block {
            Block::User { user, .. } => {
                self.users.len() < BLOCKS_MAX || self.users.contains_key(&**user)
            }
            Block::UserNoMore { .. } => true,
            Block::Token { id, .. } => {
                self.tokens.len() < BLOCKS_MAX || self.tokens.contains_key(&**id)
            }
            Block::TokensOf { user, .. } => {
                self.tokens_of.len() < BLOCKS_MAX || self.tokens_of.contains_key(&**user)
            }
        }
    }

    fn add(&mut self, block: &Block) {
        match block {
            Block::User { user, until_s } => {
                self.users.insert(user.as_str().into(), *until_s);
            }
            Block::UserNoMore { user } => {
                self.users.remove(&**user);
            }
            Block::Token { id, until_s } => {
                self.tokens.insert(id.as_str().into(), *until_s);
            }
            Block::TokensOf {
                user,
                issued_before_s,
                until_s,
            } => {
                let what = (*issued_before_s, *until_s);
                self.tokens_of.insert(user.as_str().into(), what);
            }
        }
    }

    /// What is over.
    fn forget(&mut self, now_s: u64) {
        self.users.retain(|_, until| holds(*until, now_s));
        self.tokens.retain(|_, until| holds(*until, now_s));
        self.tokens_of.retain(|_, (_, until)| holds(*until, now_s));
    }

    fn read(&mut self, path: &Path) -> io::Result<()> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut lines = BufReader::new(file).lines().enumerate().peekable();
        while let Some((number, line)) = lines.next() {
            let line = line?;
            match read_line(&line) {
                Some(block) => self.add(&block),
                // The machine went down while it was written: nobody was told that it is in force.
                None if lines.peek().is_none() => {}
                None => {
                    let what = format!("line {}: not a block: {line:?}", number + 1);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
            }
        }
        Ok(())
    }

    /// All of it, in place of what was there.
    fn write(&self, path: &Path) -> io::Result<()> {
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let mut file = BufWriter::new(
            private()
                .create(true)
                .truncate(true)
                .write(true)
                .open(&new)?,
        );
        for (user, until_s) in &self.users {
            let (user, until_s) = (user.to_string(), *until_s);
            write_line(&mut file, &Block::User { user, until_s })?;
        }
        for (id, until_s) in &self.tokens {
            let (id, until_s) = (id.to_string(), *until_s);
            write_line(&mut file, &Block::Token { id, until_s })?;
        }
        for (user, (issued_before_s, until_s)) in &self.tokens_of {
            let block = Block::TokensOf {
                user: user.to_string(),
                issued_before_s: *issued_before_s,
                until_s: *until_s,
            };
            write_line(&mut file, &block)?;
        }
        file.into_inner()?.sync_all()?;
        fs::rename(&new, path)
    }
}

fn holds(until: Until, now_s: u64) -> bool {
    until.is_none_or(|until_s| now_s < until_s)
}

/// For nobody else to read: it names users.
fn private() -> fs::OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = File::options();
    options.mode(0o600);
    options
}

/// Two processes may have the file while one takes over from the other: one of them at a time.
fn locked(path: &Path) -> io::Result<File> {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    let file = private().create(true).append(true).open(lock)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

fn append(path: &Path, block: &Block) -> io::Result<()> {
    let _lock = locked(path)?;
    // Opened each time: whoever has taken over may have written it anew.
    let mut file = private().create(true).append(true).open(path)?;
    let mut line = Vec::new();
    write_line(&mut line, block)?;
    let before = file.metadata()?.len();
    file.write_all(&line)
        // Half a line would spoil the next one.
        .inspect_err(|_| drop(file.set_len(before)))
}

fn write_line(file: &mut impl io::Write, block: &Block) -> io::Result<()> {
    let line = match block {
        Block::User { user, until_s } => json!({"block": user, "until": until_s}),
        Block::UserNoMore { user } => json!({"unblock": user}),
        Block::Token { id, until_s } => json!({"revoke": id, "until": until_s}),
        Block::TokensOf {
            user,
            issued_before_s,
            until_s,
        } => json!({"tokens_of": user, "before": issued_before_s, "until": until_s}),
    };
    writeln!(file, "{line}")
}

fn read_line(line: &str) -> Option<Block> {
    let value: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let until_s = value.get("until").and_then(Value::as_u64);
    if let Some(user) = text("block") {
        return Some(Block::User { user, until_s });
    }
    if let Some(user) = text("unblock") {
        return Some(Block::UserNoMore { user });
    }
    if let Some(id) = text("revoke") {
        return Some(Block::Token { id, until_s });
    }
    Some(Block::TokensOf {
        user: text("tokens_of")?,
        issued_before_s: value.get("before").and_then(Value::as_u64)?,
        until_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(user: &str, until_s: Until) -> Block {
        let user = user.to_owned();
        Block::User { user, until_s }
    }

    fn issued<'a>(user: &'a str, id: &'a str, at_s: Option<u64>) -> Issued<'a> {
        Issued {
            user: Some(user),
            id: Some(id),
            at_s,
        }
    }

    #[test]
    fn what_is_blocked_is_so_until_its_time_or_the_next_word() {
        let blocks = Blocks::default();
        assert!(!blocks.has_user("ann", 1));
        for block in [user("ann", None), user("bob", Some(10))] {
            blocks.add(&block, 1).expect("room");
        }
        assert!(blocks.has_user("ann", 9) && blocks.has_user("bob", 9));
        assert!(blocks.has_user("ann", 10) && !blocks.has_user("bob", 10));
        let user = "ann".to_owned();
        blocks.add(&Block::UserNoMore { user }, 2).expect("room");
        assert!(!blocks.has_user("ann", 3));

        let id = "t".to_owned();
        let until_s = Some(10);
        blocks.add(&Block::Token { id, until_s }, 1).expect("room");
        assert!(blocks.has_token(&issued("bob", "t", Some(9)), 9));
        assert!(!blocks.has_token(&issued("bob", "t", Some(9)), 10));
        let block = Block::TokensOf {
            user: "eve".to_owned(),
            issued_before_s: 5,
            until_s: None,
        };
        blocks.add(&block, 1).expect("room");
        assert!(blocks.has_token(&issued("eve", "u", Some(4)), 9));
        assert!(blocks.has_token(&issued("eve", "u", None), 9));
        assert!(!blocks.has_token(&issued("eve", "u", Some(5)), 9));
        assert!(!blocks.has_token(&issued("bob", "u", Some(4)), 9));
    }

    #[test]
    fn a_new_process_knows_them() {
        let folder = std::env::temp_dir().join(format!("veche-blocks-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("blocks");
        let first = Blocks::open(Some(&path), 1).expect("opened");
        for block in [
            user("ann", None),
            user("bob", Some(10)),
            user("eve", None),
            Block::UserNoMore {
                user: "eve".to_owned(),
            },
            Block::TokensOf {
                user: "кот\n".to_owned(),
                issued_before_s: 5,
                until_s: None,
            },
        ] {
            first.add(&block, 1).expect("written");
        }
        // Nobody has heard that this one holds.
        let mut text = fs::read_to_string(&path).expect("a file");
        text.push_str("{\"block\":\"half");
        fs::write(&path, &text).expect("written");

        let second = Blocks::open(Some(&path), 10).expect("opened");
        assert!(second.has_user("ann", 10));
        assert!(!second.has_user("bob", 9), "it was over when it was read");
        assert!(!second.has_user("eve", 10));
        assert!(second.has_token(&issued("кот\n", "", Some(4)), 10));
        let lines = fs::read_to_string(&path).expect("a file");
        assert_eq!(lines.lines().count(), 2, "{lines}");

        // The process before may go on for a while.
        first.add(&user("dan", None), 11).expect("written");
        let third = Blocks::open(Some(&path), 12).expect("opened");
        assert!(third.has_user("dan", 12) && third.has_user("ann", 12));

        fs::write(&path, "nonsense\n{\"block\":\"ann\"}\n").expect("written");
        let error = Blocks::open(Some(&path), 12).expect_err("bad");
        assert!(error.contains("line 1: not a block"), "{error}");
        let _ = fs::remove_dir_all(folder);
    }

    #[test]
    fn there_is_an_end_to_them() {
        let blocks = Blocks::default();
        for number in 0..BLOCKS_MAX {
            let until_s = Some(if number == 0 { 5 } else { 50 });
            blocks
                .add(&user(&number.to_string(), until_s), 1)
                .expect("room");
        }
        let more = user("one more", None);
        assert_eq!(blocks.add(&more, 1), Err(NotBlocked::TooMany));
        assert_eq!(blocks.add(&user("7", None), 1), Ok(()));
        assert_eq!(blocks.add(&more, 5), Ok(()), "one is over");
    }
}
