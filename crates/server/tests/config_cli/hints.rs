//! Messages about input that is almost right, and about output that ends early.

use std::net::TcpListener;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Folder, GOOD, push_lines, push_listener, seen};

#[test]
fn a_reader_that_stops_early_is_no_failure() {
    let folder = Folder::new("closed-pipe");
    folder.write(GOOD);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = folder.veche(&["config"]);
    let output = command.stdout(writer).stderr(Stdio::piped()).output();
    let (code, _, err) = seen(output.unwrap());
    assert_eq!((code, err.as_str()), (0, ""));
}

#[test]
fn unknown_subcommands_name_the_nearest() {
    let folder = Folder::new("nearest");
    for (given, meant) in [("nwe", "new"), ("confg", "config"), ("srve", "serve")] {
        let (code, _, err) = folder.run(&[given]);
        assert_eq!(code, 2);
        assert!(err.contains(&format!("exists: '{meant}'")), "{err}");
    }
    let (_, _, err) = folder.run(&["xylophone"]);
    assert!(!err.contains("exists"), "{err}");
}

#[test]
fn a_push_to_a_user_without_connections_is_noted() {
    let folder = Folder::new("push-none");
    let none = |request: &Value| json!({"id": request["id"], "result": {"handed": 0}});
    for (to, why) in [
        ("--user", "the user has no connection"),
        ("--users", "none of the users has a connection"),
        ("--channel", "the channel has no subscriber"),
    ] {
        let (address, server) = push_listener(none);
        let (code, out, _) = folder.run(&["push", "--address", &address, to, "a", "hello"]);
        let expected = format!("handed to 0 connections: {why}\n");
        assert_eq!((code, out), (0, expected));
        server.join().unwrap();
    }
}

/// With the engine on Redis, the result of a push contains no number of connections.
#[test]
fn a_push_whose_connections_are_not_counted_is_a_success() {
    let folder = Folder::new("push-uncounted");
    let results = [
        (json!({"nodes": 2}), "published; 2 nodes have the channel\n"),
        (
            json!({"nodes": 1, "offset": 7, "epoch": "e"}),
            "published; 1 node has the channel\n",
        ),
        (json!({"nodes": 0}), "published; 0 nodes have the channel\n"),
        (json!({}), "published\n"),
    ];
    for (result, expected) in results {
        let answer = move |request: &Value| json!({"id": request["id"], "result": result});
        let (address, server) = push_listener(answer);
        let pushed = folder.run(&["push", "--address", &address, "--channel", "c", "hello"]);
        assert_eq!(pushed, (0, expected.to_owned(), String::new()));
        server.join().unwrap();
    }
    for (lines, expected) in [("one", "1 push\n"), ("one\ntwo\n", "2 pushes\n")] {
        let (address, server) = push_listener(|request| match request["id"].as_u64() {
            Some(1) => json!({"id": 1, "result": {"nodes": 2}}),
            _ => json!({"id": request["id"], "result": {"handed": 2}}),
        });
        let pushed = push_lines(&folder, &address, lines);
        assert_eq!(pushed, (0, expected.to_owned(), String::new()));
        server.join().unwrap();
    }
}

#[test]
fn an_answer_without_a_result_is_not_of_a_push_listener() {
    let folder = Folder::new("push-stranger");
    let answers: [fn(&Value) -> Value; 4] = [
        |request| request.clone(),
        |request| json!({"id": request["id"], "result": 2}),
        |_| json!({"error": "bad request"}),
        |_| json!("220 ready"),
    ];
    for answer in answers {
        let (address, server) = push_listener(answer);
        let pushed = folder.run(&["push", "--address", &address, "--user", "a", "hello"]);
        let err = format!("veche: the server at {address} is not a push listener of Veche\n");
        assert_eq!(pushed, (3, String::new(), err));
        server.join().unwrap();
    }
}

#[test]
fn common_mistakes_come_with_the_line_to_write() {
    let folder = Folder::new("mistakes");
    for (text, expected) in [
        ("port 80800", "write port = 80800"),
        ("[limits]\ndrain_time = 10", "write \"10s\""),
        (
            "[server]\nlog = \"info",
            "the string is not closed on its line",
        ),
        (
            "[jwt]\nsecret = \"abc\"",
            "did you mean \"secret_file\" or \"secret_env\"?",
        ),
        (
            "[[namespace]]\nname = \"a\"\nhistory = 10",
            "did you mean \"history_size\"",
        ),
        (
            "[[listen]]\nport = 80800",
            "write address = \"127.0.0.1:8080\"",
        ),
        (
            "listen:\n  - address: 127.0.0.1:80",
            "the configuration is TOML: write [[listen]]",
        ),
        (
            "server:\n  port: 80",
            "the configuration is TOML: write port = 80",
        ),
    ] {
        folder.write(&format!("{text}\n"));
        let (code, _, err) = folder.run(&["check"]);
        assert_eq!(code, 1);
        assert!(err.contains(expected), "{text}:\n{err}");
    }
}
#[test]
fn in_bench_c_is_connections_and_z_the_duration() {
    let folder = Folder::new("bench-flags");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let flags = ["-c", "3", "-z", "10ms", "--warmup", "0", "--json"];
    let (_, out, err) = folder.run(&[&["bench", "http", &url], &flags[..]].concat());
    let report: Value = serde_json::from_str(&out).expect(&err);
    assert_eq!(report["settings"]["connections"], 3, "{err}");
    assert_eq!(report["settings"]["duration_s"], 0.01, "{report:#}");
}

/// The terminal is made by util-linux's `script`.
#[test]
fn errors_have_colours_on_a_terminal_alone() {
    let folder = Folder::new("colours");
    folder.write("[limits]\ndrain_time = 10\n");
    let on_terminal = |no_color: &str| {
        let mut command = std::process::Command::new("script");
        let line = format!("{} check", env!("CARGO_BIN_EXE_veche"));
        command.args(["-qec", &line, "/dev/null"]);
        command.current_dir(&folder.0).env("NO_COLOR", no_color);
        let (_, out, _) = seen(command.stdin(Stdio::null()).output().unwrap());
        out
    };
    assert!(on_terminal("").contains("\x1b[31m             ^^\x1b[0m"));
    assert!(!on_terminal("1").contains('\x1b'));
    let (_, _, err) = folder.run(&["check"]);
    assert!(!err.contains('\x1b') && err.contains("| drain_time = 10\n"));
}

#[test]
fn an_editor_gets_problems_as_json() {
    let folder = Folder::new("check-json");
    let check = || {
        let (code, out, err) = folder.run(&["check", "--json"]);
        assert_eq!(err, "");
        (code, serde_json::from_str::<Value>(&out).expect(&out))
    };
    folder.write(&format!("{GOOD}[limits]\ndrain_time = 10\nx = 1\n"));
    let (code, found) = check();
    assert_eq!((code, &found["ok"]), (1, &json!(false)));
    let first = json!({
        "severity": "error", "file": "veche.toml", "line": 11, "column": 14,
        "message": found["problems"][0]["message"], "example": "drain_time = \"10s\"",
    });
    assert_eq!(found["problems"][0], first);
    assert_eq!(found["problems"].as_array().unwrap().len(), 2);
    folder.write(&GOOD.replace("127.0.0.1:8082", "0.0.0.0:8082"));
    let (code, found) = check();
    assert_eq!((code, &found["ok"]), (0, &json!(true)));
    let warning = &found["problems"][0];
    assert_eq!(
        (&warning["severity"], &warning["line"]),
        (&json!("warning"), &json!(4))
    );
    let route = "[[route]]\npath = \"/w\"\nhandler = \"lua\"\nscript = \"app.lua\"\n";
    folder.write(&format!("{GOOD}{route}"));
    std::fs::write(folder.0.join("app.lua"), "local app = {}\nlocal local\n").unwrap();
    let (code, found) = check();
    let problem = &found["problems"][0];
    assert_eq!(
        (code, &problem["file"], &problem["line"]),
        (1, &json!("app.lua"), &json!(2))
    );
}
