//! Tests that a full disk is reported, that nothing is lost, and that writing continues once there is room. Some tests fill
//! a file system of their own, if the process may create one; the others set the system's limit on file sizes.

#[path = "../../../tests/skip.rs"]
mod skip;
mod support;

use std::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Model, Worker, options, published};
use veche_archive::{ArchiveRecord, Error, FsyncPolicy, Options};

const FOLDER: &str = "VECHE_ARCHIVE_FULL_FOLDER";

/// Appends until writing fails, makes room, and asserts that all records are stored.
fn run_full(folder: &Path, make_room: impl FnOnce()) {
    // The queue is small compared with the disk.
    let options = Options {
        queue_bytes_max: 2 << 20,
        ..options(FsyncPolicy::EveryCommit)
    };
    let (archive, _) = veche_archive::open(folder, &options).expect("an archive");
    let mut worker = Worker::new(&archive);
    let mut model = Model::default();
    let mut batch = 0;
    loop {
        let record = published("a", 1, batch + 1, vec![3; 50_000]);
        match worker.writer.append(vec![record.clone()]) {
            Ok(number) => {
                batch = number;
                model.apply(&record);
            }
            Err(_) if archive.stats().is_failing => break,
            Err(_) => thread::yield_now(),
        }
        assert!(batch < 4_000, "it is never full");
    }
    let stats = archive.stats();
    println!("full: {:?}", stats.last_error);
    assert!(stats.errors > 0 && stats.last_error.is_some());
    make_room();
    worker.wait(batch);
    let stats = archive.stats();
    assert!(
        !stats.is_failing && stats.queue_bytes == 0 && stats.last_error.is_some(),
        "{stats:?}"
    );
    archive.close().expect("closed");
    let (_archive, loaded) = veche_archive::open(folder, &options).expect("an archive");
    assert_eq!(loaded.warnings(), &[]);
    assert!(Model::of(loaded) == model);
}

/// Runs the test again on its own file system of the given size in MiB. Returns `false` if the system does not permit
/// this.
fn on_its_own_disk(mib: u32, test: &str) -> bool {
    let folder = support::Folder::new("tmpfs");
    fs::create_dir_all(folder.path()).expect("a folder");
    let mount = format!(
        "mount -t tmpfs -o size={mib}m tmpfs '{}'",
        folder.path().display()
    );
    let attempt = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount])
        .output();
    if !attempt.is_ok_and(|output| output.status.success()) {
        skip::skip("this system lets no process make a file system of its own");
        return false;
    }
    let shell = format!(
        "exec unshare --user --map-root-user --mount sh -c \"{mount} && exec \\\"\\$@\\\"\" sh \"$@\""
    );
    assert!(this_test_again(&shell, test, &folder));
    true
}

/// Fills the disk except for `but` bytes.
fn fill(path: &Path, but: u64) {
    let mut ballast = fs::File::create(path).expect("a file");
    while ballast.write_all(&[1; 4096]).is_ok() {}
    let length = ballast.metadata().expect("a file").len();
    ballast.set_len(length - but).expect("less");
}

fn this_test_again(shell: &str, test: &str, folder: &support::Folder) -> bool {
    let output = Command::new("sh")
        .args(["-c", shell, "sh"])
        .arg(env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(FOLDER, folder.path())
        .output()
        .expect("a shell");
    let told = String::from_utf8_lossy(&output.stdout);
    println!("{told}{}", String::from_utf8_lossy(&output.stderr));
    assert_ne!(output.status.code(), Some(101), "see above");
    assert!(!told.contains(" 0 passed;"), "there is no test {test}");
    output.status.success()
}

#[test]
fn a_full_disk_is_waited_for() {
    if let Some(folder) = env::var_os(FOLDER) {
        let folder = PathBuf::from(folder);
        let ballast = folder.join("ballast");
        fs::write(&ballast, vec![1; 40 << 20]).expect("room for the ballast");
        run_full(&folder.join("archive"), || {
            fs::remove_file(&ballast).expect("removed")
        });
        println!("recovered");
        return;
    }
    on_its_own_disk(56, "a_full_disk_is_waited_for");
}

#[test]
fn a_start_on_a_full_disk_waits_with_its_writes() {
    if let Some(folder) = env::var_os(FOLDER) {
        let folder = PathBuf::from(folder);
        let kept = folder.join("kept");
        let (archive, _) =
            veche_archive::open(&kept, &options(FsyncPolicy::EveryCommit)).expect("an archive");
        let mut worker = Worker::new(&archive);
        let batch = worker.append((1..=9).map(|at| published("a", 1, at, "x")).collect());
        worker.wait(batch);
        let killed = |boot: &str, name: &str| {
            let path = folder.join(name);
            fs::create_dir_all(&path).expect("a folder");
            for file in fs::read_dir(&kept)
                .expect("a folder")
                .map(|file| file.expect("one"))
            {
                fs::copy(file.path(), path.join(file.file_name())).expect("room");
            }
            fs::write(
                path.join("run"),
                format!("{:<63}\n", format!("{boot} later")),
            )
            .expect("room");
            path
        };
        let boot = veche_archive::boot_id().expect("Linux");
        let (same, other) = (killed(&boot, "same"), killed("another", "other"));
        let fresh = folder.join("fresh");
        fs::create_dir_all(&fresh).expect("a folder");
        let ballast = folder.join("ballast");
        fill(&ballast, 0);
        let open = |path: &Path| {
            veche_archive::open(path, &options(FsyncPolicy::EveryCommit)).expect("a start")
        };
        let started = [open(&same), open(&other), open(&fresh)];
        let mut epochs = Vec::new();
        let mut waiting = Vec::new();
        for (archive, loaded) in started {
            assert_eq!(archive.stats().publications, loaded.publications());
            epochs.extend(loaded.map(|channel| (channel.epoch, channel.top)));
            let mut worker = Worker::new(&archive);
            let record = published("b", 1, 1, vec![3; 200_000]);
            let batch = worker.append(vec![record]);
            waiting.push((archive, worker, batch));
        }
        assert_eq!((epochs.len(), epochs[0]), (2, (1, 9)));
        assert!(epochs[1].0 != 1 && epochs[1].1 == 9);
        for (archive, worker, _) in &waiting {
            while !archive.stats().is_failing {
                thread::yield_now();
            }
            assert_eq!(worker.durable, 0);
        }
        fs::remove_file(&ballast).expect("removed");
        for (archive, mut worker, batch) in waiting {
            worker.wait(batch);
            archive.close().expect("closed");
        }
        let renewed = epochs[1].0;
        for (path, channels) in [(same, 2), (other, 2), (fresh, 1)] {
            let (_archive, loaded) = open(&path);
            assert_eq!((loaded.warnings(), loaded.len()), (&[][..], channels));
            let model = Model::of(loaded);
            assert_eq!(model.top("b"), 1);
            if path.ends_with("other") {
                assert_eq!(model.0["a"].epoch, renewed);
            }
        }
        println!("started");
        return;
    }
    on_its_own_disk(16, "a_start_on_a_full_disk_waits_with_its_writes");
}

/// The log of a small history is limited in proportion to that history.
#[test]
fn a_small_history_fits_on_a_small_disk() {
    if let Some(folder) = env::var_os(FOLDER) {
        let path = PathBuf::from(folder).join("archive");
        let (archive, _) =
            veche_archive::open(&path, &options(FsyncPolicy::EveryCommit)).expect("an archive");
        let mut worker = Worker::new(&archive);
        for offset in 1..=4_000_u64 {
            let trimmed = ArchiveRecord::Trimmed {
                channel: "a".into(),
                below: offset.saturating_sub(500),
            };
            let record = published("a", 1, offset, vec![3; 2_000]);
            let batch = worker.append(vec![record, trimmed]);
            while worker.durable < batch && archive.stats().errors == 0 {
                worker.look();
            }
            let stats = archive.stats();
            assert_eq!(stats.errors, 0, "{offset}: {stats:?}");
        }
        archive.close().expect("closed");
        println!("it fits");
        return;
    }
    on_its_own_disk(8, "a_small_history_fits_on_a_small_disk");
}

/// The tables have free pages, and the log fills the disk.
#[test]
fn a_full_disk_has_the_log_moved_into_the_tables() {
    if let Some(folder) = env::var_os(FOLDER) {
        let folder = PathBuf::from(folder);
        let path = folder.join("archive");
        let (archive, _) =
            veche_archive::open(&path, &options(FsyncPolicy::EveryCommit)).expect("an archive");
        let mut worker = Worker::new(&archive);
        let mut append = |archive: &veche_archive::Archive, offset| {
            let trimmed = ArchiveRecord::Trimmed {
                channel: "a".into(),
                below: offset - 3,
            };
            let batch = worker.append(vec![published("a", 1, offset, vec![3; 50_000]), trimmed]);
            // The wait ends after a minute, even if the batch is never written.
            let mut checks = 0;
            while worker.durable < batch && checks < 60 && !archive.stats().is_failing {
                worker.look();
                checks += 1;
            }
            archive.stats()
        };
        let mut offset = 4;
        while archive.stats().checkpoints == 0 {
            append(&archive, offset);
            offset += 1;
        }
        fill(&folder.join("ballast"), 400 << 10);
        for offset in offset..offset + 100 {
            let stats = append(&archive, offset);
            assert_eq!((stats.errors, stats.is_failing), (0, false), "{stats:?}");
        }
        archive.close().expect("closed");
        println!("room was made");
        return;
    }
    on_its_own_disk(16, "a_full_disk_has_the_log_moved_into_the_tables");
}

#[test]
fn a_limit_on_files_is_waited_for() {
    if let Some(folder) = env::var_os(FOLDER) {
        run_full(Path::new(&folder), lift_limit);
        println!("recovered");
        return;
    }
    let folder = support::Folder::new("limited");
    // `ulimit -f` counts units of 512 bytes, so the limit is 10 MiB. A process that ignores the signal SIGXFSZ gets an error
    // instead.
    let shell = "trap '' XFSZ; ulimit -S -f 20480; exec \"$@\"";
    assert!(this_test_again(
        shell,
        "a_limit_on_files_is_waited_for",
        &folder
    ));
}

#[test]
fn closing_reports_unwritten_batches() {
    if let Some(folder) = env::var_os(FOLDER) {
        let (archive, _) = veche_archive::open(Path::new(&folder), &options(FsyncPolicy::Never))
            .expect("an archive");
        let mut worker = Worker::new(&archive);
        // Appends until the disk and the queue are full.
        for offset in 1.. {
            let records = vec![published("a", 1, offset, vec![3; 500_000])];
            if worker.writer.append(records).is_err() && archive.stats().is_failing {
                break;
            }
            thread::yield_now();
        }
        let error = archive.close().expect_err("no room");
        assert!(
            matches!(error, Error::Unwritten { batches: 1.., .. }),
            "{error}"
        );
        println!("told");
        return;
    }
    let folder = support::Folder::new("unwritten");
    let shell = "trap '' XFSZ; ulimit -S -f 20480; exec \"$@\"";
    assert!(this_test_again(
        shell,
        "closing_reports_unwritten_batches",
        &folder
    ));
}

/// A commit fails because the log reaches the limit on file sizes before a checkpoint is due.
#[test]
fn a_failed_commit_is_tried_again_after_a_pause_which_the_end_ends() {
    if let Some(folder) = env::var_os(FOLDER) {
        let patient = patient();
        let (archive, _) = veche_archive::open(Path::new(&folder), &patient).expect("an archive");
        let mut worker = Worker::new(&archive);
        let mut batch = 0;
        while !archive.stats().is_failing {
            let record = published("a", 1, batch + 1, vec![3; 50_000]);
            batch = worker.writer.append(vec![record]).unwrap_or(batch);
            assert!(batch < 4_000, "it is never full");
            thread::yield_now();
        }
        // Each appended batch wakes the thread that writes the log.
        for _ in 0..50 {
            let record = published("a", 1, batch + 1, "x");
            batch = worker.writer.append(vec![record]).expect("room for it");
            thread::sleep(Duration::from_millis(2));
        }
        let stats = archive.stats();
        assert_eq!((stats.errors, stats.is_failing), (1, true));
        lift_limit();
        archive.close().expect("written at last");
        let (_archive, loaded) =
            veche_archive::open(Path::new(&folder), &patient).expect("an archive");
        assert_eq!(loaded.publications(), batch);
        println!("kept all");
        return;
    }
    let folder = support::Folder::new("patient");
    // `ulimit -f` counts units of 512 bytes, so the limit is 2 MiB.
    let shell = "trap '' XFSZ; ulimit -S -f 4096; exec \"$@\"";
    assert!(this_test_again(
        shell,
        "a_failed_commit_is_tried_again_after_a_pause_which_the_end_ends",
        &folder
    ));
}

/// At the start, the archive can't record that it is open. It tries again after a pause or a commit.
#[test]
fn a_failed_start_is_tried_again_after_a_pause() {
    if let Some(folder) = env::var_os(FOLDER) {
        let (archive, _) = veche_archive::open(Path::new(&folder), &patient()).expect("a start");
        let mut worker = Worker::new(&archive);
        // Each empty batch wakes the thread that writes the log, but adds nothing that has to be written.
        for _ in 0..50 {
            let batch = worker.append(Vec::new());
            worker.wait(batch);
        }
        let stats = archive.stats();
        assert_eq!((stats.errors, stats.is_failing), (1, true), "{stats:?}");
        lift_limit();
        let batch = worker.append(vec![published("a", 1, 1, "x")]);
        worker.wait(batch);
        let stats = archive.stats();
        assert_eq!((stats.errors, stats.is_failing), (1, false), "{stats:?}");
        archive.close().expect("closed");
        println!("started");
        return;
    }
    let folder = support::Folder::new("late-start");
    let (archive, _) = veche_archive::open(folder.path(), &patient()).expect("an archive");
    archive.close().expect("closed");
    // With this limit no file may grow. The file `run` is removed, so that a new one would have to be written.
    fs::remove_file(folder.path().join("run")).expect("a file");
    let shell = "trap '' XFSZ; ulimit -S -f 0; exec \"$@\"";
    assert!(this_test_again(
        shell,
        "a_failed_start_is_tried_again_after_a_pause",
        &folder
    ));
}

/// Commits continue although the checkpoint fails.
#[test]
fn failed_upkeep_is_tried_again_after_a_pause() {
    if let Some(folder) = env::var_os(FOLDER) {
        let (archive, _) = veche_archive::open(Path::new(&folder), &patient()).expect("an archive");
        let mut worker = Worker::new(&archive);
        let mut batch = 0;
        // The database file has room for the first checkpoints, but not for all.
        while archive.stats().errors == 0 {
            let record = published("a", 1, batch + 1, vec![3; 200_000]);
            batch = worker.append(vec![record]);
            worker.wait(batch);
            assert!(batch < 100, "it is never full");
            // Leaves the writer thread time for maintenance between the batches.
            thread::sleep(Duration::from_millis(5));
        }
        let checkpoints = archive.stats().checkpoints;
        for _ in 0..20 {
            batch = worker.append(vec![published("a", 1, batch + 1, "x")]);
            worker.wait(batch);
        }
        let stats = archive.stats();
        assert!(checkpoints > 0);
        assert_eq!(
            (stats.errors, stats.checkpoints),
            (1, checkpoints),
            "{stats:?}"
        );
        assert!(!stats.is_failing, "the commits have worked");
        lift_limit();
        archive.close().expect("closed");
        println!("kept all");
        return;
    }
    let folder = support::Folder::new("upkeep");
    // `ulimit -f` counts units of 512 bytes, so the limit is 12 MiB.
    let shell = "trap '' XFSZ; ulimit -S -f 24576; exec \"$@\"";
    assert!(this_test_again(
        shell,
        "failed_upkeep_is_tried_again_after_a_pause",
        &folder
    ));
}

/// Returns options under which no retry happens during a test.
fn patient() -> Options {
    Options {
        retry: Duration::from_secs(3600),
        ..options(FsyncPolicy::EveryCommit)
    }
}

fn lift_limit() {
    let limit = getrlimit(Resource::Fsize);
    let lifted = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Fsize, lifted).expect("no limit");
}
