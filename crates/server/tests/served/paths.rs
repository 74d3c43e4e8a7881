//! A path means the same however it is spelled: route rules, handlers, scripts, back ends and the access log agree.

use std::fs;

use serde_json::Value;

use super::asked::{Asked, answer};
use crate::support::{Http, Server, Setup, Socket, on_all, until};

const APP: &str = r#"
local veche = require "veche"
local app, router = {}, veche.router()

local function told(name)
  return function(req)
    local words = { name, req.path, req.user or "nobody" }
    for key, value in pairs(req.params) do words[#words + 1] = key .. "=" .. value end
    return table.concat(words, " ")
  end
end

router:get("/lua/staff", told "staff")
router:get("/lua/room/:id", told "room")
router:get("/lua/room/staff", told "staff room")
router:get("/lua/tree/*rest", told "tree")
router:otherwise(told "other")
app.request = router
function app.open(conn) conn:send(conn.path .. " " .. (conn.params.id or "")) end
return app
"#;

const DENIED: &str = "deny = [\"0.0.0.0/0\", \"::/0\"]";

fn serve(setup: Setup, back_end: &Asked) -> Server {
    let lua = "handler = \"lua\"\napp = \"say\"";
    let routes = format!(
        "[[route]]\npath = \"/private\"\nhandler = \"static\"\nroot = \"site/private\"\n{DENIED}\n\
         [[route]]\npath = \"/a b/é\"\n{lua}\n{DENIED}\n\
         [[route]]\npath = \"/@admin\"\n{lua}\n{DENIED}\n\
         [[route]]\npath = \"/id/*\"\n{lua}\n\
         [[route]]\npath = \"/id/staff/:id\"\n{lua}\nidentity = \"query:user\"\n\
         [[route]]\npath = \"/hooked/*\"\n{lua}\nidentity = \"http:http://{}/who\"\n\
         [[route]]\npath = \"/lua/*\"\n{lua}\n\
         [[app]]\nname = \"say\"\nscript = \"app.lua\"\n\
         [access_log]\nfile = \"access.log\"\nformat = \"json\"\n",
        back_end.address
    );
    let files = [
        ("app.lua", APP),
        ("site/private/secret.txt", "secret"),
        ("site/a b/100%.txt", "percent"),
        ("site/open.txt", "open"),
    ];
    Server::serving(setup, &routes, &files)
}

fn ask(server: &Server, target: &str) -> (u16, String) {
    let mut http = Http::connect(server.public);
    let response = http.request("GET", target, "", b"").expect("an answer");
    (response.status, response.text().to_owned())
}

#[test]
fn every_spelling_of_a_path_meets_the_same_rules() {
    on_all(|setup| {
        let back_end = Asked::new(|_| answer(204, "X-Veche-User: ann\r\n", ""));
        let server = serve(setup, &back_end);
        for (target, status, body) in [
            ("/open.txt", 200, "open"),
            ("/%6fpen.txt", 200, "open"),
            ("/a%20b/100%25.txt", 200, "percent"),
            // Paths that a route denies.
            ("/private/secret.txt", 403, ""),
            ("/%70rivate/secret.txt", 403, ""),
            ("/%70%72%69%76%61%74%65/secret.txt", 403, ""),
            ("//private/secret.txt", 403, ""),
            ("/./private/secret.txt", 403, ""),
            ("/a/../private/secret.txt", 403, ""),
            ("/a/%2e%2e/private/secret.txt", 403, ""),
            ("/%2E%2e/private/%2e/secret.txt", 403, ""),
            ("/lua/x/.%2e/..//private//secret.txt", 403, ""),
            ("http://localhost/%70rivate/secret.txt", 403, ""),
            ("/@admin", 403, ""),
            ("/%40admin", 403, ""),
            ("/a%20b/%c3%a9", 403, ""),
            ("/x/..//%40admin", 403, ""),
            // These paths differ from the denied ones, since nothing is decoded twice.
            ("/%2570rivate/secret.txt", 404, ""),
            ("/private%2fsecret.txt", 404, ""),
            ("/private%252fsecret.txt", 404, ""),
            ("/x%2f..%2fprivate/secret.txt", 404, ""),
            // Paths with ambiguous characters.
            ("/private%5csecret.txt", 400, ""),
            ("/x\\..\\private/secret.txt", 400, ""),
            ("/private/secret.txt%00", 400, ""),
            ("/%", 400, ""),
            ("/%7", 400, ""),
            ("/%ff", 400, ""),
            ("/%c0%ae%c0%ae/private/secret.txt", 400, ""),
            // Paths that configured routes match, and paths that the router of a script matches.
            ("/id/7", 200, "other /id/7 nobody"),
            ("/id/staff/7?user=bob", 200, "other /id/staff/7 bob id=7"),
            ("/id/%73taff/7?user=bob", 200, "other /id/staff/7 bob id=7"),
            ("/id//staff/7", 200, "other /id/staff/7 nobody id=7"),
            ("/lua/staff", 200, "staff /lua/staff nobody"),
            ("/lua/st%61ff", 200, "staff /lua/staff nobody"),
            (
                "/lua/room/%73taff",
                200,
                "staff room /lua/room/staff nobody",
            ),
            ("/lua/room/a%20b", 200, "room /lua/room/a b nobody id=a b"),
            ("/lua/room/a%2fb", 200, "room /lua/room/a%2Fb nobody id=a/b"),
            ("/lua/room/%2561", 200, "room /lua/room/%2561 nobody id=%61"),
            ("/lua/room/%252f", 200, "room /lua/room/%252f nobody id=%2f"),
            (
                "/lua/tree/a/%2e%2e/b",
                200,
                "tree /lua/tree/b nobody rest=b",
            ),
            (
                "/lua/tree/a%2f..%2fb",
                200,
                "tree /lua/tree/a%2F..%2Fb nobody rest=a%2F..%2Fb",
            ),
        ] {
            let (found, text) = ask(&server, target);
            assert_eq!(found, status, "{target}: {text}");
            if !body.is_empty() {
                assert_eq!(text, body, "{target}");
            }
            assert!(!text.contains("secret"), "{target}");
        }
    });
}

#[test]
fn sockets_back_ends_and_the_log_know_the_same_path() {
    on_all(|setup| {
        let back_end = Asked::new(|_| answer(204, "X-Veche-User: ann\r\n", ""));
        let server = serve(setup, &back_end);
        for target in ["/id/staff/7", "/id/%73taff/7", "/id//x/%2e%2e/staff/7"] {
            assert!(Socket::try_open(server.public, target).is_err(), "{target}");
            let mut socket = Socket::open(server.public, &format!("{target}?user=bob"));
            assert_eq!(socket.text(), "/id/staff/7 7", "{target}");
        }
        assert!(Socket::try_open(server.public, "/%40admin").is_err());

        let (status, text) = ask(&server, "/%68ooked/a/..//b%20%C3%A9%0a?x=%31/../y");
        assert_eq!((status, &*text), (200, "other /hooked/b é\n ann"));
        let head = back_end.heads().pop().expect("a request");
        let line = "\r\nx-original-uri: /hooked/b%20%C3%A9%0A?x=%31/../y\r\n";
        assert!(
            head.to_ascii_lowercase()
                .contains(&line.to_ascii_lowercase()),
            "{head}"
        );

        assert_eq!(ask(&server, "/x/..//%70rivate/secret.txt").0, 403);
        // A folder without a final slash is redirected, however its path is spelled.
        let mut http = Http::connect(server.public);
        let response = http
            .request("GET", "/%61%20b?x", "", b"")
            .expect("an answer");
        assert_eq!(response.header("location"), Some("./a%20b/?x"));
        let log = server.folder.join("access.log");
        let find = |uri: &str, status: u64| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            text.lines()
                .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
                .any(|line| line["uri"] == uri && line["status"] == status)
        };
        until("the log", || find("/a b", 301));
        assert!(find("/private/secret.txt", 403) && find("/hooked/b é\n", 200));
        assert!(find("/id/staff/7", 401) && find("/id/staff/7", 101));
    });
}
