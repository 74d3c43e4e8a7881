//! Executes the actions that a test script requests from its clients and its back end, by writing bytes to their
//! connections.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use veche_script::Plain;

use super::TestRunner;
use crate::client::TestClient;

impl TestRunner<'_> {
    /// Opens a WebSocket; returns the client's number.
    pub(super) fn connect(&mut self, request: &Plain) -> Result<usize, String> {
        let (listener, host) = self.server.listener(&request.get("listener").text())?;
        let remote = remote(request)?;
        let target = line_of(request, "target")?;
        let protocols = line_of(request, "protocols")?;
        let headers = headers(request)?;
        Ok(self.world.dial(listener, remote, |id, network| {
            TestClient::open(id, network, &host, &target, &protocols, &headers)
        }))
    }

    /// Sends a request; returns the client's number.
    pub(super) fn request(&mut self, request: &Plain) -> Result<usize, String> {
        let (listener, host) = self.server.listener(&request.get("listener").text())?;
        let remote = remote(request)?;
        let (method, target) = (line_of(request, "method")?, line_of(request, "target")?);
        let headers = headers(request)?;
        let has = |wanted: &str| {
            let mut names = headers.iter();
            names.any(|(name, _)| name.eq_ignore_ascii_case(wanted))
        };
        let body = request.get("body").bytes();
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        if !has("host") {
            head += &format!("Host: {host}\r\n");
        }
        if *request.get("body") != Plain::Nil && !has("content-length") {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        for (name, value) in &headers {
            head += &format!("{name}: {value}\r\n");
        }
        let mut bytes = (head + "\r\n").into_bytes();
        bytes.extend_from_slice(body);
        Ok(self.world.dial(listener, remote, |id, network| {
            TestClient::ask(id, network, bytes, method == "HEAD")
        }))
    }

    /// Publishes as a back end, which is one of the test's clients. Returns the number of this client, which gets the response.
    pub(super) fn publish(&mut self, request: &Plain) -> usize {
        let mut line = json!({ "ack": true });
        for to in ["channel", "user"] {
            if *request.get(to) != Plain::Nil {
                line[to] = request.get(to).text().into();
            }
        }
        let data = request.get("data");
        match request.get("kind").bytes() {
            b"binary" => line["binary"] = STANDARD.encode(data.bytes()).into(),
            _ => line["data"] = data.text().into(),
        }
        let number = self.world.back_end();
        if let Some((client, network)) = self.world.client(number) {
            client.lines.clear();
            network.write(client.id, format!("{line}\n").into_bytes());
        }
        number
    }
}

fn remote(request: &Plain) -> Result<Option<IpAddr>, String> {
    match request.get("remote") {
        Plain::Nil => Ok(None),
        address => {
            let text = address.text();
            let parsed = text.parse().map(Some);
            parsed.map_err(|_| format!("remote: {text:?} is not an IP address"))
        }
    }
}

/// Returns a text parameter; an error if it can't be part of a header line.
fn line_of(request: &Plain, key: &str) -> Result<String, String> {
    checked(key, request.get(key).text())
}

fn checked(what: &str, text: String) -> Result<String, String> {
    match text.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        true => Err(format!("{what}: {text:?} contains a line break or NUL")),
        false => Ok(text),
    }
}

fn headers(request: &Plain) -> Result<Vec<(String, String)>, String> {
    let pairs = request.get("headers").items().iter();
    let pairs = pairs.filter_map(|pair| match pair.items() {
        [name, value] => Some((name.text(), value.text())),
        _ => None,
    });
    pairs
        .map(|(name, value)| Ok((checked("headers", name)?, checked("headers", value)?)))
        .collect()
}
