//! Tests the exact error messages for invalid configuration files.

use super::{LISTEN, checked};

/// Asserts that the check of `text` reports exactly the lines in `expected`, which lack the file's name.
pub(super) fn says(text: &str, expected: &[&str]) {
    let report = checked(text)
        .map(|config| config.warnings)
        .expect_err(text)
        .to_string();
    let found: Vec<&str> = report
        .lines()
        .map(|line| line.strip_prefix("/etc/veche/veche.toml:").unwrap_or(line))
        .collect();
    assert_eq!(found, expected, "\n{text}");
}

/// Like [`says`], but inserts a valid listener as lines 1 and 2 before `text`.
pub(super) fn says_after_listen(text: &str, expected: &[&str]) {
    says(&format!("{LISTEN}{text}"), expected);
}

#[test]
fn everything_at_once() {
    says(
        r#"
worker = 3
[servr]
[server]
workers = 0
log = "inf"
[[listen]]
adress = "127.0.0.1:8080"
role = "pubic"
[[route]]
path = "app"
handler = "psuh"
[limits]
ping_interval = 25
outbox_bytes = "64Kb"
header_timeout = "off"
timeout = "1s"
"#,
        &[
            "2:1: unknown directive \"worker\" outside of any section",
            "3:2: unknown section \"servr\"; did you mean \"server\"?",
            "5:11: workers: expected a whole number from 1 to 256 or \"auto\", found 0",
            "6:7: log: expected \"off\", \"error\", \"warn\", \"info\", \"debug\" or \"trace\", found \"inf\"; did you mean \"info\"?",
            "8:1: unknown directive \"adress\" in [[listen]]; did you mean \"address\"?",
            "9:8: role: expected \"public\", \"internal\" or \"push\", found \"pubic\"; did you mean \"public\"?",
            "11:8: path: a path must start with \"/\", found \"app\"",
            "12:11: handler: expected \"push\", \"echo\", \"static\", \"api\", \"lua\", \"app\" or \"centrifuge\", found \"psuh\"; did you mean \"push\"?",
            "14:17: ping_interval: expected a duration from \"1ms\" to \"1d\" or \"off\", found 25; write \"25s\"",
            "15:16: outbox_bytes: expected a size from \"1KiB\" to \"4GiB\", found \"64Kb\"",
            "16:18: header_timeout: expected a duration from \"1ms\" to \"1h\", found \"off\"",
            "17:1: unknown directive \"timeout\" in [limits]; it belongs under [[database]] or [identity_hook] or [hooks] or [pam] or [events]",
        ],
    );
}

#[test]
fn sections() {
    says(
        "",
        &[
            " no [[listen]], so no client could connect; add [[listen]] with address = \"127.0.0.1:8080\"",
        ],
    );
    says(
        "workers = 2\n",
        &["1:1: \"workers\" is outside of any section; it belongs under [server] or [[app]]"],
    );
    says(
        "[listen]\naddress = \"127.0.0.1:1\"\n",
        &["1:2: expected [[listen]], found [listen]; this section can be repeated"],
    );
    says_after_listen(
        "[[server]]\nworkers = 2\n",
        &["3:3: expected [server], found [[server]]; this section can't be repeated"],
    );
    says(
        "[listen]\n[listen]\n",
        &["2:2: not TOML: duplicate key; write [[listen]]"],
    );
    says_after_listen(
        "[server]\npath = \"/\"\n",
        &["4:1: unknown directive \"path\" in [server]; it belongs under [[route]] or [history]"],
    );
    says_after_listen(
        "[auth]\n",
        &[
            "3:2: unknown section \"auth\"; the sections are [server], [access_log], [[listen]], [acme], [[app]], [[service]], [[database]], [[route]], [[namespace]], [history], [engine], [node], [limits], [jwt], [subscription_jwt], [identity_hook], [hooks], [pam], [events], [api], [admin]",
        ],
    );
    says_after_listen(
        "[hook]\ntimeout = \"1s\"\n",
        &["3:2: unknown section \"hook\"; it was renamed to [identity_hook]"],
    );
    says(
        "server = 3\n",
        &["1:1: expected [server], found server = 3; this section can't be repeated"],
    );
}

#[test]
fn logs() {
    says_after_listen(
        "[server]\nlog_rotate = \"1KiB\"\n[access_log]\nfile = \"a.log\"\nformat = \"$remote_adr\"\nsample = 0\nkeep = 0\n",
        &[
            "4:14: log_rotate: expected a size from \"4KiB\" to \"1024GiB\", found \"1KiB\"",
            "7:10: format: unknown field $remote_adr; did you mean \"$remote_addr\"?",
            "8:10: sample: expected a number above 0 and at most 1, found 0",
            "9:8: keep: expected a whole number from 1 to 1000, found 0",
        ],
    );
}

#[test]
fn secrets_and_users() {
    let secrets = "keys: expected a list of strings, { file = \"FILE\" } and { env = \"NAME\" }, found something else";
    for keys in [
        "[{ fil = \"a\" }]",
        "[{ file = \"a\", env = \"B\" }]",
        "[{ file = \"\" }]",
        "[3]",
        "\"a\"",
    ] {
        says_after_listen(
            &format!("[api]\nkeys = {keys}\n"),
            &[&format!("4:8: {secrets}")],
        );
    }
    says_after_listen(
        "[api]\nkeys = [{ file = \"gone\" }, { env = \"GONE\" }]\n[server]\ngroup = \"www\"\n",
        &[
            "4:9: keys: /etc/veche/gone: there is no such file",
            "4:28: keys: the environment has no GONE",
            "6:1: group: requires user, which is not set",
        ],
    );
}

#[test]
fn syntax() {
    says_after_listen(
        "[server]\nworkers = 2\nworkers = 3\n",
        &["5:1: not TOML: duplicate key: \"workers\" was set before"],
    );
    says_after_listen(
        "[limits]\nheaders_max = 1.5.5\nheader_timeout = \"x\"\n",
        &[
            "4:18: not TOML: invalid float, expected nothing",
            "5:18: header_timeout: expected a duration from \"1ms\" to \"1h\", found \"x\"",
        ],
    );
    says_after_listen(
        "[server]\nlog = info\n",
        &["4:7: not TOML: strings need quotes: \"info\""],
    );
}

#[test]
fn values() {
    let limits =
        |text: &str, expected: &str| says_after_listen(&format!("[limits]\n{text}\n"), &[expected]);
    limits(
        "connections = -1",
        "4:15: connections: expected a whole number from 1 to 100000000 or \"auto\", found -1",
    );
    limits(
        "connections = 1.5",
        "4:15: connections: expected a whole number from 1 to 100000000 or \"auto\", found 1.5",
    );
    limits(
        "connections = 99999999999999999999999",
        "4:15: connections: expected a whole number from 1 to 100000000 or \"auto\", found 99999999999999999999999",
    );
    limits(
        "connections = true",
        "4:15: connections: expected a whole number from 1 to 100000000 or \"auto\", found true",
    );
    limits(
        "connections = []",
        "4:15: connections: expected a whole number from 1 to 100000000 or \"auto\", found an empty list",
    );
    limits(
        "connections = { a = 1 }",
        "4:15: connections: expected a whole number from 1 to 100000000 or \"auto\", found a table",
    );
    limits(
        "write_timeout = \"2h\"",
        "4:17: write_timeout: expected a duration from \"1ms\" to \"1h\", found \"2h\"",
    );
    limits(
        "headers_max = 2000",
        "4:15: headers_max: expected a whole number from 8 to 64, found 2000",
    );
    limits(
        "outbox_bytes = \"\"",
        "4:16: outbox_bytes: expected a size from \"1KiB\" to \"4GiB\", found an empty string",
    );
    limits(
        "drain_time = 1979-05-27",
        "4:14: drain_time: expected a duration from \"0\" to \"1d\", found a date or time",
    );
}

#[test]
fn listeners() {
    let address = |found: &str, hint: &str| {
        says(
            &format!("[[listen]]\naddress = {found:?}\n"),
            &[&format!(
                "2:11: address: expected an IP address and a port such as \"127.0.0.1:8080\", found {found:?}{hint}"
            )],
        );
    };
    address("localhost:80", "; did you mean \"127.0.0.1:80\"?");
    address(":80", "; did you mean \"0.0.0.0:80\"?");
    address("*:80", "; did you mean \"0.0.0.0:80\"?");
    address("8080", "; did you mean \"127.0.0.1:8080\"?");
    address("::1", "; did you mean \"[::1]:8080\"?");
    address("127.0.0.1:99999", "");
    address("example.com:80", "");
    says_after_listen(
        "[[listen]]\naddress = \"127.0.0.1:8080\"\n",
        &["4:11: address: another [[listen]] already uses 127.0.0.1:8080"],
    );
    says_after_listen(
        "name = \"a\"\n[[listen]]\naddress = \"127.0.0.1:1\"\nname = \"a\"\n",
        &["6:8: name: another [[listen]] is already called \"a\""],
    );
    says_after_listen(
        "name = \"push\"\n",
        &["3:8: name: \"push\" is the name of a role; choose another"],
    );
    says_after_listen(
        "name = \"a b\"\n",
        &["3:8: name: expected letters, digits, \"-\" and \"_\", found \"a b\""],
    );
    says_after_listen(
        "[[listen]]\naddress = \"0.0.0.0:81\"\nrole = \"internal\"\n",
        &[
            "4:11: address: 0.0.0.0:81 is not loopback, and without [api] keys every client that reaches it could push to every user; set keys or listen on 127.0.0.1",
        ],
    );
    assert!(
        checked(&format!(
            "{LISTEN}[[listen]]\naddress = \"[::ffff:127.0.0.1]:81\"\nrole = \"internal\"\n"
        ))
        .is_ok()
    );
    assert!(
        checked("[[listen]]\naddress = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n")
            .is_ok()
    );
}

#[test]
fn routes() {
    let echo = |rest: &str, expected: &[&str]| {
        says_after_listen(
            &format!("[[route]]\nhandler = \"echo\"\n{rest}\n"),
            expected,
        );
    };
    echo("", &["3:1: [[route]] lacks \"path\", which is required"]);
    for (path, why) in [
        ("a", "a path must start with \"/\""),
        ("/a//b", "the path has two slashes in a row"),
        (
            "/a*",
            "\"*\" may only be the whole last segment, as in \"/app/*\"",
        ),
        (
            "/*/a",
            "\"*\" may only be the whole last segment, as in \"/app/*\"",
        ),
        (
            "/:",
            "a parameter must consist of \":\" and letters, digits or \"_\", not \":\"",
        ),
        ("/:a/:a", "two parameters have the name \":a\""),
        ("/a<b", "'<' can't be in a path"),
        ("/a?b", "'?' can't be in a path"),
        (
            "/a/../b",
            "the segment \"..\" would never match: clients resolve it before they send a request",
        ),
    ] {
        echo(
            &format!("path = {path:?}"),
            &[&format!("5:8: path: {why}, found {path:?}")],
        );
    }
    echo(
        "path = \"/\"\nidentity = \"none\"",
        &[
            "6:1: identity: has no effect with handler \"echo\", only with \"push\", \"lua\", \"app\", \"centrifuge\"",
        ],
    );
    echo(
        "path = \"/\"\nroot = \"/srv/www\"",
        &["6:1: root: has no effect with handler \"echo\", only with \"static\""],
    );
    echo(
        "path = \"/\"\nlisten = \"internal\"",
        &["6:10: listen: no [[listen]] has role \"internal\""],
    );
    echo(
        "path = \"/\"\nlisten = \"publik\"",
        &["6:10: listen: no [[listen]] has the name or role \"publik\"; did you mean \"public\"?"],
    );
    echo(
        "path = \"/\"\nlisten = \"push\"",
        &[
            "6:10: listen: a push listener accepts lines of JSON, not HTTP requests, so it has no routes",
        ],
    );
    echo(
        "path = \"/\"\ncompression = \"takover\"",
        &[
            "6:15: compression: expected true, false or \"takeover\", found \"takover\"; did you mean \"takeover\"?",
        ],
    );
    echo(
        "path = \"/\"\norigins = []",
        &[
            "6:11: origins: expected a list of origins such as [\"same-host\", \"https://*.example.com\"], found an empty list",
        ],
    );
    echo(
        "path = \"/\"\norigins = [\"same-host\", 3]",
        &[
            "6:11: origins: expected a list of origins such as [\"same-host\", \"https://*.example.com\"], found a list with 3 in it",
        ],
    );
    echo(
        "path = \"/\"\norigins = [\"x.example\", \"https://x.example/\",\n  \"https://*x.example\", \"https://x.example:0\"]",
        &[
            "6:12: origins: an origin must start with its scheme, as in \"https://\", found \"x.example\"",
            "6:25: origins: an origin must end after host and port, without a path or slash, found \"https://x.example/\"",
            "7:3: origins: \"*x.example\" is not a host name (\"*\" is allowed only in front of a dot), found \"https://*x.example\"",
            "7:25: origins: \"0\" is not a port, found \"https://x.example:0\"",
        ],
    );
}

#[test]
fn handlers() {
    let route = |text: &str, expected: &[&str]| {
        says_after_listen(&format!("[[route]]\npath = \"/\"\n{text}\n"), expected)
    };
    route("", &["3:1: [[route]] lacks \"handler\", which is required"]);
    route(
        "handler = \"static\"",
        &["3:1: [[route]] with handler \"static\" needs \"root\": a folder or \"builtin:demo\""],
    );
    route(
        "handler = \"static\"\nroot = \"/nowhere\"",
        &["6:8: root: the folder /nowhere does not exist"],
    );
    route(
        "handler = \"static\"\nroot = \"www\"",
        &["6:8: root: the folder /etc/veche/www does not exist"],
    );
    route(
        "handler = \"static\"\nroot = \"builtin:dmo\"",
        &[
            "6:8: root: Veche has no built-in files named \"builtin:dmo\"; did you mean \"builtin:demo\"?",
        ],
    );
    route(
        "handler = \"static\"\nroot = \"/srv/www\"\nmethods = [\"get\", \"POST\"]",
        &[
            "7:12: methods: expected some of \"GET\", \"HEAD\", \"POST\", \"PUT\", \"DELETE\", \"OPTIONS\", \"PATCH\", found \"get\"; did you mean \"GET\"?",
            "7:19: methods: handler \"static\" serves GET and HEAD, not POST",
        ],
    );
    route(
        "handler = \"api\"",
        &[
            "5:11: handler: \"api\" outside of the internal listeners needs [api] keys, or every client that reaches it could push to every user",
        ],
    );
    route(
        "handler = \"push\"\nidentity = \"jot\"",
        &[
            "6:12: identity: expected \"jwt\", \"http:URL\", \"pam:SERVICE\", \"query:NAME\", \"cookie:NAME\", \"header:NAME\", \"mtls\" or \"none\", found \"jot\"",
        ],
    );
    route(
        "handler = \"push\"\nidentity = \"cookie:\"",
        &[
            "6:12: identity: \"\" is not the name of a parameter, cookie or header, found \"cookie:\"",
        ],
    );
    route(
        "handler = \"push\"\nchannels = [\"#me\", \"a*b\", \"a b\", \"\", \"chat:$*\"]",
        &[
            "6:13: channels: channels that start with \"#\" are personal channels of users, found \"#me\"",
            "6:20: channels: \"*\" is allowed only at the end, found \"a*b\"",
            "6:27: channels: ' ' can't be in a channel's name, found \"a b\"",
            "6:34: channels: a channel's name must have 1 to 255 bytes, found \"\"",
            "6:38: channels: private channels (\"$\") can only be allowed by their full name, found \"chat:$*\"",
        ],
    );
}

#[test]
fn routes_against_each_other() {
    let two = |first: &str, second: &str| {
        format!(
            "{LISTEN}[[route]]\npath = {first:?}\nhandler = \"echo\"\n[[route]]\npath = {second:?}\nhandler = \"echo\"\n"
        )
    };
    says(
        &two("/a", "/a"),
        &["7:8: path: \"/a\" for GET is already used by route number 1 of this file (\"/a\")"],
    );
    says(
        &two("/room/:id", "/room/:name"),
        &[
            "7:8: path: \"/room/:name\" for GET is already used by route number 1 of this file (\"/room/:id\")",
        ],
    );
    assert!(checked(&two("/a", "/a/*")).is_ok());
    // The conflict of two routes is reported together with all other problems of the file.
    let other_problems = "\
        [[listen]]\naddress = \"127.0.0.1\"\nrole = \"pubic\"\n\
        [[route]]\npath = \"/a\"\nhandler = \"static\"\nroot = \"/nowhere\"\n\
        [[route]]\npath = \"/a\"\nhandler = \"psuh\"\n\
        [[route]]\npath = \"/a\"\nhandler = \"static\"\nroot = \"/srv/www\"\nmethods = [\"POST\"]\n\
        [limits]\ndrain_time = 3\n";
    says(
        other_problems,
        &[
            "2:11: address: expected an IP address and a port such as \"127.0.0.1:8080\", found \"127.0.0.1\"; did you mean \"127.0.0.1:8080\"?",
            "3:8: role: expected \"public\", \"internal\" or \"push\", found \"pubic\"; did you mean \"public\"?",
            "7:8: root: the folder /nowhere does not exist",
            "9:8: path: \"/a\" for GET is already used by route number 1 of this file (\"/a\")",
            "10:11: handler: expected \"push\", \"echo\", \"static\", \"api\", \"lua\", \"app\" or \"centrifuge\", found \"psuh\"; did you mean \"push\"?",
            "15:12: methods: handler \"static\" serves GET and HEAD, not POST",
            "17:14: drain_time: expected a duration from \"0\" to \"1d\", found 3; write \"3s\"",
        ],
    );
    assert!(checked(&two("/room/:id", "/room/main")).is_ok());
    let inside = |path: &str| {
        format!(
            "[[listen]]\naddress = \"127.0.0.1:1\"\nrole = \"internal\"\n[[route]]\npath = {path:?}\nhandler = \"echo\"\nlisten = \"internal\"\n"
        )
    };
    says(
        &inside("/api/x"),
        &["5:8: path: internal listeners serve \"/api/x\" themselves"],
    );
    says(
        &inside("/health"),
        &["5:8: path: internal listeners serve \"/health\" themselves"],
    );
    assert!(checked(&inside("/healthy")).is_ok());
    says(
        "[[listen]]\naddress = \"127.0.0.1:1\"\nrole = \"internal\"\n[[route]]\npath = \"/\"\nhandler = \"echo\"\n",
        &[
            "4:1: no [[listen]] is public, so this route would never be used; name another [[listen]] with listen = NAME",
        ],
    );
}

#[test]
fn server_and_api() {
    says_after_listen(
        "[server]\nlog_file = \"logs/veche.log\"\n",
        &["4:12: log_file: the folder /etc/veche/logs does not exist"],
    );
    says_after_listen(
        "[server]\nlog_file = \"a\\u001b[2J\"\n",
        &["4:12: log_file: expected the path of a file, found \"a\\u{1b}[2J\""],
    );
    says_after_listen(
        "[server]\ncontrol = \"run/veche.sock\"\n",
        &["4:11: control: the folder /etc/veche/run does not exist"],
    );
    let long = format!("[server]\ncontrol = \"/{}\"\n", "x".repeat(107));
    says_after_listen(
        &long,
        &[
            "4:11: control: the path of a socket may have at most 107 bytes, found 108 including the folder of the configuration",
        ],
    );
    says_after_listen(
        "[server]\nio = \"uring\"\n",
        &["4:6: io: expected \"auto\", \"epoll\" or \"io_uring\", found \"uring\""],
    );
    assert!(checked(&format!("{LISTEN}[server]\nio = \"delayed\"\n")).is_ok());
    says_after_listen(
        "[api]\nkeys = [\"\", \"two words\"]\n",
        &[
            "4:9: keys: a key must consist of visible ASCII characters without spaces, because it is sent in a header",
            "4:13: keys: a key must consist of visible ASCII characters without spaces, because it is sent in a header",
        ],
    );
}

/// Checks that a misspelt directive or section is reported once, and that nothing is reported as missing in addition.
#[test]
fn a_misspelt_name_is_one_problem() {
    let exposed = "\
        [[listen]]\naddress = \"127.0.0.1:8080\"\n\
        [[listen]]\naddress = \"0.0.0.0:81\"\nrole = \"internal\"\n\
        [[route]]\npath = \"/api/*\"\nhandler = \"api\"\n";
    says(
        &format!("{exposed}[api]\nkyes = [\"a-secret-of-some-length\"]\n"),
        &["10:1: unknown directive \"kyes\" in [api]; did you mean \"keys\"?"],
    );
    says(
        &format!("{exposed}[apii]\nkeys = [\"a-secret-of-some-length\"]\n"),
        &["9:2: unknown section \"apii\"; did you mean \"api\"?"],
    );
    says(
        &format!("{exposed}[[api]]\nkeys = [\"a-secret-of-some-length\"]\n"),
        &["9:3: expected [api], found [[api]]; this section can't be repeated"],
    );
    says(
        "[[lisen]]\naddress = \"127.0.0.1:8080\"\n[[route]]\npath = \"/\"\nhandler = \"echo\"\n",
        &["1:3: unknown section \"lisen\"; did you mean \"listen\"?"],
    );
    says_after_listen(
        "[[route]]\npaht = \"/\"\nhandler = \"static\"\nrooot = \"/srv/www\"\n",
        &[
            "4:1: unknown directive \"paht\" in [[route]]; did you mean \"path\"?",
            "6:1: unknown directive \"rooot\" in [[route]]; did you mean \"root\"?",
        ],
    );
}

#[test]
fn apps() {
    let route = |text: &str, expected: &[&str]| {
        says_after_listen(
            &format!("[[route]]\npath = \"/\"\nhandler = \"lua\"\n{text}\n"),
            expected,
        )
    };
    route(
        "",
        &["3:1: [[route]] with handler \"lua\" or \"app\" has to have \"script\" or \"app\""],
    );
    route(
        "script = \"nowhere.lua\"",
        &["6:10: script: the file /etc/veche/nowhere.lua does not exist"],
    );
    route(
        "scirpt = \"api.lua\"",
        &["6:1: unknown directive \"scirpt\" in [[route]]; did you mean \"script\"?"],
    );
    route(
        "script = \"api.lua\"\napp = \"chat\"",
        &["6:1: script: \"app\" already names a script; use only one of them"],
    );
    route(
        "script = \"api.lua\"\nmemory = \"1KiB\"\ncpu_budget = 20\noptions = [1]",
        &[
            "7:10: memory: expected a size from \"1MiB\" to \"64GiB\", found \"1KiB\"",
            "8:14: cpu_budget: expected a duration from \"1ms\" to \"1m\", found 20; write \"20s\"",
            "9:11: options: expected a table such as { greeting = \"hi\" }, found a list with 1 in it",
        ],
    );
    route(
        "script = \"api.lua\"\nfiles = \"nowhere\"",
        &["7:9: files: the folder /etc/veche/nowhere does not exist"],
    );
    route(
        "script = \"api.lua\"\nmethods = [\"get\"]\nchannels = [\"news\"]\nidentity = \"jot\"",
        &[
            "7:12: methods: expected some of \"GET\", \"HEAD\", \"POST\", \"PUT\", \"DELETE\", \"OPTIONS\", \"PATCH\", found \"get\"; did you mean \"GET\"?",
            "8:1: channels: has no effect with handler \"lua\", only with \"push\"",
            "9:12: identity: expected \"jwt\", \"http:URL\", \"pam:SERVICE\", \"query:NAME\", \"cookie:NAME\", \"header:NAME\", \"mtls\" or \"none\", found \"jot\"",
        ],
    );
    let app = "[[app]]\nname = \"chat\"\nscript = \"api.lua\"\n";
    let led = |app: &str, route: &str, expected: &[&str]| {
        let text = format!("{app}[[route]]\npath = \"/\"\nhandler = \"lua\"\n{route}\n");
        says_after_listen(&text, expected);
    };
    led(
        app,
        "app = \"chta\"",
        &["9:7: app: no [[app]] has the name \"chta\"; did you mean \"chat\"?"],
    );
    led(
        app,
        "app = \"chat\"\nmemory = \"1MiB\"\noptions = {}",
        &[
            "10:1: memory: can't be combined with \"app\"; set it in that [[app]]",
            "11:1: options: can't be combined with \"app\"; set it in that [[app]]",
        ],
    );
    // A problem of an app is reported once, and not again where the app is referred to.
    led(
        "[[app]]\nscript = \"nowhere.lua\"\n",
        "app = \"chat\"",
        &[
            "3:1: [[app]] lacks \"name\", which is required",
            "4:10: script: the file /etc/veche/nowhere.lua does not exist",
        ],
    );
    led(
        "[[apps]]\nname = \"chat\"\nscript = \"api.lua\"\n",
        "app = \"chat\"",
        &["3:3: unknown section \"apps\"; did you mean \"app\"?"],
    );
    led(
        "[[app]]\nname = \"a b\"\nscript = \"api.lua\"\n",
        "app = \"a b\"",
        &["4:8: name: expected letters, digits, \"-\" and \"_\", found \"a b\""],
    );
    led(
        &app.repeat(2),
        "app = \"chat\"",
        &["7:8: name: another [[app]] is already called \"chat\""],
    );
    says_after_listen(
        "[app]\nname = \"chat\"\n",
        &["3:2: expected [[app]], found [app]; this section can be repeated"],
    );
    let same =
        "[[route]]\npath = \"/a\"\nhandler = \"lua\"\nscript = \"api.lua\"\nmemory = \"2MiB\"\n";
    says_after_listen(
        &format!("{same}{}", same.replace("/a", "/b").replace("2MiB", "3MiB")),
        &[
            "12:10: memory: route 1 runs the same script with another value; configure two [[app]] sections to run it twice",
        ],
    );
    // Like any two routes, an app's route and another one can't have the same path and method.
    led(
        app,
        "app = \"chat\"\n[[route]]\npath = \"/\"\nhandler = \"echo\"",
        &["11:8: path: \"/\" for GET is already used by route number 1 of this file (\"/\")"],
    );
}

#[test]
fn limits_and_proxies() {
    says(
        "[[listen]]\naddress = \"127.0.0.1:8080\"\nproxy_protocol = true\n",
        &[
            "3:1: proxy_protocol: without trusted_proxies no client could connect; set the addresses of the proxies",
        ],
    );
    says_after_listen(
        r#"[limits]
memory_limit = "1KiB"
connections_per_user = "of"
[api]
publish_rate = 7
[[route]]
path = "/"
handler = "push"
channels = ["*"]
outbox_full = "drop"
inflate_ratio_max = 1
[[route]]
path = "/echo"
handler = "echo"
outbox_full = "latest"
"#,
        &[
            "4:16: memory_limit: expected a size from \"16MiB\" to \"16384GiB\", \"auto\" or \"off\", found \"1KiB\"",
            "5:24: connections_per_user: expected a whole number from 1 to 100000000 or \"off\", found \"of\"; did you mean \"off\"?",
            "7:16: publish_rate: expected a rate such as \"10/s\" or \"100/m\" or \"off\", found 7",
            "12:15: outbox_full: expected \"disconnect\", \"drop_oldest\" or \"latest\", found \"drop\"",
            "13:21: inflate_ratio_max: expected a whole number from 2 to 1000 or \"off\", found 1",
            "17:1: outbox_full: has no effect with handler \"echo\", only with \"push\", \"lua\", \"app\"",
        ],
    );
}
