//! Tests of the HTTP client of scripts: its requests, and how responses reach the script.

mod support;

use std::sync::Arc;

use support::Bench;
use veche_calls::{
    Call, CallError, CallErrorKind, CallReply, CertificateTrust, Handle, HttpCall, HttpReply,
    HttpRequest, ReplyBody,
};
use veche_script::{Effect, Token};

/// Returns a body that is read in pieces, and an `Arc` that shows whether the body still exists.
fn stream() -> (Arc<()>, ReplyBody) {
    let life = Arc::new(());
    let handle = Handle::new(Arc::clone(&life));
    (life, ReplyBody::Stream(handle))
}

fn reply(body: ReplyBody) -> Result<CallReply, CallError> {
    let headers = [
        ("content-type", "text/plain"),
        ("vary", "a"),
        ("set-cookie", "a=1"),
        ("vary", "b"),
        ("set-cookie", "b=2"),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.into()));
    Ok(CallReply::Http(Box::new(HttpReply {
        status: 201,
        headers: headers.to_vec(),
        url: "http://a.test/there".to_owned(),
        body,
    })))
}

fn whole(text: &str) -> Result<CallReply, CallError> {
    reply(ReplyBody::Whole(text.into()))
}

struct Client(Bench);

impl Client {
    /// Creates a client whose script runs this code in `app.start`.
    fn new(body: &str) -> Self {
        Self(Bench::new(&format!(
            "local veche = require 'veche'
            local http = veche.http
            local app = {{}}
            function app.start() {body} end
            return app"
        )))
    }

    /// Returns the HTTP request that the script has made. Fails if there is any other effect.
    fn asked(&mut self) -> (Token, HttpCall) {
        let effects = self.0.effects();
        match &effects[..] {
            [(_, Effect::Call { token, call })] => match &**call {
                Call::Http(call) => (*token, call.clone()),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn fetch(&mut self) -> (Token, HttpRequest) {
        match self.asked() {
            (token, HttpCall::Fetch(fetch)) => (token, *fetch),
            other => panic!("{other:?}"),
        }
    }

    fn reply(&mut self, token: Token, outcome: Result<CallReply, CallError>) {
        self.0.vm.replied(token, outcome, self.0.now);
    }
}

fn asked(call: &str) -> HttpRequest {
    Client::new(call).fetch().1
}

fn names(fetch: &HttpRequest) -> Vec<String> {
    let headers = fetch.headers.iter();
    let shown = headers.map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)));
    shown.collect()
}

#[test]
fn requests_have_the_sent_content() {
    let fetch = asked("http.get('http://a.test/x')");
    assert_eq!(
        (fetch.method.as_str(), fetch.url.as_str()),
        ("GET", "http://a.test/x")
    );
    assert_eq!(
        (fetch.timeout.as_secs(), fetch.connect_timeout.as_secs()),
        (30, 10)
    );
    assert_eq!((fetch.redirects_max, fetch.connections_max), (5, 100));
    assert_eq!((fetch.body_bytes_max, fetch.is_stream), (16 << 20, false));
    assert!(fetch.headers.is_empty() && fetch.body.is_empty());

    let fetch = asked(
        "http.request { url = 'HTTPS://a.test/x?y#z', method = 'report', query = { b = { 1, true }, ['a b'] = 'ä&=' },
          headers = { ['X-A'] = { 'one', 'two' }, b = 7 }, body = 'b\\0dy', timeout = 0.5, connect_timeout = 0.25,
          redirects = 0, max_body = 3, max_per_host = 2, stream = true, ca_file = '/ca.pem' }",
    );
    assert_eq!(fetch.method, "REPORT");
    assert_eq!(
        fetch.url,
        "HTTPS://a.test/x?y&a+b=%C3%A4%26%3D&b=1&b=true#z"
    );
    assert_eq!(names(&fetch), ["b: 7", "x-a: one", "x-a: two"]);
    assert_eq!(fetch.body, b"b\0dy");
    assert_eq!(
        (fetch.timeout.as_millis(), fetch.connect_timeout.as_millis()),
        (500, 250)
    );
    assert_eq!(
        (
            fetch.redirects_max,
            fetch.body_bytes_max,
            fetch.connections_max
        ),
        (0, 3, 2)
    );
    assert_eq!(
        (fetch.is_stream, fetch.trust),
        (true, CertificateTrust::File("/ca.pem".into()))
    );

    let fetch = asked("http.post('http://a.test', { json = { a = 1 }, insecure = true })");
    assert_eq!(
        (fetch.method.as_str(), fetch.body.as_slice()),
        ("POST", &b"{\"a\":1}"[..])
    );
    assert_eq!(
        (names(&fetch), fetch.trust),
        (
            vec!["content-type: application/json".into()],
            CertificateTrust::Insecure
        )
    );
    let fetch = asked("http.put('http://a.test', 'x', { headers = { ['Content-Type'] = 'a/b' } })");
    assert_eq!(
        (fetch.body.as_slice(), names(&fetch)),
        (&b"x"[..], vec!["content-type: a/b".into()])
    );
    let fetch =
        asked("http.patch('http://a.test', { form = { a = 'b c', d = '+' } }, { timeout = 1 })");
    assert_eq!(fetch.body, b"a=b+c&d=%2B");
    assert_eq!(
        names(&fetch),
        ["content-type: application/x-www-form-urlencoded"]
    );
    for (function, method) in [("head", "HEAD"), ("delete", "DELETE"), ("post", "POST")] {
        assert_eq!(
            asked(&format!("http.{function}('http://a.test')")).method,
            method
        );
    }
    // A response larger than the memory of the VM is an error.
    assert_eq!(
        asked("http.get('http://a.test', { max_body = 1e12 })").body_bytes_max,
        32 << 20
    );
    assert_eq!(
        asked("http.get('http://a.test', { stream = true })").body_bytes_max,
        u64::MAX
    );
}

#[test]
fn answers_are_objects() {
    let mut client = Client::new(
        "local answer = http.get('http://a.test/')
        print(answer.status, answer.url, answer.body, answer:json().a, answer.nothing)
        print(answer.headers['content-type'], answer.headers.vary, table.concat(answer.headers['set-cookie'], ';'))
        print(pcall(answer.read, answer)) print(pcall(answer.chunks, answer)) answer:close()
        print(getmetatable(answer), pcall(answer.read, 7), pcall(answer.json, {}))",
    );
    let (token, _) = client.fetch();
    client.reply(token, whole("{\"a\":5}"));
    let effects = client.0.effect_lines();
    assert_eq!(effects[0], "201\thttp://a.test/there\t{\"a\":5}\t5\tnil");
    assert_eq!(effects[1], "text/plain\ta, b\ta=1;b=2");
    assert!(
        effects[2].contains("read: the body is in .body"),
        "{effects:?}"
    );
    assert!(
        effects[3].contains("chunks: the body is in .body"),
        "{effects:?}"
    );
    assert!(effects[4].starts_with("false\tfalse\t"), "{effects:?}");
    assert!(
        effects[4].contains("bad argument #1 to 'json'"),
        "{effects:?}"
    );

    let mut client =
        Client::new("print(pcall(function() return http.get('http://a.test/'):json() end))");
    let (token, _) = client.fetch();
    client.reply(token, whole("no json"));
    assert!(client.0.effect_lines()[0].contains("false\tapp.lua:4: json.decode: "));

    let mut client = Client::new("\nhttp.get('http://a.test/')\n");
    let (token, _) = client.fetch();
    let words = "http: timeout after 30 s connecting to a.test:80";
    client.reply(token, Err(CallError::new(CallErrorKind::Timeout, words)));
    let effects = client.0.effect_lines();
    assert!(
        effects[0].contains(&format!("app.lua:5: {words}")),
        "{effects:?}"
    );
}

#[test]
fn streams_are_read_piece_by_piece() {
    let mut client = Client::new(
        "local answer = http.get('http://a.test/', { stream = true })
        print(answer.body, pcall(answer.json, answer))
        for chunk in answer:chunks() do print(chunk) end
        print(answer:read())",
    );
    let (token, _) = client.fetch();
    let (life, body) = stream();
    client.reply(token, reply(body));
    for piece in [Some("one"), Some("two"), None, None] {
        let effects = client.0.effects();
        let (_, Effect::Call { token, call }) = effects.last().expect("a call") else {
            panic!("{effects:?}");
        };
        assert!(matches!(&**call, Call::Http(HttpCall::Read(_))), "{call:?}");
        let piece = piece.map(|piece| piece.as_bytes().to_vec());
        let token = *token;
        drop(effects);
        client.reply(token, Ok(CallReply::Chunk(piece)));
    }
    assert_eq!(client.0.effect_lines(), ["nil"]);
    // `app.start` has ended, so the body was released.
    assert_eq!(Arc::strong_count(&life), 1);
}

/// Opens a stream and runs this script with it. The `Arc` shows whether the stream is still open.
fn left_by(script: &str) -> (Client, Arc<()>) {
    let mut client = Client::new(&format!(
        "local answer = http.get('http://a.test/', {{ stream = true }})\n{script}"
    ));
    let (token, _) = client.fetch();
    let (life, body) = stream();
    client.reply(token, reply(body));
    client.0.effect_lines();
    (client, life)
}

#[test]
fn nothing_is_left_open() {
    let is_open = |life: &Arc<()>| Arc::strong_count(life) > 1;
    let (_client, life) = left_by("");
    assert!(!is_open(&life), "its coroutine has ended");
    let (_client, life) = left_by("error('oh')");
    assert!(!is_open(&life), "its coroutine has failed");
    let (_client, life) = left_by("answer:close() answer:close() veche.sleep(1e6)");
    assert!(!is_open(&life), "it was closed");
    let (mut client, life) = left_by("veche.sleep(1)");
    assert!(is_open(&life));
    client.0.advance(1000);
    assert!(!is_open(&life));
    let (mut client, life) = left_by("veche.sleep(1e6)");
    assert!(is_open(&life));
    client.0.vm.finish();
    assert!(!is_open(&life), "the VM has ended");
    let (client, life) = left_by("answer:read()");
    assert!(is_open(&life));
    drop(client);
    assert!(!is_open(&life), "the VM is gone");

    // A task that is cancelled before it runs sends no request. If a task is cancelled while it
    // waits for a response, the response is released.
    let mut client = Client::new(
        "veche.spawn(function() http.get('http://a.test/', { stream = true }) end):cancel()",
    );
    assert!(client.0.effect_lines().is_empty());
    let mut client = Client::new(
        "local task = veche.spawn(function() http.get('http://a.test/', { stream = true }) end)
        veche.sleep(1) task:cancel()",
    );
    let (token, _) = client.fetch();
    client.0.advance(1000);
    let (life, body) = stream();
    client.reply(token, reply(body));
    assert!(!is_open(&life));
}

#[test]
fn closed_streams_say_so() {
    let mut client = Client::new(
        "local held
        veche.spawn(function() held = http.get('http://a.test/', { stream = true }) end):join()
        print(pcall(held.read, held))
        held.stream = -1 print(pcall(held.read, held)) held:close()
        held.stream = 0/0 print(pcall(held.read, held)) held:close()
        held.stream = 1e300 print(pcall(held.read, held)) held:close()",
    );
    client.0.pass_time();
    let (token, _) = client.fetch();
    client.reply(token, reply(stream().1));
    client.0.pass_time();
    let effects = client.0.effect_lines();
    assert_eq!(effects.len(), 4, "{effects:?}");
    assert!(
        effects
            .iter()
            .all(|line| line.contains("the response is closed")),
        "{effects:?}"
    );
}
