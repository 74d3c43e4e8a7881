//! Opens names under which another user has planted links, special files and hard links. Setting owners requires root.

#[path = "../../../tests/skip.rs"]
mod skip;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use veche_files::{FileFault, Owner, PinnedPath, WriteOptions, make_folder, read};

const NOBODY: u32 = 65_534;
const OTHER: u32 = 65_533;

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("veche-files-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a folder");
    path
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip::skip("files of another user take root");
    }
    is_root
}

fn give(path: &Path, uid: u32) {
    lchown(path, Some(uid), Some(uid)).expect("given");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").mode() & 0o7777
}

fn owner(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("there").uid()
}

fn fault(error: &std::io::Error) -> Option<&FileFault> {
    error.get_ref()?.downcast_ref()
}

#[track_caller]
fn assert_fault<T: std::fmt::Debug>(result: std::io::Result<T>, expected: &FileFault) {
    let error = result.expect_err("refused");
    assert_eq!(fault(&error), Some(expected), "{error}");
}

#[test]
fn a_new_file_is_new_once() {
    let folder = folder("new");
    let file = folder.join("file");
    let how = WriteOptions::new(0o640).append().readable();
    let mut opened = how.open(&file).expect("made");
    assert!(opened.is_new && mode(&file) == 0o640);
    opened.file.write_all(b"one").expect("written");
    let mut opened = how.open(&file).expect("there");
    assert!(!opened.is_new);
    opened.file.write_all(b"two").expect("written");
    let mut text = String::new();
    File::open(&file)
        .expect("there")
        .read_to_string(&mut text)
        .expect("text");
    assert_eq!(text, "onetwo");
    text.clear();
    read(&file)
        .expect("there")
        .read_to_string(&mut text)
        .expect("text");
    assert_eq!(text, "onetwo");
    let _ = fs::remove_dir_all(folder);
}

#[test]
fn a_private_file_loses_the_rights_of_others_and_another_keeps_them() {
    let folder = folder("private");
    let file = folder.join("file");
    fs::write(&file, "").expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).expect("set");
    WriteOptions::new(0o640).open(&file).expect("there");
    assert_eq!(mode(&file), 0o664);
    WriteOptions::private().open(&file).expect("there");
    assert_eq!(mode(&file), 0o600);
    let _ = fs::remove_dir_all(folder);
}

#[test]
fn nothing_but_a_regular_file_of_one_name_is_written() {
    let folder = folder("kinds");
    let precious = folder.join("precious");
    fs::write(&precious, "precious").expect("written");
    let file = folder.join("file");
    let how = WriteOptions::private().append();

    symlink(&precious, &file).expect("a link");
    assert_fault(how.open(&file), &FileFault::Symlink);
    fs::remove_file(&file).expect("removed");

    symlink(folder.join("nowhere"), &file).expect("a link");
    assert_fault(how.open(&file), &FileFault::Symlink);
    assert!(!folder.join("nowhere").exists());
    fs::remove_file(&file).expect("removed");

    fs::hard_link(&precious, &file).expect("a link");
    assert_fault(how.open(&file), &FileFault::HardLinked);
    fs::remove_file(&file).expect("removed");

    mknodat(CWD, &file, FileType::Fifo, Mode::from(0o600), 0).expect("a FIFO");
    assert_fault(how.open(&file), &FileFault::NotRegular("FIFO"));
    assert_fault(how.readable().open(&file), &FileFault::NotRegular("FIFO"));
    assert_fault(read(&file), &FileFault::NotRegular("FIFO"));
    // `replace` removes an existing entry and creates a new file, without writing to the entry.
    let draft = WriteOptions::private().replace(&file).expect("made");
    assert!(draft.metadata().expect("open").is_file());
    fs::remove_file(&file).expect("removed");

    symlink(&precious, &file).expect("a link");
    WriteOptions::private().replace(&file).expect("made");
    assert!(fs::symlink_metadata(&file).expect("there").is_file());
    fs::remove_file(&file).expect("removed");

    fs::create_dir(&file).expect("a folder");
    assert_fault(how.open(&file), &FileFault::NotRegular("folder"));
    assert_fault(read(&file), &FileFault::NotRegular("folder"));
    assert!(WriteOptions::private().replace(&file).is_err());
    fs::remove_dir(&file).expect("removed");

    let _socket = std::os::unix::net::UnixListener::bind(&file).expect("bound");
    assert_fault(how.open(&file), &FileFault::NotRegular("socket"));
    assert_eq!(fs::read_to_string(&precious).expect("text"), "precious");
    let _ = fs::remove_dir_all(folder);
}

#[test]
fn devices_are_neither_read_nor_written() {
    if !is_root() {
        return;
    }
    let folder = folder("devices");
    let file = folder.join("file");
    let mode = Mode::from(0o666);
    mknodat(CWD, &file, FileType::CharacterDevice, mode, makedev(1, 3)).expect("a device");
    let found = FileFault::NotRegular("device");
    assert_fault(WriteOptions::private().open(&file), &found);
    assert_fault(read(&file), &found);
    // A device is not read through a link, even if root owns the link.
    let link = folder.join("link");
    symlink(&file, &link).expect("a link");
    assert_fault(read(&link), &found);
    let _ = fs::remove_dir_all(folder);
}

#[test]
fn a_file_of_another_user_is_not_written() {
    if !is_root() {
        return;
    }
    let folder = folder("owners");
    let file = folder.join("file");
    fs::write(&file, "").expect("written");
    give(&file, NOBODY);
    let owned = |uid| WriteOptions::new(0o640).owned_by(Owner { uid, gid: uid });
    assert_fault(
        WriteOptions::new(0o640).open(&file),
        &FileFault::Owner(NOBODY),
    );
    assert_fault(owned(OTHER).open(&file), &FileFault::Owner(NOBODY));
    let opened = owned(NOBODY).open(&file).expect("its own");
    assert!(!opened.is_new);
    // Existing entries keep their owners.
    give(&file, 0);
    owned(NOBODY).open(&file).expect("of root");
    assert_eq!(owner(&file), 0);
    fs::remove_file(&file).expect("removed");
    assert!(owned(NOBODY).open(&file).expect("made").is_new);
    assert_eq!((owner(&file), mode(&file)), (NOBODY, 0o640));
    let _ = fs::remove_dir_all(folder);
}

#[test]
fn links_among_folders_are_roots_or_lead_to_their_owners() {
    if !is_root() {
        return;
    }
    let folder = folder("links");
    for (name, uid) in [("trusted", 0), ("nobody", NOBODY), ("other", OTHER)] {
        fs::create_dir(folder.join(name)).expect("a folder");
        fs::write(folder.join(name).join("file"), name).expect("written");
        give(&folder.join(name), uid);
        give(&folder.join(name).join("file"), uid);
    }
    let link = folder.join("link");
    let file = link.join("file");
    let how = WriteOptions::new(0o640).owned_by(Owner {
        uid: NOBODY,
        gid: NOBODY,
    });
    for (target, link_owner, is_written, is_read) in [
        ("trusted", 0, true, true),
        ("nobody", 0, true, true),
        ("nobody", NOBODY, true, true),
        ("trusted", NOBODY, false, false),
        ("other", NOBODY, false, false),
        ("nobody", OTHER, false, false),
    ] {
        for to in [
            PathBuf::from(target),
            folder.join("trusted/..").join(target),
        ] {
            let case = format!("{to:?} by a link of {link_owner}");
            symlink(&to, &link).expect("a link");
            give(&link, link_owner);
            let found = FileFault::UntrustedLink {
                name: "link".to_owned(),
                owner: link_owner,
            };
            for (opened, is_allowed) in [
                (how.open(&file).map(drop), is_written),
                (PinnedPath::open(&file).map(drop), is_written),
                (read(&file).map(drop), is_read),
            ] {
                match is_allowed {
                    true => opened.expect(&case),
                    false => assert_fault(opened, &found),
                }
            }
            fs::remove_file(&link).expect("removed");
        }
    }
    // A link as the path's final component is followed only for reading.
    let last = folder.join("nobody/last");
    symlink("../trusted/file", &last).expect("a link");
    read(&last).expect("a link of root's");
    give(&last, NOBODY);
    let found = FileFault::UntrustedLink {
        name: "last".to_owned(),
        owner: NOBODY,
    };
    assert_fault(read(&last), &found);
    fs::remove_file(&last).expect("removed");
    symlink("last", &last).expect("a link");
    assert!(read(&last).is_err(), "it leads in circles");
    fs::remove_file(&last).expect("removed");
    symlink("/", &last).expect("a link");
    assert_fault(read(&last), &FileFault::NotRegular("folder"));
    let _ = fs::remove_dir_all(folder);
}

#[test]
fn folders_are_made_for_their_owner_and_old_ones_stay() {
    let above = folder("folders");
    let path = above.join("one/two");
    make_folder(&path, None).expect("made");
    assert_eq!((mode(&above.join("one")), mode(&path)), (0o700, 0o700));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    make_folder(&path, None).expect("there");
    assert_eq!(mode(&path), 0o755);
    assert!(make_folder(&above.join("three/four/five"), None).is_err());
    if is_root() {
        let owner_of = Owner {
            uid: NOBODY,
            gid: NOBODY,
        };
        make_folder(&path, Some(owner_of)).expect("there");
        assert_eq!(owner(&path), 0);
        make_folder(&above.join("six/seven"), Some(owner_of)).expect("made");
        assert_eq!(owner(&above.join("six")), NOBODY);
        assert_eq!(owner(&above.join("six/seven")), NOBODY);
        chown(above.join("six"), Some(NOBODY), None).expect("given");
        symlink(&path, above.join("six/eight")).expect("a link");
        give(&above.join("six/eight"), NOBODY);
        assert!(make_folder(&above.join("six/eight/nine"), Some(owner_of)).is_err());
        assert!(!path.join("nine").exists());
    }
    let _ = fs::remove_dir_all(above);
}
