//! Compares the memory of the process with `limits.memory_limit`. While the limit is exceeded, new work is rejected.
//!
//! The memory of the process is its resident memory without file pages, as reported by the system
//! (`/proc/self/statm`), because this value determines when the kernel kills processes. A sum of
//! Veche's own data would miss memory held by allocators, scripts and libraries. The memory is read
//! at most fifty times a second, by whichever worker has its turn, which costs one read of an open
//! file. Without a limit nothing is read.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The interval of checks in milliseconds: allocations between two checks may exceed the limit.
const LOOK_INTERVAL_MS: u64 = 20;

/// The part of the limit, in thousandths, below which new work is accepted again.
const WELCOME_PERMILLE: u64 = 950;

/// The value of `memory_limit = "auto"`, in tenths of the memory available to the machine or the control group.
const AUTO_TENTHS: u64 = 9;

/// Starts the allocator's background thread, which returns unused pages even while no other thread allocates. Without
/// it an idle worker keeps the memory of a spike. Must be called after the process has entered its sandbox, so that the
/// thread inherits the sandbox.
///
/// # Errors
/// The thread could not be started.
#[cfg(feature = "jemalloc")]
pub(crate) fn release_when_idle() -> Result<(), String> {
    tikv_jemalloc_ctl::background_thread::write(true).map_err(|error| error.to_string())
}

/// Does nothing, because glibc's allocator has no thread that returns unused pages.
#[cfg(not(feature = "jemalloc"))]
#[expect(clippy::unnecessary_wraps, reason = "jemalloc's can fail")]
pub(crate) fn release_when_idle() -> Result<(), String> {
    Ok(())
}

/// The memory state of the process.
#[derive(Debug, Default)]
pub(crate) struct MemoryMonitor {
    /// The limit in bytes; 0 if there is none.
    limit: AtomicU64,
    /// The memory use in bytes when it was last read.
    used: AtomicU64,
    looked_ms: AtomicU64,
    is_short: AtomicBool,
    statm: Option<File>,
}

impl MemoryMonitor {
    /// Creates a monitor without a limit.
    pub(crate) fn new() -> Self {
        Self {
            statm: File::open("/proc/self/statm").ok(),
            ..Self::default()
        }
    }

    /// Sets the limit in bytes; 0 removes it.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Relaxed);
        self.looked_ms.store(0, Relaxed);
    }

    /// Returns the limit in bytes; 0 if there is none.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Returns the current resident memory in bytes.
    pub(crate) fn used(&self) -> u64 {
        let used = self.statm.as_ref().and_then(resident_bytes).unwrap_or(0);
        self.used.store(used, Relaxed);
        used
    }

    /// Returns whether new work should be rejected; takes a new reading if one is due.
    pub(crate) fn is_short(&self, now_ms: u64) -> bool {
        let limit = self.limit();
        if limit == 0 {
            return false;
        }
        let looked_ms = self.looked_ms.load(Relaxed);
        // If several workers find that the memory use has to be read, only one of them reads it.
        if (looked_ms == 0 || now_ms >= looked_ms + LOOK_INTERVAL_MS)
            && self
                .looked_ms
                .compare_exchange(looked_ms, now_ms.max(1), Relaxed, Relaxed)
                .is_ok()
        {
            self.update(self.used(), limit);
        }
        self.is_short.load(Relaxed)
    }

    /// Like [`is_short`](Self::is_short), but with a new reading at each call, since scripts may allocate much within
    /// an interval.
    pub(crate) fn is_short_now(&self) -> bool {
        let limit = self.limit();
        if limit > 0 {
            self.update(self.used(), limit);
        }
        limit > 0 && self.is_short.load(Relaxed)
    }

    fn update(&self, used: u64, limit: u64) {
        let was_short = self.is_short.load(Relaxed);
        let bound = match was_short {
            true => limit / 1000 * WELCOME_PERMILLE,
            false => limit,
        };
        let is_short = used >= bound;
        if is_short == was_short || self.is_short.swap(is_short, Relaxed) == is_short {
            return;
        }
        if is_short {
            tracing::warn!(
                used,
                limit,
                "memory_limit is reached, so no new work is accepted"
            );
        } else {
            tracing::info!(
                used,
                limit,
                "memory use is below memory_limit again, so new work is accepted"
            );
        }
    }
}

/// Returns the resident memory without file pages, in bytes: the second field of `statm` minus the third (`proc(5)`).
fn resident_bytes(statm: &File) -> Option<u64> {
    let mut text = [0; 128];
    let length = statm.read_at(&mut text, 0).ok()?;
    let mut fields = std::str::from_utf8(&text[..length])
        .ok()?
        .split_ascii_whitespace()
        .skip(1)
        .map_while(|field| field.parse::<u64>().ok());
    let (resident, shared) = (fields.next()?, fields.next()?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

/// Returns the value of `"auto"` in bytes; 0 if the available memory is unknown.
pub(crate) fn auto_limit() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = machine
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map(|kib| kib.saturating_mul(1024));
    let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group.lines().find_map(|line| line.strip_prefix("0::/"));
    let least = group
        .and_then(|group| group_limit(Path::new("/sys/fs/cgroup"), group))
        .into_iter()
        .chain(machine)
        .min();
    least.map_or(0, |bytes| bytes / 10 * AUTO_TENTHS)
}

/// Returns the lowest `memory.max` of a control group and its parents; `None` if none of them has a limit.
fn group_limit(root: &Path, group: &str) -> Option<u64> {
    let folder = root.join(group);
    folder
        .ancestors()
        .take_while(|folder| folder.starts_with(root))
        .filter_map(|folder| fs::read_to_string(folder.join("memory.max")).ok())
        .filter_map(|text| text.trim().parse::<u64>().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_work_is_welcome_again_only_some_way_below_the_limit() {
        let memory = MemoryMonitor::new();
        let is_exceeded = |used| {
            memory.update(used, 1_000_000);
            memory.is_short.load(Relaxed)
        };
        assert!(!is_exceeded(999_999));
        assert!(is_exceeded(1_000_000));
        assert!(is_exceeded(950_000));
        assert!(!is_exceeded(949_999));
        assert!(!is_exceeded(999_999));
    }

    #[test]
    fn used_memory_is_measured_and_limited() {
        let memory = MemoryMonitor::new();
        assert!(!memory.is_short(1_000));
        let before = memory.used();
        assert!(before > 1 << 20, "{before}");
        let kept = vec![7_u8; 64 << 20];
        assert!(memory.used() >= before + (32 << 20));
        memory.set_limit(1 << 20);
        assert!(memory.is_short(1_000));
        memory.set_limit(u64::MAX);
        assert!(!memory.is_short(1_001));
        drop(std::hint::black_box(kept));
    }

    #[test]
    fn a_group_has_the_least_of_its_own_and_its_parents() {
        let root = std::env::temp_dir().join(format!("veche-group-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/memory.max"), "1048576\n").unwrap();
        fs::write(root.join("a/b/memory.max"), "max\n").unwrap();
        assert_eq!(group_limit(&root, "a/b"), Some(1 << 20));
        assert_eq!(group_limit(&root, ""), None);
        fs::remove_dir_all(&root).unwrap();
        assert!(auto_limit() > 0);
    }
}
