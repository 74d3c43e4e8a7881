//! `veche dump`: writes the rows of a table to the descriptor of a client, on a separate thread.
//!
//! The descriptor arrives over the control socket and is passed to the server process, so that rows don't pass through
//! the supervisor. The output consists of frames: a little-endian length of four bytes and that many bytes of rows. A
//! length of 0 ends the rows and is followed by a [`DumpEnd`] as JSON, without which the rows are incomplete.
//!
//! The table is locked for one frame at a time, and never during a write. Only one frame is in memory.

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

/// The maximum number of concurrent dumps. It is low because a slow reader occupies a thread.
const DUMPS_MAX: usize = 4;
/// The size in bytes at which a frame ends: the row that reaches it is the frame's last row.
const FRAME_BYTES: usize = 64 << 10;
/// The maximum number of rows of a frame. They are read under the table's lock.
const FRAME_ROWS_MAX: usize = 1_000;
/// The number of bytes that encode the length of a frame.
const LENGTH_BYTES: usize = 4;
/// The maximum length of an encoded [`DumpEnd`] in bytes. A longer one is truncated, and thus invalid.
const END_BYTES_MAX: u64 = 64 << 10;
/// The priority (nice value) of the dumping threads, lower than that of other threads.
const NICE: i32 = 10;
/// The maximum number of names listed in an error.
const NAMES_SHOWN_MAX: usize = 20;

/// The message at the end of a dump.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DumpEnd {
    /// The number of rows written.
    pub(crate) rows: u64,
    /// The reason why rows are missing; `None` if the dump is complete.
    #[serde(default)]
    pub(crate) error: Option<String>,
}

/// The number of running dumps of the process.
#[derive(Debug, Default)]
pub(crate) struct Dumps(Arc<AtomicUsize>);

impl Dumps {
    /// Starts a dump and returns at once.
    pub(crate) fn begin(&self, store: &Arc<Store>, wanted: DumpRequest, to: OwnedFd) {
        let place = DumpSlot(Arc::clone(&self.0));
        if self.0.fetch_add(1, Ordering::Relaxed) >= DUMPS_MAX {
            let why = format!("{DUMPS_MAX} dumps are running: wait until one of them ends");
            return refuse(&to, why);
        }
        let store = Arc::clone(store);
        let name = wanted.table.clone();
        let spawned = thread::Builder::new()
            .name("dump".to_owned())
            .spawn(move || {
                let _place = place;
                // On Linux this sets the priority of the thread alone; errors are ignored.
                let _ = rustix::process::nice(NICE);
                write(&store, &wanted, File::from(to));
            });
        match spawned {
            Ok(_) => tracing::info!(table = name, "dumping a table"),
            // The descriptor was dropped with the failed thread, so the client sees the end of the connection.
            Err(error) => tracing::warn!(%error, "can't start a thread for a dump"),
        }
    }
}

/// One of [`DUMPS_MAX`] slots, released when the value is dropped.
struct DumpSlot(Arc<AtomicUsize>);

impl Drop for DumpSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sends an error without blocking.
fn refuse(to: &OwnedFd, why: String) {
    let end = ending(&DumpEnd {
        rows: 0,
        error: Some(why),
    });
    // If the error does not fit the socket's buffer, the client sees only the end of the connection.
    let _ = rustix::net::send(to, &end, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// The reason why a dump stops.
enum StopReason {
    /// The reader has disconnected.
    Gone,
    /// A row could not be read or written; the text goes into [`DumpEnd`].
    Error(String),
}

fn write(store: &Store, wanted: &DumpRequest, mut to: File) {
    let mut rows = 0;
    let error = match write_rows(store, wanted, &mut to, &mut rows) {
        Ok(()) => None,
        Err(StopReason::Gone) => return,
        Err(StopReason::Error(why)) => Some(why),
    };
    // An error means that the reader has disconnected. It is ignored, since all rows to be sent were sent before.
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
            // A frame is far below 4 GiB, so the cast loses nothing.
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

/// Returns the requested table, and the scan of its rows in the requested order.
fn find(store: &Store, wanted: &DumpRequest) -> Result<(Arc<Table>, Scan), String> {
    let Ok(table) = store.table(&wanted.table, None) else {
        let tables = store.tables();
        let names = tables.iter().map(|table| table.name());
        return Err(format!(
            "there is no table {:?}; {}",
            wanted.table,
            listed("tables", names)
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
                    "the table {:?} has no index {name:?}; {}",
                    wanted.table,
                    listed("indexes", known)
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

/// Lists the existing names for an error.
fn listed<'n>(what: &str, names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.map(|name| format!("{name:?}")).collect();
    match names.as_slice() {
        [] => format!("no {what} exist"),
        [name] => format!("existing {what}: {name}"),
        [first @ .., last] if names.len() <= NAMES_SHOWN_MAX => {
            format!("existing {what}: {} and {last}", first.join(", "))
        }
        _ => {
            let shown = names[..NAMES_SHOWN_MAX].join(", ");
            let others = names.len() - NAMES_SHOWN_MAX;
            format!("existing {what}: {shown} and {others} more")
        }
    }
}

fn ending(end: &DumpEnd) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut bytes, end)
        .expect("it must be possible to encode the last record as JSON");
    bytes
}

/// Returns the time of the tables' clock, which is also the workers' clock.
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

/// The reason why receiving rows failed.
#[derive(Debug)]
pub(crate) enum ReceiveError {
    /// The rows can't be read, or no valid `DumpEnd` follows them.
    Source(io::Error),
    /// The rows can't be written to the sink.
    Sink(io::Error),
}

/// The receiving side: copies rows from `from` to `to`, frame by frame.
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
