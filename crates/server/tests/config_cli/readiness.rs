//! Tests the problems that `veche check` finds although the configuration is valid: those that would prevent a start
//! or normal operation.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::geteuid;

use super::{Folder, GOOD};

/// Returns settings with the ids of a user and a group without files if the test runs as root. Otherwise returns an
/// empty string, so that the server runs as the test's own user.
fn user() -> &'static str {
    match geteuid().is_root() {
        true => "user = \"65534\"\ngroup = \"65534\"\n",
        false => "",
    }
}

#[test]
fn folders_and_secrets_out_of_reach_are_errors() {
    let folder = Folder::new("readiness");
    let closed = folder.0.join("closed");
    fs::create_dir(&closed).unwrap();
    let secret = folder.0.join("api.key");
    fs::write(&secret, "a-key-that-is-long-enough-for-it\n").unwrap();
    folder.write(&format!(
        "[server]\n{}{GOOD}[api]\nkeys = [{{ file = \"api.key\" }}]\nblocks = \"closed/blocks\"\n\
         [history]\npath = \"closed/history\"\n[[namespace]]\nname = \"chat\"\nhistory_size = 10\n",
        user()
    ));
    let set_mode = |folder_mode, secret_mode| {
        fs::set_permissions(&closed, Permissions::from_mode(folder_mode)).unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(secret_mode)).unwrap();
    };
    set_mode(0o777, 0o644);
    let (code, _, err) = folder.run(&["check"]);
    assert_eq!(code, 0, "{err}");

    set_mode(0o555, 0o600);
    let (code, out, err) = folder.run(&["check"]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    let count = |name: &str, what: &str| {
        let is_it = |line: &&str| line.contains(&format!(": {name}: ")) && line.contains(what);
        err.lines().filter(is_it).count()
    };
    assert_eq!(
        count("blocks", "can't create files in ./closed, which belongs"),
        1,
        "{err}"
    );
    assert_eq!(
        count("path", "can't create files in ./closed, which belongs"),
        1,
        "{err}"
    );
    assert!(err.contains("| path = \"closed/history\"\n"), "{err}");
    let unread = usize::from(geteuid().is_root());
    assert_eq!(
        count("keys", "server.user can't read ./api.key"),
        unread,
        "{err}"
    );
    set_mode(0o777, 0o644);
}

#[test]
fn folders_that_systemd_makes_may_be_missing() {
    let folder = Folder::new("systemd");
    let name = format!("veche-none-{}", std::process::id());
    let config = |log: &str| {
        format!(
            "[server]\ncontrol = \"/run/{name}/veche.sock\"\n[access_log]\nfile = \"{log}/access.log\"\n\
             {GOOD}[history]\npath = \"/var/lib/{name}/history\"\n[[namespace]]\nname = \"chat\"\nhistory_size = 10\n"
        )
    };
    folder.write(&config(&format!("/var/log/{name}")));
    let (code, _, err) = folder.run(&["check"]);
    assert_eq!(code, 0, "{err}");
    folder.write(&config(&format!("/srv/{name}")));
    let (code, _, err) = folder.run(&["check"]);
    assert_eq!(code, 1);
    assert!(
        err.contains(&format!("the folder /srv/{name} does not exist")),
        "{err}"
    );
}
