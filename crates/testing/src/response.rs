//! Parses one HTTP response for a test.

use std::collections::BTreeMap;

use httparse::Status;
use veche_proto::http::{BodyDecoder, Framing, HeadLimits};
use veche_script::Plain;

const HEADERS_MAX: usize = 200;

/// A complete HTTP response.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CompleteResponse {
    pub(super) status: u16,
    /// The headers: names in lower case, each with all its values in order.
    headers: BTreeMap<String, Vec<String>>,
    pub(super) body: Vec<u8>,
}

impl CompleteResponse {
    /// Parses a response; returns `None` while it is incomplete. `is_head`: the request was a HEAD, so no body follows.
    /// `is_ended`: the server has closed the connection.
    pub(super) fn read(
        bytes: &[u8],
        is_head: bool,
        is_ended: bool,
    ) -> Result<Option<Self>, String> {
        let mut rest = bytes;
        loop {
            let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
            let mut head = httparse::Response::new(&mut headers);
            let parsed = head.parse(rest);
            let length =
                match parsed.map_err(|error| format!("the response is not HTTP: {error}"))? {
                    Status::Complete(length) => length,
                    Status::Partial if is_ended => {
                        return Err("the connection ended without a response".to_owned());
                    }
                    Status::Partial => return Ok(None),
                };
            let status = head.code.unwrap_or_default();
            rest = &rest[length..];
            // An interim response is skipped.
            if (100..200).contains(&status) && status != 101 {
                continue;
            }
            let mut response = Self {
                status,
                headers: BTreeMap::new(),
                body: Vec::new(),
            };
            for header in head.headers.iter() {
                let value = String::from_utf8_lossy(header.value).into_owned();
                let name = header.name.to_ascii_lowercase();
                response.headers.entry(name).or_default().push(value);
            }
            let has_none = is_head || matches!(status, 101 | 204 | 304);
            let is_whole = has_none || response.take_body(rest, is_ended)?;
            return Ok(is_whole.then_some(response));
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.first().map(String::as_str)
    }

    /// Reads the body; returns whether it is complete.
    fn take_body(&mut self, mut rest: &[u8], is_ended: bool) -> Result<bool, String> {
        if self.header("transfer-encoding").is_some() {
            let limits = HeadLimits {
                body_bytes_max: u64::MAX,
                ..HeadLimits::default()
            };
            let mut decoder = BodyDecoder::new(Framing::Chunked, &limits);
            while !decoder.is_end() {
                let piece = decoder.decode(rest).map_err(|error| {
                    format!("the body of the response is malformed: {}", error.reason)
                })?;
                self.body.extend_from_slice(&rest[piece.data]);
                if piece.consumed == 0 && !piece.is_end {
                    return match is_ended {
                        true => Err("the response was cut off".to_owned()),
                        false => Ok(false),
                    };
                }
                rest = &rest[piece.consumed..];
            }
            return Ok(true);
        }
        let Some(length) = self.header("content-length") else {
            self.body = rest.to_vec();
            return Ok(is_ended);
        };
        let length: usize = length
            .parse()
            .map_err(|_| format!("Content-Length is not a number: {length:?}"))?;
        if rest.len() < length && is_ended {
            return Err("the response was cut off".to_owned());
        }
        self.body = rest[..length.min(rest.len())].to_vec();
        Ok(rest.len() >= length)
    }

    /// Describes a refused handshake for the log, since the test may not examine the response.
    pub(super) fn refusal(&self) -> String {
        let body = String::from_utf8_lossy(&self.body);
        let first = body.lines().next().unwrap_or_default();
        format!("a handshake was refused with {}: {first}", self.status)
    }

    /// Converts the response for a script.
    pub(super) fn to_plain(&self) -> Plain {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, values)| {
            let value = values.join(if name == "set-cookie" { "\n" } else { ", " });
            (name.clone(), Plain::from(value.as_str()))
        });
        Plain::map([
            ("status", Plain::Number(self.status.into())),
            ("headers", Plain::Map(headers.collect())),
            ("body", Plain::Bytes(self.body.clone())),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &str, is_ended: bool) -> Result<Option<(u16, String)>, String> {
        let response = CompleteResponse::read(bytes.as_bytes(), false, is_ended)?;
        Ok(response.map(|response| {
            let body = String::from_utf8_lossy(&response.body).into_owned();
            (response.status, body)
        }))
    }

    #[test]
    fn responses_of_each_framing() {
        for (wire, status, body) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200, "hi"),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
                404,
                "",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n",
                200,
                "hi!",
            ),
            ("HTTP/1.1 204 No Content\r\n\r\n", 204, ""),
        ] {
            for length in 0..wire.len() {
                assert_eq!(read(&wire[..length], false), Ok(None), "{length} of {wire}");
                assert!(read(&wire[..length], true).is_err(), "{length} of {wire}");
            }
            assert_eq!(
                read(wire, false),
                Ok(Some((status, body.to_owned()))),
                "{wire}"
            );
        }
        let open = "HTTP/1.0 200 OK\r\n\r\nto the end";
        assert_eq!(read(open, false), Ok(None));
        assert_eq!(read(open, true), Ok(Some((200, "to the end".to_owned()))));
        assert!(read("SSH-2.0\r\n\r\n", false).is_err());
    }
}
