//! Tests the projects that `veche new` creates from its PHP templates, under `veche dev`.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::php_fpm::fpm::{CHILDREN, Fpm};
use crate::php_workers::has_php;
use crate::support::{Http, Seen, Socket, free_address, get, skip, until};

/// A project created from a template, and the `veche dev` that serves it.
struct Made {
    folder: PathBuf,
    address: SocketAddr,
    child: Child,
}

impl Made {
    fn start(template: &str) -> Self {
        Self::changed(template, |_, config| config)
    }

    /// Starts a template on php-fpm, with the changes to the configuration that docs/guide/php.md names.
    fn on_fpm(template: &str, fpm: &Fpm) -> Self {
        Self::changed(template, |folder, config| {
            fs::write(folder.join("api.key"), "a-key-of-the-tests").expect("written");
            let api = free_address();
            let workers = "runtime = \"php\"\ncommand = [\"php\", \"app.php\"]\nworkers = 2\n";
            assert!(config.contains(workers), "{config}");
            let fastcgi = format!(
                "runtime = \"fastcgi\"\naddress = \"unix:{}\"\nscript = \"{}\"\nworkers = {CHILDREN}\n\
                 api_url = \"http://{api}\"\napi_key_file = \"api.key\"\n",
                fpm.socket().display(),
                folder.join("app.php").display(),
            );
            let listen = format!(
                "[[listen]]\naddress = \"{api}\"\nrole = \"internal\"\n\n\
                 [api]\nkeys = [{{ file = \"api.key\" }}]\n\n"
            );
            listen + &config.replace(workers, &fastcgi)
        })
    }

    fn changed(template: &str, change: impl FnOnce(&Path, String) -> String) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("veche-{template}-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        let made = Command::new(env!("CARGO_BIN_EXE_veche"))
            .args(["new", "--template", template])
            .arg(&folder)
            .output()
            .expect("it runs");
        assert!(made.status.success(), "{made:?}");
        let address = free_address();
        let config = fs::read_to_string(folder.join("veche.toml")).expect("a configuration");
        assert!(config.contains("address = \"127.0.0.1:8080\""));
        let config = config.replace("127.0.0.1:8080", &address.to_string());
        let config = change(&folder, config);
        fs::write(folder.join("veche.toml"), config).expect("written");
        let child = Self::dev(&folder);
        let made = Self {
            folder,
            address,
            child,
        };
        made.until_ready();
        made
    }

    fn dev(folder: &Path) -> Child {
        let log = fs::File::create(folder.join("dev.log")).expect("a file");
        Command::new(env!("CARGO_BIN_EXE_veche"))
            .arg("dev")
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn()
            .expect("it starts")
    }

    fn until_ready(&self) {
        until("the server to be ready", || {
            TcpStream::connect(self.address).is_ok()
        });
    }

    fn stop(&mut self) {
        let _ = Command::new(env!("CARGO_BIN_EXE_veche"))
            .args(["stop", "--now"])
            .current_dir(&self.folder)
            .output();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn start_again(&mut self) {
        self.stop();
        self.child = Self::dev(&self.folder);
        self.until_ready();
    }

    /// Sends a form of the chat. Returns the status, the JSON and the cookie.
    #[track_caller]
    fn submit(&self, action: &str, form: &Value, cookie: &str) -> (u16, Value, String) {
        let headers = format!("Content-Type: application/json\r\nCookie: {cookie}\r\n");
        let path = format!("/account/{action}");
        let body = form.to_string();
        let answer = Http::connect(self.address)
            .request("POST", &path, &headers, body.as_bytes())
            .expect("an answer");
        let cookie = answer.header("Set-Cookie").unwrap_or_default();
        if answer.status == 200 {
            assert!(
                cookie.contains("; HttpOnly; SameSite=Strict"),
                "{}",
                answer.head
            );
        }
        let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        let body = serde_json::from_str(answer.text()).expect("JSON");
        (answer.status, body, cookie)
    }

    /// Opens the chat with a cookie. Returns the socket, and the room that the server sends first.
    #[track_caller]
    fn enter(&self, cookie: &str) -> (Socket, Value) {
        let stream = TcpStream::connect(self.address).expect("it listens");
        let mut socket =
            Socket::upgrade(stream, "/ws", &[("Cookie", cookie)]).expect("it is logged in");
        say(&mut socket, &json!({"type": "enter"}));
        let room = hear(&mut socket, "room");
        (socket, room)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.join("dev.log"));
            eprintln!("{}", log.unwrap_or_default());
        }
        self.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn say(socket: &mut Socket, message: &Value) {
    socket.say(&message.to_string());
}

/// Returns the next message of a type.
#[track_caller]
fn hear(socket: &mut Socket, kind: &str) -> Value {
    loop {
        let message: Value = serde_json::from_str(&socket.text()).expect("JSON");
        if message["type"] == kind {
            return message;
        }
    }
}

/// Returns the users in a room, sorted.
fn users(room: &Value) -> Vec<&str> {
    let people = room["people"].as_object().expect("people by their ids");
    let mut users: Vec<&str> = people.values().filter_map(Value::as_str).collect();
    users.sort_unstable();
    users
}

fn id_of<'r>(room: &'r Value, user: &str) -> &'r str {
    let mut people = room["people"].as_object().expect("people").iter();
    let found = people.find(|(_, one)| *one == user);
    found.expect("it is here").0
}

#[test]
fn the_echo_answers_each_message_with_itself() {
    if !has_php() {
        return;
    }
    let made = Made::start("php");
    let page = get(made.address, "/");
    assert!(page.text().contains("new URL(\"ws\""), "{}", page.head);
    let mut socket = Socket::open(made.address, "/ws");
    for text in ["hello", "", "вече 🔔", &"x".repeat(50_000)] {
        socket.say(text);
        assert_eq!(socket.text(), text);
    }
    socket.leave();
}

#[test]
fn saved_code_runs_at_once_and_its_errors_show_on_pages() {
    if !has_php() {
        return;
    }
    let made = Made::start("php");
    let mut socket = Socket::open(made.address, "/ws");
    let mut page = Socket::open(made.address, "/_veche/dev?channel=veche-dev");
    let app = made.folder.join("app.php");
    let code = fs::read_to_string(&app).expect("an application");
    let better = "$conn->send(\"<$data>\")";
    let worse = "throw new RuntimeException('as asked')";
    assert!(code.contains("$conn->send($data)"));
    fs::write(&app, code.replace("$conn->send($data)", better)).expect("written");
    until("the new code", || {
        socket.say("hello");
        socket.text() == "<hello>"
    });
    fs::write(&app, code.replace("$conn->send($data)", worse)).expect("written");
    until("the worse code", || {
        socket.say("hello");
        matches!(socket.next(), Seen::Close(Some(1011), _))
    });
    // Each notice is repeated, and other notices come in between.
    let notice = loop {
        let notice: Value = serde_json::from_str(&page.text()).expect("JSON");
        if notice["kind"] == "error" {
            break notice["text"].as_str().expect("a text").to_owned();
        }
    };
    assert!(
        notice.contains("RuntimeException: as asked in") && notice.contains("app.php:6"),
        "{notice}"
    );
}

#[test]
fn the_chat_lets_in_users_that_are_logged_in() {
    if !has_php() {
        return;
    }
    chat(Made::start("php-chat"));
}

#[test]
fn the_chat_runs_on_php_fpm() {
    let Some(fpm) = Fpm::start("chat", "") else {
        return skip("php-fpm is not installed");
    };
    chat(Made::on_fpm("php-chat", &fpm));
}

/// Registers, chats, leaves, logs out, and logs in again after a restart of the server.
fn chat(mut made: Made) {
    let ann = json!({"name": "ann", "password": "correct horse"});
    let bob = json!({"name": "bob", "password": "battery staple"});
    assert!(Socket::try_open(made.address, "/ws").is_err());
    assert_eq!(get(made.address, "/account/me").status, 401);
    assert_eq!(made.submit("login", &ann, "").0, 403);
    let (status, body, ann_cookie) = made.submit("register", &ann, "");
    assert_eq!((status, body), (200, json!({"user": "ann"})));
    assert_eq!(
        made.submit("register", &ann, "").0,
        403,
        "the name is taken"
    );
    for (name, password) in [
        ("", "battery staple"),
        ("a b", "battery staple"),
        ("bob", "short"),
    ] {
        let form = json!({"name": name, "password": password});
        let (status, body, cookie) = made.submit("register", &form, "");
        assert_eq!((status, cookie.as_str()), (403, ""), "{body}");
    }
    let (_, _, bob_cookie) = made.submit("register", &bob, "");

    let (mut ann_socket, room) = made.enter(&ann_cookie);
    assert_eq!((&room["user"], &room["lines"]), (&json!("ann"), &json!([])));
    assert_eq!(users(&room), ["ann"]);
    say(&mut ann_socket, &json!({"type": "say", "text": "вече 🔔"}));
    let received = hear(&mut ann_socket, "say");
    assert_eq!(
        (&received["user"], &received["text"]),
        (&json!("ann"), &json!("вече 🔔"))
    );

    // A client that joins later sees the earlier messages.
    let (mut bob_socket, room) = made.enter(&bob_cookie);
    assert_eq!(users(&room), ["ann", "bob"]);
    assert_eq!(room["lines"], json!([received]));
    assert_eq!(hear(&mut ann_socket, "join")["user"], "bob");
    for rubbish in [
        "",
        "[]",
        "7",
        "{\"type\":[]}",
        "{\"type\":\"say\",\"text\":[]}",
    ] {
        bob_socket.say(rubbish);
    }
    say(&mut bob_socket, &json!({"type": "say", "text": "hi"}));
    assert_eq!(hear(&mut ann_socket, "say")["user"], "bob");

    let bob_id = id_of(&room, "bob");
    bob_socket.leave();
    assert_eq!(hear(&mut ann_socket, "leave")["id"], *bob_id);

    // A logout closes the user's connections.
    let (status, _, cookie) = made.submit("logout", &json!({}), &ann_cookie);
    assert_eq!((status, cookie.as_str()), (200, "login="));
    let _ = ann_socket.closed();

    made.start_again();
    let wrong = json!({"name": "ann", "password": "wrong horse"});
    assert_eq!(made.submit("login", &wrong, "").0, 403);
    let (status, _, cookie) = made.submit("login", &ann, "");
    assert_eq!(status, 200, "accounts outlive the server");
    made.enter(&cookie);
}
