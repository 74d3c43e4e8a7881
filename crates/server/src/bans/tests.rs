//! Tests of bans, their expiry and their file.

use super::*;

fn user(user: &str, until_s: ExpiryTime) -> Ban {
    let user = user.to_owned();
    Ban::User { user, until_s }
}

fn issued<'a>(user: &'a str, id: &'a str, at_s: Option<u64>) -> IssuedToken<'a> {
    IssuedToken {
        user: Some(user),
        id: Some(id),
        issued_at_s: at_s,
    }
}

#[test]
fn bans_last_until_expiry_or_replacement() {
    let blocks = Bans::default();
    assert!(!blocks.has_user("ann", 1));
    for block in [user("ann", None), user("bob", Some(10))] {
        blocks.add(&block, 1).expect("room");
    }
    assert!(blocks.has_user("ann", 9) && blocks.has_user("bob", 9));
    assert!(blocks.has_user("ann", 10) && !blocks.has_user("bob", 10));
    let user = "ann".to_owned();
    blocks.add(&Ban::UserAllowed { user }, 2).expect("room");
    assert!(!blocks.has_user("ann", 3));

    let id = "t".to_owned();
    let until_s = Some(10);
    blocks.add(&Ban::Token { id, until_s }, 1).expect("room");
    assert!(blocks.has_token(&issued("bob", "t", Some(9)), 9));
    assert!(!blocks.has_token(&issued("bob", "t", Some(9)), 10));
    let block = Ban::TokensOf {
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
    let first = Bans::open(Some(&path)).expect("opened");
    for block in [
        user("ann", None),
        user("bob", Some(10)),
        user("eve", None),
        Ban::UserAllowed {
            user: "eve".to_owned(),
        },
        Ban::TokensOf {
            user: "кот\n".to_owned(),
            issued_before_s: 5,
            until_s: None,
        },
    ] {
        first.add(&block, 1).expect("written");
    }
    // The last line is truncated: its ban was never acknowledged.
    let mut text = fs::read(&path).expect("a file");
    text.extend_from_slice(&"{\"block\":\"к".as_bytes()[..11]);
    fs::write(&path, &text).expect("written");

    let second = Bans::open(Some(&path)).expect("opened");
    assert!(second.has_user("ann", 10));
    assert!(second.has_user("bob", 9) && !second.has_user("bob", 10));
    assert!(!second.has_user("eve", 10));
    assert!(second.has_token(&issued("кот\n", "", Some(4)), 10));
    // Opening the file removes no expired line, because the clock may be ahead at a start.
    let lines = fs::read(&path).expect("a file");
    assert_eq!(lines, text);

    // The previous process may continue for a while: each of the two processes sees the other's bans.
    first.add(&user("dan", None), 11).expect("written");
    assert!(!second.has_user("dan", 11));
    second.refresh(11).expect("a file").1.expect("read");
    assert!(second.has_user("dan", 11) && second.has_user("ann", 11));
    let user_no_more = Ban::UserAllowed {
        user: "ann".to_owned(),
    };
    second.add(&user_no_more, 11).expect("written");
    first.refresh(11).expect("a file").1.expect("read");
    assert!(!first.has_user("ann", 11) && first.has_user("dan", 11));
    second.add(&user("ann", None), 11).expect("written");

    // An incomplete line of a killed process does not become part of the next line.
    let mut text = fs::read(&path).expect("a file");
    text.extend_from_slice(b"{\"block\":\"half");
    fs::write(&path, &text).expect("written");
    second.add(&user("fay", None), 11).expect("written");
    let third = Bans::open(Some(&path)).expect("opened");
    for name in ["dan", "ann", "fay"] {
        assert!(third.has_user(name, 12), "{name}");
    }

    fs::write(&path, "nonsense\n{\"block\":\"ann\"}\n").expect("written");
    let error = Bans::open(Some(&path)).expect_err("bad");
    assert!(error.contains("line 1 is not a valid ban entry"), "{error}");
    let _ = fs::remove_dir_all(folder);
}

#[test]
fn a_hole_left_by_a_power_cut_does_not_prevent_the_start() {
    let folder = std::env::temp_dir().join(format!("veche-blocks-hole-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("blocks");
    let line = |user: &str| format!("{}\n", json!({"block": user, "until": null}));
    let (ann, bob) = (line("ann"), line("bob"));
    let hole = "\0".repeat(4096);
    fs::write(&path, format!("{ann}{}{hole}{}{bob}", &ann[..9], &ann[9..])).expect("written");
    for _ in 0..2 {
        let blocks = Bans::open(Some(&path)).expect("it opens");
        assert!(blocks.has_user("ann", 0) && blocks.has_user("bob", 0));
    }
    let text = fs::read_to_string(&path).expect("text");
    assert_eq!(text.lines().count(), 2, "{text}");
    let _ = fs::remove_dir_all(folder);
}

#[test]
fn its_files_are_private_and_of_their_own() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let folder = std::env::temp_dir().join(format!("veche-blocks-modes-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (path, other) = (folder.join("blocks"), folder.join("other"));
    fs::write(&other, "precious").expect("written");
    for name in ["blocks", "blocks.lock"] {
        fs::write(folder.join(name), "").expect("written");
        let mode = fs::Permissions::from_mode(0o666);
        fs::set_permissions(folder.join(name), mode).expect("set");
    }
    symlink(&other, folder.join("blocks.new")).expect("a link");
    let blocks = Bans::open(Some(&path)).expect("opened");
    blocks.add(&user("ann", None), 1).expect("written");
    for name in ["blocks", "blocks.lock"] {
        let mode = fs::metadata(folder.join(name))
            .expect("there")
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o600, "{name}");
    }
    fs::rename(&path, folder.join("old")).expect("moved");
    symlink(&other, &path).expect("a link");
    let error = blocks.add(&user("bob", None), 1).expect_err("a link");
    assert!(format!("{error:?}").contains("symbolic link"), "{error:?}");
    fs::remove_file(folder.join("blocks.lock")).expect("removed");
    symlink(&other, folder.join("blocks.lock")).expect("a link");
    assert!(Bans::open(Some(&path)).is_err());
    assert_eq!(fs::read_to_string(&other).expect("text"), "precious");
    let _ = fs::remove_dir_all(folder);
}

#[test]
fn the_file_stays_as_small_as_what_holds() {
    let folder = std::env::temp_dir().join(format!("veche-blocks-small-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("blocks");
    let blocks = Bans::open(Some(&path)).expect("opened");
    for number in 0..OVER_MAX + 10 {
        let until_s = Some(2);
        blocks
            .add(&user(&number.to_string(), until_s), 1)
            .expect("written");
        blocks.add(&user("ann", None), 1).expect("written");
    }
    let lines = || fs::read_to_string(&path).expect("a file").lines().count();
    blocks.refresh(3).expect("a file").1.expect("written");
    assert!(lines() > OVER_MAX, "soon after the start");
    blocks.file.lock().as_mut().expect("a file").opened -= SETTLED;
    blocks.refresh(3).expect("a file").1.expect("written");
    assert!(lines() < OVER_MAX, "{}", lines());
    assert!(blocks.has_user("ann", 3) && !blocks.has_user("7", 3));
    let _ = fs::remove_dir_all(folder);
}

#[test]
fn there_is_an_end_to_them() {
    let blocks = Bans::default();
    for number in 0..BLOCKS_MAX {
        let until_s = Some(if number == 0 { 5 } else { 50 });
        blocks
            .add(&user(&number.to_string(), until_s), 1)
            .expect("room");
    }
    let more = user("one more", None);
    assert_eq!(blocks.add(&more, 1), Err(BanError::TooMany));
    assert_eq!(blocks.add(&user("7", None), 1), Ok(()));
    assert_eq!(blocks.add(&more, 5), Ok(()), "one is over");
}
