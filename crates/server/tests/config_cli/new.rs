//! Tests `veche new`: the created folders are complete and work, and nothing is overwritten.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::Folder;

#[test]
fn new_makes_what_the_examples_are() {
    let folder = Folder::new("new");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for (name, arguments, example, files, first_try) in [
        ("plain", &[][..], "echo", 4, "open http://127.0.0.1:8080/"),
        ("my chat", &["--template", "chat"], "rooms", 4, "?room=tea"),
        ("api", &["--template", "api"], "rest-api", 3, "curl "),
        (
            "feed",
            &["--template", "feed"],
            "feed",
            5,
            "open http://127.0.0.1:8080/",
        ),
    ] {
        let (code, out, err) = folder.run(&[&["new", name], arguments].concat());
        assert_eq!((code, err.as_str()), (0, ""), "{name}");
        assert!(
            out.starts_with(&format!("created {name}: veche.toml, app.lua")),
            "{out}"
        );
        let cd = if name.contains(' ') {
            "cd 'my chat'\n"
        } else {
            &*format!("cd {name}\n")
        };
        assert!(out.contains(cd) && out.contains(first_try), "{out}");
        let mut count = 0;
        let names = [
            "veche.toml",
            "app.lua",
            "app_test.lua",
            "source.lua",
            "public/index.html",
        ];
        for file in names {
            if let Ok(made) = fs::read_to_string(folder.0.join(name).join(file)) {
                let original = fs::read_to_string(examples.join(example).join(file));
                assert_eq!(made, original.expect("an example"), "{name}/{file}");
                count += 1;
            }
        }
        assert_eq!(count, files, "{name}");
        assert_editor_files(&folder.0.join(name));
        let config = format!("{name}/veche.toml");
        let (code, out, err) = folder.run(&["check", "-c", &config]);
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        // The tests pass in any order of events.
        let (code, out, err) = folder.run(&["test", "-c", &config, "--runs", "20"]);
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        assert!(out.starts_with("ok      app_test.lua  "), "{out}");
    }
}

/// Checks the files for git and editors. Every created folder has these files.
fn assert_editor_files(folder: &Path) {
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect(name);
    assert!(read(".gitignore").lines().any(|line| line == "*.key"));
    let settings: Value = serde_json::from_str(&read(".luarc.json")).expect("JSON");
    let library = settings["workspace.library"][0].as_str().expect("a folder");
    assert!(read(&format!("{library}/veche.lua")).starts_with("---@meta"));
}

#[test]
fn new_makes_back_ends_with_a_key_of_their_own() {
    let folder = Folder::new("new-backends");
    for (template, listeners, program) in [("push", 3, "push"), ("centrifuge", 2, "publish")] {
        let keys = ["one", "two"].map(|suffix| {
            let name = format!("{template}-{suffix}");
            let (code, out, err) = folder.run(&["new", &name, "--template", template]);
            assert_eq!((code, err.as_str()), (0, ""), "{out}");
            let made = folder.0.join(&name);
            assert_editor_files(&made);
            for extension in ["php", "mjs", "py"] {
                let program = made.join(format!("{program}.{extension}"));
                assert!(program.is_file() && out.contains(extension), "{out}");
            }
            let (code, out, err) = folder.run(&["check", "-c", &format!("{name}/veche.toml")]);
            assert_eq!((code, err.lines().count()), (0, 1), "{err}");
            assert!(err.contains("identity: \"query:user\" accepts"), "{err}");
            assert!(
                out.contains(&format!("ok ({listeners} listeners, ")),
                "{out}"
            );
            let key = made.join("api.key");
            let mode = std::os::unix::fs::PermissionsExt::mode(
                &fs::metadata(&key).expect("a key").permissions(),
            );
            assert_eq!(mode & 0o777, 0o600);
            fs::read_to_string(key).expect("text")
        });
        assert!(keys[0].len() > 30 && keys[0] != keys[1], "{keys:?}");
    }
}

#[test]
fn new_makes_applications_in_php_with_the_sdk_in_one_file() {
    let folder = Folder::new("new-php");
    let server = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (template, more) in [("php", &[][..]), ("php-chat", &["accounts.php"])] {
        let (code, out, err) = folder.run(&["new", template, "--template", template]);
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        assert!(
            out.contains("veche dev\n\nThen open http://127.0.0.1:8080/"),
            "{out}"
        );
        let made = folder.0.join(template);
        for file in [&["veche.toml", "app.php", "public/index.html"], more].concat() {
            let original = server.join("templates").join(template).join(file);
            assert!(out.contains(file), "{out}");
            assert_eq!(
                fs::read_to_string(made.join(file)).expect(file),
                fs::read_to_string(original).expect(file)
            );
        }
        assert_eq!(
            fs::read(made.join("veche.php")).expect("the SDK"),
            fs::read(server.join("../../sdk/php/veche.php")).expect("the SDK")
        );
        assert!(!made.join(".luarc.json").exists() && !made.join(".veche").exists());
        let (code, out, err) = folder.run(&["check", "-c", &format!("{template}/veche.toml")]);
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
    }
    let key = fs::metadata(folder.0.join("php-chat/token.key")).expect("a key");
    let mode = std::os::unix::fs::PermissionsExt::mode(&key.permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn new_touches_nothing_that_is_there() {
    let folder = Folder::new("new-there");
    fs::create_dir(folder.0.join("empty")).expect("writable");
    fs::write(folder.0.join("file"), "mine").expect("writable");
    std::os::unix::fs::symlink("nowhere", folder.0.join("link")).expect("writable");
    for name in ["empty", "file", "link"] {
        let expected = format!("veche: {name}: it already exists: choose another name\n");
        assert_eq!(folder.run(&["new", name]), (5, String::new(), expected));
    }
    assert_eq!(
        fs::read_dir(folder.0.join("empty"))
            .expect("a folder")
            .count(),
        0
    );
    assert_eq!(
        fs::read_to_string(folder.0.join("file")).expect("a file"),
        "mine"
    );
    let expected = "veche: no/where: its parent folder does not exist\n".to_owned();
    assert_eq!(
        folder.run(&["new", "no/where"]),
        (5, String::new(), expected)
    );
    let (code, _, err) = folder.run(&["new", "x", "--template", "cat"]);
    assert!(
        code == 2 && err.contains("echo, chat, api, feed, push, centrifuge"),
        "{err}"
    );
    let (code, _, err) = folder.run(&["new"]);
    assert!(code == 2 && err.contains("NAME"), "{err}");
}
