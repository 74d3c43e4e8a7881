//! `veche dump`: the rows of a table on their way out, written by a thread of their own to a descriptor of whoever asked.
//!
//! The descriptor comes over the control socket and from there to the server process, so that rows pass nobody in
//! between. What is written are frames: four bytes of length, little-endian, and so many bytes of rows. A length of 0
//! says that there are no more; behind it stands an [`DumpEnd`] as JSON. Without that the rows are not all.
//!
//! The table is locked for one frame at a time, never while somebody is waited for. Memory is that of one frame.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::net::SendFlags;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use veche_store::Store;
use veche_store::table::{Row, Scan, ScanOptions, Table};
use veche_supervisor::message::DumpRequest;

/// Most dumps at once: who reads slowly holds a thread.
const DUMPS_MAX: usize = 4;
/// A frame ends with the row that takes it this far.
const FRAME_BYTES: usize = 64 << 10;
/// Most rows of a frame, and so of what is looked at under the table's lock.
const FRAME_ROWS_MAX: usize = 1_000;
/// Bytes of a length.
const LENGTH_BYTES: usize = 4;
/// Longest [`DumpEnd`].
const END_BYTES_MAX: u64 = 64 << 10;
/// By so much others go first.
const NICE: i32 = 10;
/// Most names that an error lists.
const NAMES_SHOWN_MAX: usize = 20;

/// How it ended.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DumpEnd {
    /// So many rows were written.
    pub(crate) rows: u64,
    /// Why not all that were wanted.
    #[serde(default)]
    pub(crate) error: Option<String>,
}

/// The dumps of the process that are going on.
#[derive(Debug, Default)]
pub(crate) struct Dumps(Arc<AtomicUsize>);

impl Dumps {
    /// Begins to write what is wanted, and returns at once.
    pub(crate) fn begin(&self, store: &Arc<Store>, wanted: DumpRequest, to: OwnedFd) {
        let place = DumpSlot(Arc::clone(&self.0));
        if self.0.fetch_add(1, Ordering::Relaxed) >= DUMPS_MAX {
            let why = format!("{DUMPS_MAX} dumps are going on: wait for one of them to end");
            return refuse(&to, why);
        }
        let store = Arc::clone(store);
        let name = wanted.table.clone();
        let spawned = thread::Builder::new()
            .name("dump".to_owned())
            .spawn(move || {
                let _place = place;
                // Of this thread alone, as Linux has it; without it rows are written all the same.
                let _ = rustix::process::nice(NICE);
                write(&store, &wanted, File::from(to));
            });
        match spawned {
            Ok(_) => tracing::info!(table = name, "a table is dumped"),
            // What was to tell whoever asked went with the thread: he sees the end.
            Err(error) => tracing::warn!(%error, "no thread for a dump"),
        }
    }
}

/// One of [`DUMPS_MAX`], until it is dropped.
struct DumpSlot(Arc<AtomicUsize>);

impl Drop for DumpSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Says no, without a wait for whoever it is.
fn refuse(to: &OwnedFd, why: String) {
    let end = ending(&DumpEnd {
        rows: 0,
        error: Some(why),
    });
    // If he does not take even that, he sees the end.
    let _ = rustix::net::send(to, &end, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Why there are no more rows.
enum StopReason {
    /// Nobody takes them.
    Gone,
    /// In words.
    Error(String),
}

fn write(store: &Store, wanted: &DumpRequest, mut to: File) {
    let mut rows = 0;
    let error = match write_rows(store, wanted, &mut to, &mut rows) {
        Ok(()) => None,
        Err(StopReason::Gone) => return,
        Err(StopReason::Error(why)) => Some(why),
    };
    // Whoever goes now has seen all of it.
    let _ = to.write_all(&ending(&DumpEnd { rows, error }));
}

fn write_rows(
    store: &Store,
    wanted: &DumpRequest,
    to: &mut impl Write,
    rows: &mut u64,
) -> Result<(), StopReason> {
    let (table, mut scan) = find(store, wanted).map_err(StopReason::Error)?;
    let mut frame = vec![0; LENGTH_BYTES];
    if wanted.csv {
        table.schema().write_csv_names(&mut frame);
    }
    loop {
        let look = |row: Row<'_>| {
            if wanted.csv {
                row.write_csv(&mut frame);
            } else {
                row.write_json(&mut frame);
                frame.push(b'\n');
            }
            *rows += 1;
            frame.len() < FRAME_BYTES
        };
        let more = table.next_while(&mut scan, FRAME_ROWS_MAX, now_ms(), look);
        let more =
            more.map_err(|error| StopReason::Error(format!("table {:?}: {error}", wanted.table)));
        let length = frame.len() - LENGTH_BYTES;
        if length > 0 {
            // Rows are far from 4 GiB.
            frame[..LENGTH_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
            to.write_all(&frame).map_err(|_| StopReason::Gone)?;
        }
        if !more? {
            return Ok(());
        }
        frame.truncate(LENGTH_BYTES);
        frame.shrink_to(2 * FRAME_BYTES);
    }
}

/// The table, and where to begin.
fn find(store: &Store, wanted: &DumpRequest) -> Result<(Arc<Table>, Scan), String> {
    let Ok(table) = store.table(&wanted.table, None) else {
        let tables = store.tables();
        let names = tables.iter().map(|table| table.name());
        return Err(format!(
            "there is no table {:?}: {}",
            wanted.table,
            listed("table", names)
        ));
    };
    let schema = table.schema();
    let index = match wanted.index.as_deref() {
        None | Some("key") => None,
        Some(name) => match schema.index(name.as_bytes()) {
            Some(place) => Some(place),
            None => {
                let names = schema.indexes.iter().map(|index| &*index.name);
                let known = names.filter(|name| schema.index(name.as_bytes()).is_some());
                return Err(format!(
                    "the table {:?} has no index {name:?}: {}",
                    wanted.table,
                    listed("index", known)
                ));
            }
        },
    };
    let options = ScanOptions {
        rows_max: wanted
            .limit
            .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        ..ScanOptions::default()
    };
    let scan = table.scan(index, &[], &options);
    let scan = scan.map_err(|error| format!("table {:?}: {error}", wanted.table))?;
    Ok((table, scan))
}

/// What there is, for who has asked for something else.
fn listed<'n>(what: &str, names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.map(|name| format!("{name:?}")).collect();
    let others = names.len().saturating_sub(NAMES_SHOWN_MAX);
    let shown = names[..names.len() - others].join(", ");
    match (names.len(), others) {
        (0, _) => format!("there is no {what} at all"),
        (_, 0) => format!("there is {shown}"),
        _ => format!("there is {shown} and {others} more"),
    }
}

fn ending(end: &DumpEnd) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut bytes, end).expect("an end is JSON");
    bytes
}

/// The clock of tables: that of the workers.
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

/// Why rows did not come through.
#[derive(Debug)]
pub(crate) enum ReceiveError {
    /// There came no more, and no end.
    Source(io::Error),
    /// They can't be written where they belong.
    Sink(io::Error),
}

/// The other side: what comes `from` a dump goes `to` where its rows belong, frame by frame.
pub(crate) fn receive(from: &mut impl Read, to: &mut impl Write) -> Result<DumpEnd, ReceiveError> {
    let mut bytes = vec![0; FRAME_BYTES];
    loop {
        let mut length = [0; LENGTH_BYTES];
        from.read_exact(&mut length).map_err(ReceiveError::Source)?;
        let mut left = u32::from_le_bytes(length) as usize;
        if left == 0 {
            break;
        }
        while left > 0 {
            let part = left.min(FRAME_BYTES);
            let part = &mut bytes[..part];
            from.read_exact(part).map_err(ReceiveError::Source)?;
            to.write_all(part).map_err(ReceiveError::Sink)?;
            left -= part.len();
        }
    }
    to.flush().map_err(ReceiveError::Sink)?;
    let mut end = String::new();
    let whole = from.take(END_BYTES_MAX).read_to_string(&mut end);
    whole.map_err(ReceiveError::Source)?;
    serde_json::from_str(&end).map_err(|error| ReceiveError::Source(error.into()))
}

#[cfg(test)]
mod tests;
