//! Tests a single archive: refusals, counters, and reclaimed space.

mod support;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use support::{Folder, Model, Worker, open, options, published};
use veche_archive::{AppendError, ArchiveRecord, Error, FsyncPolicy, Options, Warning};

#[test]
fn a_new_archive_is_empty_and_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("new");
    let (archive, mut loaded) = open(&folder, FsyncPolicy::EveryCommit);
    assert_eq!((loaded.publications(), loaded.warnings().len()), (0, 0));
    assert!(loaded.next().is_none());
    let mode = fs::metadata(folder.path())
        .expect("a folder")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    archive.close().expect("closed");
}

/// The files are private even in an existing folder with files of an earlier version.
#[test]
fn its_files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let set = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    };
    let folder = Folder::new("modes");
    fs::create_dir_all(folder.path()).expect("a folder");
    set(folder.path(), 0o755);
    for round in 0..2 {
        let (archive, _) = open(&folder, FsyncPolicy::EveryCommit);
        let mut names = Vec::new();
        for entry in fs::read_dir(folder.path()).expect("a folder") {
            let entry = entry.expect("an entry");
            let mode = entry.metadata().expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{:?}, round {round}", entry.path());
            names.push(entry.file_name().into_string().expect("text"));
        }
        names.sort_unstable();
        assert_eq!(
            names,
            ["history.sqlite", "history.sqlite-wal", "lock", "run"]
        );
        // Copies the files as a killed process would leave them.
        let read = |name: &String| fs::read(folder.path().join(name)).expect("read");
        let copies: Vec<Vec<u8>> = names.iter().map(read).collect();
        archive.close().expect("closed");
        for (name, bytes) in names.iter().zip(copies) {
            fs::write(folder.path().join(name), bytes).expect("written");
            set(&folder.path().join(name), 0o644);
        }
    }
}

#[test]
fn links_in_place_of_files_are_not_followed() {
    for name in ["history.sqlite", "history.sqlite-wal", "lock", "run"] {
        let folder = Folder::new("planted");
        let (archive, _) = open(&folder, FsyncPolicy::EveryCommit);
        archive.close().expect("closed");
        let precious = folder.path().join("precious");
        fs::write(&precious, "").expect("written");
        let path = folder.path().join(name);
        let _ = fs::remove_file(&path);
        std::os::unix::fs::symlink(&precious, &path).expect("a link");
        let opened = veche_archive::open(folder.path(), &options(FsyncPolicy::EveryCommit));
        // With a link in place of `run`, the archive opens, but can't record that it is open. Links in place of the other
        // files are errors. No link's target is written to.
        match (name, opened) {
            ("run", Ok((archive, _))) => archive.close().expect("closed"),
            (_, Ok(_)) => panic!("{name}: it is followed"),
            (_, Err(error)) => {
                let message = error.to_string();
                assert!(message.contains("symbolic link"), "{name}: {message}");
            }
        }
        assert_eq!(fs::read(&precious).expect("there"), b"", "{name}");
    }
}

#[test]
fn every_kind_of_record_survives_a_restart() {
    let folder = Folder::new("records");
    let channel: Arc<str> = "chat:42".into();
    let steps: Vec<Vec<ArchiveRecord>> = vec![
        vec![ArchiveRecord::Opened {
            channel: Arc::clone(&channel),
            epoch: u64::MAX,
            at_ms: 77,
        }],
        vec![
            published("chat:42", u64::MAX, 1, "one"),
            published("chat:42", u64::MAX, 2, "two"),
        ],
        vec![ArchiveRecord::Trimmed {
            channel: Arc::clone(&channel),
            below: 2,
        }],
        vec![ArchiveRecord::Cleared {
            channel: Arc::clone(&channel),
        }],
        vec![published("chat:42", u64::MAX, 3, "three")],
        vec![ArchiveRecord::Opened {
            channel: Arc::clone(&channel),
            epoch: 3,
            at_ms: 78,
        }],
        vec![ArchiveRecord::Dropped { channel }],
    ];
    let mut model = Model::default();
    for records in steps {
        let (archive, loaded) = open(&folder, FsyncPolicy::EveryCommit);
        assert_eq!(Model::of(loaded), model);
        let mut worker = Worker::new(&archive);
        records.iter().for_each(|record| model.apply(record));
        let batch = worker.append(records);
        assert_eq!(batch, 1);
        worker.wait(batch);
        archive.close().expect("closed");
    }
    assert!(model.0.is_empty());
    let (_archive, loaded) = open(&folder, FsyncPolicy::EveryCommit);
    assert_eq!(loaded.len(), 0);
}

#[test]
fn dropping_the_archive_writes_pending_batches() {
    let folder = Folder::new("let-go");
    let (archive, _) = open(&folder, FsyncPolicy::Interval(Duration::from_secs(100)));
    let mut worker = Worker::new(&archive);
    for offset in 1..=100 {
        worker.append(vec![published("a", 1, offset, vec![7; 1000])]);
    }
    drop(archive);
    assert_eq!(
        worker.writer.take_durable().map(|durable| durable.batch),
        Some(100)
    );
    assert!(matches!(
        worker.writer.append(Vec::new()),
        Err(AppendError::Closed(_))
    ));
    let (_archive, loaded) = open(&folder, FsyncPolicy::Never);
    assert_eq!(loaded.publications(), 100);
}

#[test]
fn a_folder_belongs_to_one() {
    let folder = Folder::new("locked");
    let (archive, _) = open(&folder, FsyncPolicy::Never);
    let refused = veche_archive::open(folder.path(), &Options::default()).expect_err("it is taken");
    let pid = std::process::id();
    assert_eq!(
        refused.to_string(),
        format!(
            "{} belongs to another running process ({pid})",
            folder.path().display()
        )
    );
    archive.close().expect("closed");
    drop(open(&folder, FsyncPolicy::Never));
}

#[test]
fn other_formats_and_other_files_are_refused_and_left_alone() {
    let folder = Folder::new("formats");
    drop(open(&folder, FsyncPolicy::Never));
    let file = folder.path().join("history.sqlite");
    let good = fs::read(&file).expect("the file");

    // In the header of the file, bytes 60 to 63 are the user version, and bytes 68 to 71 the application id.
    let mut newer = good.clone();
    newer[60..64].copy_from_slice(&2_u32.to_be_bytes());
    let mut foreign = good.clone();
    foreign[68..72].copy_from_slice(b"else");
    let cases = [
        (
            newer,
            "has format 2, but this version of Veche supports only formats up to 1",
        ),
        (foreign, "is not an archive of channel history"),
        (b"no database, but words ".repeat(50), "is damaged"),
    ];
    for (bytes, words) in cases {
        fs::write(&file, &bytes).expect("written");
        let error = veche_archive::open(folder.path(), &Options::default()).expect_err("refused");
        assert!(error.to_string().contains(words), "{error:?}");
        assert!(
            fs::read(&file).expect("the file") == bytes,
            "{error}: the file has changed"
        );
    }
    let aside = veche_archive::set_aside(folder.path()).expect("moved");
    assert!(aside.join("history.sqlite").exists());
    let (_archive, loaded) = open(&folder, FsyncPolicy::Never);
    assert_eq!(loaded.len(), 0);
}

#[test]
fn a_full_queue_gives_the_batch_back_and_wakes_when_there_is_room() {
    let folder = Folder::new("full-queue");
    let few = Options {
        queue_bytes_max: 20_000,
        ..options(FsyncPolicy::EveryCommit)
    };
    let (archive, _) = veche_archive::open(folder.path(), &few).expect("an archive");
    let mut worker = Worker::new(&archive);
    let mut refusals = 0;
    let mut offset = 0;
    while refusals < 3 {
        offset += 1;
        let mut records = vec![published("a", 1, offset, vec![1; 8_000])];
        while let Err(refused) = worker.writer.append(records) {
            let AppendError::Full(back) = refused else {
                panic!("closed");
            };
            assert!(!worker.writer.has_room(8_000));
            assert!(archive.stats().queue_bytes <= 20_000);
            records = back;
            refusals += 1;
            std::thread::park_timeout(Duration::from_secs(1));
        }
    }
    // A batch larger than the queue is accepted when the queue is empty.
    worker.wait(offset);
    worker.append(vec![published("a", 1, offset + 1, vec![1; 100_000])]);
    archive.close().expect("closed");
    let (_archive, loaded) = open(&folder, FsyncPolicy::Never);
    assert_eq!(loaded.publications(), offset + 1);
}

#[test]
fn work_is_counted() {
    let folder = Folder::new("counted");
    let (archive, _) = open(&folder, FsyncPolicy::EveryCommit);
    let mut worker = Worker::new(&archive);
    let batch = worker.append(vec![
        published("a", 1, 1, "four"),
        published("a", 1, 1, "again"),
    ]);
    worker.wait(batch);
    let stats = archive.stats();
    assert_eq!((stats.records, stats.bytes, stats.ignored), (2, 9, 1));
    assert_eq!((stats.commits, stats.fsyncs, stats.errors), (1, 1, 0));
    assert_eq!(
        (stats.streams, stats.publications, stats.queue_bytes),
        (1, 1, 0)
    );
    assert_eq!((stats.is_failing, stats.last_error), (false, None));
}

/// Batches that arrive while the archive's thread is busy are written by a single commit, even if
/// they come from several writers.
#[test]
fn waiting_batches_share_a_commit() {
    let folder = Folder::new("group");
    let (archive, _) = open(&folder, FsyncPolicy::Never);
    let (sender, is_busy) = std::sync::mpsc::channel();
    let is_held = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&is_held);
    let mut first = archive.writer(move || {
        let _ = sender.send(());
        while held.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    });
    let record = |channel, offset| vec![published(channel, 1, offset, "x")];
    first.append(record("a", 1)).expect("room");
    is_busy.recv().expect("it is committed");
    let mut second = Worker::new(&archive);
    let mut last = 0;
    for offset in 2..=10 {
        first.append(record("a", offset)).expect("room");
        last = second.append(record("b", offset));
    }
    is_held.store(false, Ordering::Release);
    second.wait(last);
    let stats = archive.stats();
    assert_eq!((stats.commits, stats.records), (2, 19));
}

#[test]
fn the_disk_is_asked_once_in_an_interval() {
    let folder = Folder::new("interval");
    let (archive, _) = open(&folder, FsyncPolicy::Interval(Duration::from_millis(1)));
    let mut worker = Worker::new(&archive);
    let batch = worker.append(vec![published("a", 1, 1, "x")]);
    worker.wait(batch);
    // The batch is synced after the interval, although no further batch arrives.
    while archive.stats().fsyncs == 0 {
        std::thread::yield_now();
    }
    drop(archive);
    let (archive, _) = open(&folder, FsyncPolicy::Interval(Duration::from_secs(1000)));
    let mut worker = Worker::new(&archive);
    for offset in 2..20 {
        let batch = worker.append(vec![published("a", 1, offset, "x")]);
        worker.wait(batch);
    }
    assert_eq!(archive.stats().fsyncs, 0);
}

#[test]
fn writers_come_and_go() {
    let folder = Folder::new("writers");
    let (archive, _) = open(&folder, FsyncPolicy::Never);
    for round in 1..=50 {
        let mut worker = Worker::new(&archive);
        worker.append(vec![published("a", 1, round, "x")]);
        // The next writer appends to the same channel, so this batch has to be written first.
        worker.wait(1);
    }
    archive.close().expect("closed");
    let (_archive, loaded) = open(&folder, FsyncPolicy::Never);
    assert_eq!(loaded.publications(), 50);
}

#[test]
fn free_pages_are_released() {
    let folder = Folder::new("space");
    let (archive, _) = open(&folder, FsyncPolicy::Never);
    let mut worker = Worker::new(&archive);
    let payload = Bytes::from(vec![5; 10_000]);
    let mut last = 0;
    for offset in 1..=1_500_u64 {
        last = worker.append(vec![
            published("a", 1, offset, payload.clone()),
            published("b", 1, offset, payload.clone()),
        ]);
    }
    worker.wait(last);
    // Maintenance follows the last commit, so the test waits for it.
    while archive.stats().checkpoints == 0 || archive.stats().file_bytes < 30_000_000 {
        assert_eq!(archive.stats().errors, 0);
        std::thread::yield_now();
    }
    // The remaining rows are the latest ones. They are stored at the end of the file, which can shrink only after they are
    // moved.
    let channel: Arc<str> = "b".into();
    let last = worker.append(vec![
        ArchiveRecord::Trimmed {
            channel: "a".into(),
            below: 1_500,
        },
        ArchiveRecord::Trimmed {
            channel,
            below: 1_400,
        },
    ]);
    worker.wait(last);
    while archive.stats().file_bytes > 15_000_000 {
        assert_eq!(archive.stats().errors, 0);
        std::thread::yield_now();
    }
    archive.close().expect("closed");
    let bytes = fs::metadata(folder.path().join("history.sqlite"))
        .expect("the file")
        .len();
    assert!(bytes < 15_000_000, "{bytes}");
    let (_archive, loaded) = open(&folder, FsyncPolicy::Never);
    assert_eq!(loaded.publications(), 102);
}

#[test]
fn a_machine_crash_renews_epochs() {
    let write = |folder: &Folder, fsync, records: Vec<ArchiveRecord>| {
        let (archive, loaded) = open(folder, fsync);
        let warnings = loaded.warnings().to_vec();
        let found: Vec<_> = loaded.map(|one| (one.epoch, one.top)).collect();
        let mut worker = Worker::new(&archive);
        let batch = worker.append(records);
        worker.wait(batch);
        archive.close().expect("closed");
        (found, warnings)
    };
    for (fsync, is_renewed) in [
        (FsyncPolicy::Interval(Duration::from_secs(1)), true),
        (FsyncPolicy::Never, true),
        (FsyncPolicy::EveryCommit, false),
    ] {
        let folder = Folder::new("machine");
        let file = folder.path().join("run");
        write(&folder, fsync, vec![published("chat:1", 7, 1, "one")]);
        let text = fs::read_to_string(&file).expect("a file");
        assert_eq!(text.trim_end(), "ended");
        let policy = if is_renewed { "later" } else { "commit" };
        fs::write(&file, format!("another-boot {policy}\n")).expect("written");
        let (found, warnings) = write(&folder, fsync, Vec::new());
        let [(epoch, 1)] = found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(epoch != 7, is_renewed);
        assert_eq!(warnings.len(), usize::from(is_renewed));
        // The new run is recorded, so later starts renew no epochs.
        let next = vec![published("chat:1", epoch, 2, "two")];
        let (found, warnings) = write(&folder, fsync, next);
        assert_eq!((found, warnings), (vec![(epoch, 1)], vec![]));
        let (found, _) = write(&folder, fsync, Vec::new());
        assert_eq!(found, [(epoch, 2)]);
        // A kill of the process alone does not renew epochs if the machine keeps running.
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux");
        fs::write(&file, format!("{} later\n", boot.trim_end())).expect("written");
        let (found, warnings) = write(&folder, fsync, Vec::new());
        assert_eq!((found, warnings), (vec![(epoch, 2)], vec![]));
    }
}

/// An empty archive has lost nothing in a machine crash, so there is no warning.
#[test]
fn a_machine_crash_of_an_empty_archive_is_not_reported() {
    let folder = Folder::new("machine-empty");
    let (archive, _) = open(&folder, FsyncPolicy::Never);
    archive.close().expect("closed");
    fs::write(folder.path().join("run"), "another-boot later\n").expect("written");
    let (_archive, loaded) = open(&folder, FsyncPolicy::Never);
    assert_eq!((loaded.len(), loaded.warnings()), (0, &[][..]));
}

/// A start renews the epochs and then records its run. If it fails before the run is recorded, the next start renews
/// the epochs again, and has to choose different ones.
#[test]
fn epochs_that_are_renewed_twice_are_not_the_first_ones_again() {
    let folder = Folder::new("twice");
    let (archive, _) = open(&folder, FsyncPolicy::Never);
    Worker::new(&archive).append(vec![published("chat:1", 7, 1, "one")]);
    archive.close().expect("closed");
    let mut epochs = vec![7];
    for _ in 0..3 {
        fs::write(folder.path().join("run"), "another-boot later\n").expect("written");
        let (archive, loaded) = open(&folder, FsyncPolicy::Never);
        epochs.extend(loaded.map(|channel| channel.epoch));
        archive.close().expect("closed");
    }
    let count = epochs.len();
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!((count, epochs.len()), (4, 4), "an epoch came back");
}

#[test]
fn epochs_are_renewed_when_that_is_asked_for() {
    for fsync in [FsyncPolicy::EveryCommit, FsyncPolicy::Never] {
        let folder = Folder::new("renewed");
        let (archive, _) = open(&folder, fsync);
        let records = vec![published("a", 7, 1, "one"), published("b", 8, 1, "one")];
        Worker::new(&archive).append(records);
        let refused = veche_archive::renew_epochs(folder.path());
        assert!(matches!(refused, Err(Error::InUse { .. })));
        archive.close().expect("closed");
        veche_archive::renew_epochs(folder.path()).expect("written");
        let (archive, loaded) = open(&folder, fsync);
        assert_eq!(loaded.warnings(), [Warning::Renewed { channels: 2 }]);
        let renewed = Model::of(loaded);
        assert!(renewed.0["a"].epoch != 7 && renewed.0["b"].epoch != 8);
        assert_eq!(renewed.0["a"].publications.len(), 1);
        archive.close().expect("closed");
        let (_archive, loaded) = open(&folder, fsync);
        assert_eq!(loaded.warnings(), &[]);
        assert!(Model::of(loaded) == renewed, "once");
    }
}

#[test]
fn an_open_archive_names_the_start_of_the_machine_and_its_policy() {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux");
    for (fsync, policy, lost) in [
        (FsyncPolicy::Interval(Duration::from_secs(1)), "later", 2),
        (FsyncPolicy::Never, "later", 2),
        (FsyncPolicy::EveryCommit, "commit", 0),
    ] {
        let folder = Folder::new("marker");
        let (archive, _) = open(&folder, fsync);
        let marker = fs::read_to_string(folder.path().join("run")).expect("a marker");
        assert_eq!(marker.trim_end(), format!("{} {policy}", boot.trim_end()));
        let mut worker = Worker::new(&archive);
        let batch = worker.append(vec![
            published("chat:1", 7, 1, "one"),
            published("chat:2", 8, 1, "one"),
        ]);
        worker.wait(batch);
        // Simulates a crash of the machine with a copy of the files, whose `run` file names another boot than the current
        // one.
        let copy = folder.copy("marker-copy");
        let another = marker.replace(boot.trim_end(), "another-boot");
        fs::write(copy.path().join("run"), another).expect("written");
        let (_archive, loaded) = open(&copy, fsync);
        let expected = vec![Warning::Lost { channels: lost }];
        let warnings = loaded.warnings().to_vec();
        assert_eq!(warnings, if lost == 0 { vec![] } else { expected });
        let epochs = Model::of(loaded).0.into_values().map(|one| one.epoch);
        assert_eq!(epochs.eq([7, 8]), lost == 0);
    }
}

/// The log is replaced by a symbolic link to itself, so syncing fails.
#[test]
fn a_disk_that_can_not_be_asked_is_asked_again_after_a_pause() {
    let folder = Folder::new("unsynced");
    let patient = Options {
        fsync: FsyncPolicy::Interval(Duration::from_millis(1)),
        retry: Duration::from_secs(3600),
        ..Options::default()
    };
    let (archive, _) = veche_archive::open(folder.path(), &patient).expect("an archive");
    let log = folder.path().join("history.sqlite-wal");
    fs::remove_file(&log).expect("a log");
    std::os::unix::fs::symlink(&log, &log).expect("a link");
    let mut worker = Worker::new(&archive);
    let batch = worker.append(vec![published("a", 1, 1, "x")]);
    worker.wait(batch);
    while archive.stats().errors == 0 {
        assert_eq!(archive.stats().fsyncs, 0, "there is no way to the log");
        std::thread::yield_now();
    }
    // Each of these batches wakes the archive's thread but adds nothing that has to be synced.
    for _ in 0..50 {
        let batch = worker.append(Vec::new());
        worker.wait(batch);
    }
    let stats = archive.stats();
    assert_eq!((stats.errors, stats.fsyncs), (1, 0));
    assert!(stats.is_failing && worker.writer.is_failing());
    let message = stats.last_error.expect("an error");
    assert!(message.contains("history.sqlite-wal"), "{message}");
}

#[test]
fn a_panicking_writer_thread_wakes_idle_writers() {
    let folder = Folder::new("fault");
    let (archive, _) = open(&folder, FsyncPolicy::EveryCommit);
    let (sender, woken) = std::sync::mpsc::channel();
    let idle = archive.writer(move || {
        let _ = sender.send(());
    });
    let has_failed = AtomicBool::new(false);
    let mut faulty = archive.writer(move || {
        assert!(has_failed.swap(true, Ordering::Relaxed), "a fault of ours");
    });
    assert!(!idle.is_closed());
    let opened = ArchiveRecord::Opened {
        channel: "chat:42".into(),
        epoch: 1,
        at_ms: 0,
    };
    faulty.append(vec![opened]).expect("it is open");
    let patience = Duration::from_secs(60);
    woken.recv_timeout(patience).expect("it is woken");
    assert!(idle.is_closed());
    archive.close().expect("nothing that can be said of it");
}
