//! The Lua guide: each of its applications runs, and each row of its table about waiting is true.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::asked::{Asked, answer};
use crate::peer::{self, Peer};
use crate::support::{Http, Options, Server, Setup, Socket, get, on_all, until};

fn guide() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/lua.md");
    fs::read_to_string(path).expect("the guide")
}

/// Returns the complete applications of the guide in order.
fn applications() -> Vec<String> {
    let guide = guide();
    let blocks = guide.split("```lua\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().expect("an end").to_owned());
    blocks
        .filter(|block| block.contains("return app"))
        .collect()
}

/// Paths that an application handles with its own router. Fields: the number of the application, the path.
const ROUTED: &[(usize, &str)] = &[(5, "/users/*"), (5, "/files/*")];

/// Starts a server that sends the same price repeatedly.
fn feed() -> SocketAddr {
    peer::serve(|_, socket| {
        if let Some(mut peer) = Peer::accept(socket) {
            while peer.say("42") {
                thread::sleep(Duration::from_millis(20));
            }
        }
    })
}

/// Starts a back end with a few pages.
fn back_end() -> SocketAddr {
    let pages = Asked::new(|head| match head.starts_with("GET /items?page=2 ") {
        true => answer(200, "Content-Type: text/html\r\n", "<p>hello</p>"),
        false => answer(404, "", ""),
    });
    pages.address
}

/// Serves scripts; the paths of each begin with its number: `/0/…`.
fn serve(setup: Setup, scripts: &[String]) -> Server {
    let (feed, back_end) = (feed(), back_end());
    let names: Vec<String> = (0..scripts.len())
        .map(|number| format!("{number}.lua"))
        .collect();
    let files: Vec<(&str, &str)> = names
        .iter()
        .zip(scripts)
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    let paths = (0..scripts.len()).map(|number| (number, format!("/{number}/:room")));
    // Paths that the applications handle with a router.
    let below = ROUTED
        .iter()
        .map(|(number, path)| (*number, (*path).to_owned()));
    let routes: String = paths
        .chain(below.filter(|(number, _)| *number < scripts.len()))
        .map(|(number, path)| {
            format!(
                "[[route]]\npath = \"{path}\"\nhandler = \"lua\"\nscript = \"{number}.lua\"\n\
                 options = {{ keys = {{ secret = \"ann\" }}, feed = \"ws://{feed}/\", \
                 backend = \"http://{back_end}/items\" }}\n"
            )
        })
        .collect();
    Server::serving(setup, &routes, &files)
}

#[test]
fn its_service_runs() {
    let guide = guide();
    let after = |mark: &str| {
        let rest = guide.split_once(mark).expect("it shows a service").1;
        rest.split("```").next().expect("an end")
    };
    let script = format!("local veche, service{}", after("local veche, service"));
    let section = format!("[[service]]{}", after("```toml\n[[service]]"));
    let files = [("clock.lua", script.as_str())];
    let channel = "[[route]]\npath = \"/clock\"\nhandler = \"push\"\nchannels = [\"clock\"]\n";
    let routes = format!("{section}{channel}");
    on_all(|setup| {
        let options = Options {
            routes: &routes,
            files: &files,
            ..Options::default()
        };
        let server = Server::with(setup, &options);
        let mut socket = Socket::open(server.public, "/clock?channel=clock");
        assert_eq!(socket.text().len(), "12:00:00".len());
    });
}

#[test]
fn its_applications_run() {
    let scripts = applications();
    let [
        _echo,
        _chat,
        _who,
        _tasks,
        _http,
        _routes,
        _cookies,
        _parts,
        _events,
        _feed,
        _ask,
    ] = scripts.as_slice()
    else {
        panic!("the guide has other applications now: {scripts:#?}");
    };
    on_all(|setup| {
        let server = serve(setup, &scripts);
        let mut echo = Socket::open(server.public, "/0/x");
        echo.say("hello");
        assert_eq!(echo.text(), "hello");

        let mut guests: Vec<Socket> = (0..6)
            .map(|i| Socket::open(server.public, &format!("/1/tea?nick=guest{i}")))
            .collect();
        // Guests may receive other guests' messages too, so each reads until its own arrives.
        for (i, guest) in guests.iter_mut().enumerate() {
            guest.say("here");
            let own = json!({"nick": format!("guest{i}"), "text": "here"});
            until("its own words", || {
                serde_json::from_str::<Value>(&guest.text()).expect("JSON") == own
            });
        }

        let refused = Socket::try_open(server.public, "/2/x?key=wrong").unwrap_err();
        assert!(refused.to_string().contains("401"), "{refused}");
        let mut tabs: Vec<Socket> = (0..6)
            .map(|_| Socket::open(server.public, "/2/x?key=secret"))
            .collect();
        tabs[0].say("to all of me");
        for tab in &mut tabs {
            assert_eq!(tab.text(), "to all of me");
        }

        let mut tasks = Socket::open(server.public, "/3/x");
        tasks.say("this");
        assert_eq!(
            (tasks.text(), tasks.text()),
            ("this now".into(), "this later".into())
        );

        assert_eq!(get(server.public, "/4/x?name=Ann").text(), "hello Ann\n");
        let mut http = Http::connect(server.public);
        let mut call =
            |method, body: &[u8]| http.request(method, "/4/x", "", body).expect("an answer");
        assert_eq!(call("POST", b"{\"a\":1}").json(), json!({"a": 1}));
        assert_eq!(call("POST", b"{").status, 400);
        assert_eq!(call("PUT", b"{}").header("allow"), Some("GET, POST"));

        assert_eq!(get(server.public, "/users/7").status, 401);
        let mut call = |method, path| {
            let known = "Cookie: session=1\r\n";
            http.request(method, path, known, b"").expect("an answer")
        };
        assert_eq!(call("GET", "/users/7").json(), json!({"id": "7"}));
        assert_eq!(call("GET", "/files/a/b%20c").text(), "you want a/b c\n");
        assert_eq!(
            call("PUT", "/files/a").header("allow"),
            Some("GET, HEAD, OPTIONS")
        );
        assert_eq!(call("GET", "/users").status, 404);
        let cookies = call("GET", "/6/x").header_all("set-cookie");
        assert!(cookies[0].starts_with("session=1; ") || cookies[1].starts_with("session=1; "));
        assert_eq!(cookies.len(), 2, "{cookies:?}");
        let squares = call("GET", "/7/x");
        assert!(squares.text().ends_with("1000,1000000\n"), "{squares:?}");
        http.raw(b"GET /8/x HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        http.head().expect("a head");
        let hello = http.chunk().expect("a chunk").expect("an event");
        assert!(String::from_utf8_lossy(&hello).contains("event: hello\n"));

        let mut listener = Socket::open(server.public, "/9/x");
        assert_eq!(listener.text(), "42");
        assert_eq!(get(server.public, "/9/x").text(), "42");
        let asked = get(server.public, "/10/x?page=2");
        assert_eq!(asked.json()["length"], json!(12), "{}", server.log());
        // The client's query is data of the request and does not change its target.
        let asked = get(server.public, "/10/x?page=9&url=http://127.0.0.1:1/");
        assert_eq!(asked.text(), "the back end says 404\n");
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    });
}

/// Runs the guide's hooks script with the configuration beside it.
#[test]
fn its_handlers_for_centrifuge_clients_decide() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/hooks.md");
    let guide = fs::read_to_string(path).expect("the guide");
    let section = guide.split("\n## In Lua\n").nth(1).expect("the section");
    let block = |mark: &str| {
        let rest = section.split_once(mark).expect("it shows one").1;
        rest.split("```").next().expect("an end").to_owned()
    };
    let (routes, script) = (block("```toml\n"), block("```lua\n"));
    // Inserts a session, as the login of a real site would.
    let script = script.replace("return app", "sessions:set('5d7f', 'ann')\nreturn app");
    on_all(|setup| {
        let server = Server::serving(setup, &routes, &[("app.lua", &script)]);
        let open = |headers: &[(&str, &str)]| {
            let socket = TcpStream::connect(server.public).expect("a connection");
            Socket::upgrade(socket, "/connection/websocket", headers).expect("it opens")
        };
        let ask = |socket: &mut Socket, command: Value| {
            socket.say(&command.to_string());
            serde_json::from_str::<Value>(&socket.text()).expect("JSON")
        };
        let refused = ask(&mut open(&[]), json!({"id": 1, "connect": {}}));
        assert_eq!(refused["error"]["message"], "log in first");
        let forged = ask(
            &mut open(&[("Cookie", "session=ann")]),
            json!({"id": 1, "connect": {}}),
        );
        assert_eq!(forged["error"]["message"], "log in first");
        let mut ann = open(&[("Cookie", "session=5d7f")]);
        let hello = ask(&mut ann, json!({"id": 1, "connect": {}}));
        assert!(hello["connect"]["subs"]["#ann"].is_object(), "{hello}");
        let all = json!({"channel": "chat:all"});
        ask(&mut ann, json!({"id": 2, "subscribe": all}));
        for (id, sum) in [(3, 2), (4, 4)] {
            let rpc = json!({"method": "add", "data": 2});
            let reply = ask(&mut ann, json!({"id": id, "rpc": rpc}));
            assert_eq!(reply["rpc"]["data"], sum, "{reply}");
        }
        let push = ask(&mut ann, json!({"send": {"data": 1}}));
        let data = &push["push"]["pub"]["data"];
        assert_eq!(*data, json!({"text": "ann waves"}));
        let publish = json!({"channel": "chat:all", "data": 7});
        let reply = ask(&mut ann, json!({"id": 5, "publish": publish}));
        assert_eq!(reply["error"]["message"], "a text, please");
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    });
}

#[test]
fn its_table_of_waiting_is_true() {
    let guide = guide();
    let table = guide.split("## Waiting").nth(1).expect("the section");
    let table = table.split("\n## ").next().expect("its end");
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ").skip(1);
            let code = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
            Some((code, cells.next()?.trim_end_matches(" |")))
        })
        .collect();
    assert!(rows.len() >= 13, "{rows:?}");
    let mut script = "local veche = require 'veche'\nlocal rows = {\n".to_owned();
    for (code, _) in &rows {
        script += &format!("function() {code} end,\n");
    }
    script += "}
        local app = {}
        function app.message(conn, data)
          local ok, why = pcall(rows[tonumber(data)])
          conn:send(ok and 'works' or why)
        end
        return app";
    on_all(|setup| {
        let server = serve(setup, std::slice::from_ref(&script));
        for (index, (code, word)) in rows.iter().enumerate() {
            let mut socket = Socket::open(server.public, "/0/x");
            socket.say(&(index + 1).to_string());
            let message = socket.text();
            match *word {
                "works" => assert_eq!(message, "works", "{code}"),
                "error" => assert!(message.contains("can't wait here"), "{code}: {message}"),
                other => panic!("{code}: {other:?} is neither \"works\" nor \"error\""),
            }
        }
    });
}
