//! Tests that files named in the configuration can't be served, and the warnings about dangerous combinations of
//! settings.

use super::*;

/// Returns the only problem of a file with a valid listener and these lines, without the file's name.
fn problem(lines: &str) -> String {
    let report = checked(&format!("{LISTEN}{lines}")).expect_err(lines);
    let [problem] = &report.problems[..] else {
        panic!("{lines}\n{report}");
    };
    problem.to_string().replace("/etc/veche/veche.toml:", "")
}

fn served(root: &str) -> String {
    format!("[[route]]\npath = \"/*\"\nhandler = \"static\"\nroot = \"{root}\"\n")
}

#[test]
fn a_folder_that_is_served_holds_nothing_that_the_configuration_names() {
    const WHY: &str = "clients could read files that the configuration names, because";
    const OTHER: &str = "serve a folder without them";
    for root in [".", "/etc/veche", "/"] {
        let found = problem(&served(root));
        assert!(found.starts_with(&format!("6:8: root: {WHY} ")), "{found}");
        assert!(found.contains("veche.toml (this configuration)"), "{found}");
        assert!(found.ends_with(OTHER), "{found}");
    }
    for (lines, holds) in [
        (
            "[server]\nlog_file = \"/srv/www/log\"\n",
            "/srv/www/log (the log)",
        ),
        (
            "[access_log]\nfile = \"/srv/www/log\"\n",
            "/srv/www/log (the access log)",
        ),
        (
            "[server]\ncontrol = \"/srv/www/sock\"\n",
            "/srv/www/sock (the control socket)",
        ),
        (
            "[api]\nkeys = [{ file = \"/srv/www/key\" }]\n",
            "/srv/www/key (a key of the API)",
        ),
        (
            "[admin]\nkeys = [{ file = \"/srv/www/key\" }]\n",
            "/srv/www/key (a key of the admin page)",
        ),
        (
            "[api]\nblocks = \"/srv/www/blocks\"\n",
            "/srv/www/blocks (blocked users)",
        ),
        (
            "[jwt]\nsecret_file = \"/srv/www/key.pem\"\n",
            "/srv/www/key.pem (token keys)",
        ),
        (
            "[events]\nurl = \"http://127.0.0.1/\"\nsecrets = [{ file = \"/srv/www/key\" }]\n",
            "/srv/www/key (a secret)",
        ),
        (
            "[[namespace]]\nname = \"a\"\nhistory_size = 1\nhistory_ttl = \"1m\"\n\
             [history]\npath = \"/srv/www/history\"\n",
            "/srv/www/history (history)",
        ),
        (
            "[[namespace]]\nname = \"a\"\nhistory_size = 1\nhistory_ttl = \"1m\"\n[history]\npath = \"/srv\"\n",
            "/srv (history)",
        ),
        (
            "[server]\nsnapshots = \"/srv/www/tables\"\n",
            "/srv/www/tables (saved tables)",
        ),
        (
            "[[listen]]\naddress = \"127.0.0.1:8443\"\n\
             tls = { certificate = \"good.pem\", key = \"/srv/www/key.pem\" }\n",
            "/srv/www/key.pem (a certificate or its key)",
        ),
    ] {
        let lines = format!("{lines}{}", served("/srv/www"));
        let found = problem(&lines);
        let expected = format!("root: {WHY} /srv/www contains {holds}; {OTHER}");
        assert!(found.ends_with(&expected), "{found}\n{expected}");
    }
    // Links are followed: `/srv/link` leads to the folder of the script.
    let script = "[[app]]\nname = \"chat\"\nscript = \"chat/app.lua\"\n";
    let found = problem(&format!("{script}files = \"/srv/link\"\n"));
    assert_eq!(
        found,
        format!("6:9: files: {WHY} /srv/link contains /etc/veche/chat/app.lua (a script); {OTHER}")
    );
    let found = problem(&format!("{script}{}", served("/srv/link")));
    assert!(
        found.contains("/etc/veche/chat/app.lua (a script)"),
        "{found}"
    );
    // A served folder that does not contain the script is accepted.
    good(&format!(
        "{LISTEN}{script}files = \"public\"\n{}",
        served("public")
    ));
}

fn warnings(lines: &str) -> Vec<String> {
    let config = good(lines);
    config
        .warnings
        .iter()
        .map(|one| one.message.clone())
        .collect()
}

#[test]
fn dangerous_combinations_are_warned_of() {
    let route = |lines: &str| {
        format!(
            "{LISTEN}[[route]]\npath = \"/\"\nhandler = \"push\"\nchannels = [\"a\"]\n{lines}\n"
        )
    };
    let ambient = "origins: with \"*\" a page of any site can connect as its visitor";
    for (lines, is_warned) in [
        ("origins = [\"*\"]\nidentity = \"cookie:sid\"", true),
        (
            "origins = [\"https://a.example\", \"*\"]\nidentity = \"http:http://127.0.0.1/\"",
            true,
        ),
        ("origins = [\"*\"]\nidentity = \"pam:veche\"", true),
        (
            "origins = [\"*\"]\nidentity = \"jwt\"\n[jwt]\nsecret_file = \"key.pem\"\ntoken = [\"cookie:t\"]",
            true,
        ),
        (
            "origins = [\"*\"]\nidentity = \"jwt\"\n[jwt]\nsecret_file = \"key.pem\"",
            false,
        ),
        ("origins = [\"*\"]\nidentity = \"query:user\"", false),
        ("origins = [\"*\"]", false),
        (
            "origins = [\"https://a.example\"]\nidentity = \"cookie:sid\"",
            false,
        ),
        ("identity = \"cookie:sid\"", false),
    ] {
        let found_warnings = warnings(&route(lines));
        let found = found_warnings.iter().any(|one| one.starts_with(ambient));
        assert_eq!(found, is_warned, "{lines}: {found_warnings:?}");
    }
    let keys = |api: &str, admin: &str| {
        format!(
            "{LISTEN}[[listen]]\naddress = \"127.0.0.1:8081\"\nrole = \"internal\"\n\
             [api]\nkeys = [{api}]\n[admin]\nkeys = [{admin}]\n"
        )
    };
    let (one, other) = (
        "\"a-key-that-is-long-enough\"",
        "\"another-key-that-is-long\"",
    );
    assert_eq!(warnings(&keys(one, other)), [""; 0]);
    let found_warnings = warnings(&keys(&format!("{other}, {one}"), one));
    assert_eq!(found_warnings.len(), 1, "{found_warnings:?}");
    assert!(
        found_warnings[0].starts_with("keys: this key is also one of [api]"),
        "{found_warnings:?}"
    );
    // One of these keys is in a file of its own.
    let found_warnings = warnings(&keys("{ file = \"exposed.key\" }", other));
    assert_eq!(
        found_warnings,
        [
            "keys: every user of this machine can read /etc/veche/exposed.key; run chmod o= /etc/veche/exposed.key"
        ]
    );
    let found_warnings = warnings(&keys("", other));
    assert_eq!(
        found_warnings,
        [
            "[[listen]] with role \"internal\" and no [api] keys, so every program and user of this machine can push to all users"
        ]
    );
}
