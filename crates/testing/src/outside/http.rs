//! Mocked HTTP servers and host names.

use std::collections::VecDeque;
use std::net::IpAddr;

use veche_calls::{CallOutcome, CallReply, Handle, HttpReply, HttpRequest, ReadBody, ReplyBody};
use veche_script::Plain;

use super::MockState;
use super::stub::{StubCall, StubKind};

/// Checks that the stub of a host name returns valid IP addresses.
pub(super) fn check(request: &Plain) -> Result<(), String> {
    match request.get("kind").bytes() {
        b"resolve" => addresses(request.get("answer")).map(drop),
        _ => Ok(()),
    }
}

pub(super) fn addresses(answer: &Plain) -> Result<CallReply, String> {
    let texts = answer.items().iter().map(Plain::text);
    let addresses: Result<Vec<IpAddr>, String> = texts
        .map(|text| {
            text.parse()
                .map_err(|_| format!("{text:?} is not an IP address"))
        })
        .collect();
    Ok(CallReply::Addresses(addresses?))
}

pub(super) fn stub_call(fetch: &HttpRequest) -> StubCall {
    StubCall {
        kind: StubKind::Http,
        method: fetch.method.clone(),
        target: fetch.url.clone(),
        arguments: Plain::List(vec![call_value(fetch)]),
    }
}

/// Converts a request to a value for the test's script.
pub(super) fn call_value(fetch: &HttpRequest) -> Plain {
    let headers = fetch.headers.iter();
    let headers = headers.map(|(name, value)| (name.clone(), Plain::Bytes(value.clone())));
    Plain::map([
        ("method", Plain::from(fetch.method.as_str())),
        ("url", Plain::from(fetch.url.as_str())),
        ("headers", Plain::Map(headers.collect())),
        ("body", Plain::Bytes(fetch.body.clone())),
    ])
}

impl MockState {
    /// Builds the response from a stub's answer.
    pub(super) fn http_reply(&mut self, fetch: &HttpRequest, answer: &Plain) -> HttpReply {
        let headers = answer.get("headers").items().iter();
        let headers = headers.filter_map(|pair| match pair.items() {
            [name, value] => Some((name.text().to_ascii_lowercase(), value.bytes().to_vec())),
            _ => None,
        });
        let parts = answer.get("parts").items().iter();
        let parts: VecDeque<Vec<u8>> = parts.map(|part| part.bytes().to_vec()).collect();
        let body = if fetch.is_stream {
            let number = self.number();
            self.bodies.insert(number, parts);
            ReplyBody::Stream(Handle::new(number))
        } else {
            ReplyBody::Whole(parts.into_iter().flatten().collect())
        };
        HttpReply {
            status: answer.get("status").number().unwrap_or(200.0) as u16,
            headers: headers.collect(),
            url: fetch.url.clone(),
            body,
        }
    }

    /// Returns the next part of a streamed response body.
    pub(super) fn read_body(&mut self, read: &ReadBody) -> CallOutcome {
        let number = read.stream.of::<u64>();
        let body = number.and_then(|number| self.bodies.get_mut(&number));
        Ok(CallReply::Chunk(body.and_then(VecDeque::pop_front)))
    }
}
