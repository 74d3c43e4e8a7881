//! Parsing of HTTP responses.

use std::sync::Arc;

use httparse::Status;
use veche_proto::http::{BodyDecoder, Framing, HeadLimits};

/// Maximum length of a response head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadResponse {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    /// Whether the body is the expected one; also true if the request expects no particular body.
    pub(crate) is_expected: bool,
    /// Whether the server closes the connection after this response.
    pub(crate) is_last: bool,
    /// Whether the beginning of the body contains a member `error`. Always false unless `may_say_error` is set.
    pub(crate) says_error: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseExpectation {
    /// Whether requests are HEAD, so that no body follows.
    pub(crate) is_head: bool,
    pub(crate) body: Option<Arc<[u8]>>,
    /// Whether bodies are JSON and may contain errors.
    pub(crate) may_say_error: bool,
}

/// Number of bytes of a body that are searched for an error.
const LOOKED_AT_BYTES: usize = 1024;

#[derive(Debug)]
pub(crate) struct ResponseReader {
    /// The received beginning of a response head.
    head: Vec<u8>,
    body: Body,
    now: LoadResponse,
    expect: ResponseExpectation,
    /// The beginning of the body, if it is searched.
    looked_at: Vec<u8>,
}

#[derive(Debug)]
enum Body {
    /// The head has not been received completely.
    Head,
    Sized(u64),
    Chunked(BodyDecoder),
    UntilEnd,
}

const BEFORE: LoadResponse = LoadResponse {
    status: 0,
    body_bytes: 0,
    is_expected: true,
    is_last: false,
    says_error: false,
};

impl ResponseReader {
    pub(crate) fn new(expect: ResponseExpectation) -> Self {
        Self {
            head: Vec::new(),
            body: Body::Head,
            now: BEFORE,
            expect,
            looked_at: Vec::new(),
        }
    }

    /// Returns whether a part of a response has been received.
    pub(crate) fn is_midway(&self) -> bool {
        !self.head.is_empty() || !matches!(self.body, Body::Head)
    }

    /// Consumes bytes from the front of `input`. Returns their number, and the response if these
    /// bytes complete it.
    pub(crate) fn read(&mut self, input: &[u8]) -> Result<(usize, Option<LoadResponse>), String> {
        let mut taken = 0;
        if matches!(self.body, Body::Head) {
            match self.read_head(input)? {
                Some(length) => taken = length,
                None => return Ok((input.len(), None)),
            }
        }
        let rest = &input[taken..];
        match &mut self.body {
            Body::Sized(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                *left -= length as u64;
                let is_end = *left == 0;
                self.data(&rest[..length]);
                Ok((taken + length, is_end.then(|| self.finish())))
            }
            Body::Chunked(decoder) => {
                let piece = decoder.decode(rest).map_err(|error| {
                    format!("the body of the response is malformed: {}", error.reason)
                })?;
                self.data(&rest[piece.data]);
                let taken = taken + piece.consumed;
                Ok((taken, piece.is_end.then(|| self.finish())))
            }
            Body::UntilEnd => {
                self.data(rest);
                Ok((input.len(), None))
            }
            // An interim response (status 1xx) does not answer the request.
            Body::Head => Ok((taken, None)),
        }
    }

    /// Handles the end of the connection. If the body of the current response has no length, the body ends here, and the
    /// response is returned.
    pub(crate) fn end(&mut self) -> Option<LoadResponse> {
        matches!(self.body, Body::UntilEnd).then(|| self.finish())
    }

    fn finish(&mut self) -> LoadResponse {
        let mut response = std::mem::replace(&mut self.now, BEFORE);
        self.body = Body::Head;
        if let Some(expect) = &self.expect.body {
            response.is_expected &= response.body_bytes == expect.len() as u64;
        }
        response.says_error = says_error(&self.looked_at);
        self.looked_at.clear();
        response
    }

    fn data(&mut self, data: &[u8]) {
        if self.expect.may_say_error {
            let room = LOOKED_AT_BYTES.saturating_sub(self.looked_at.len());
            self.looked_at
                .extend_from_slice(&data[..data.len().min(room)]);
        }
        if let Some(expect) = &self.expect.body {
            let due = usize::try_from(self.now.body_bytes)
                .ok()
                .and_then(|from| expect.get(from..)?.get(..data.len()));
            self.now.is_expected &= due == Some(data);
        }
        self.now.body_bytes += data.len() as u64;
    }

    /// Returns the number of bytes of `input` that complete the head; `None` while it is incomplete.
    fn read_head(&mut self, input: &[u8]) -> Result<Option<usize>, String> {
        if self.head.is_empty() {
            if let Some(length) = self.parse_head(input)? {
                return Ok(Some(length));
            }
            self.head.extend_from_slice(input);
            return Ok(None);
        }
        let before = self.head.len();
        let mut head = std::mem::take(&mut self.head);
        head.extend_from_slice(input);
        if let Some(length) = self.parse_head(&head)? {
            return Ok(Some(length - before));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(format!(
                "the response head has more than {HEAD_BYTES_MAX} bytes"
            ));
        }
        self.head = head;
        Ok(None)
    }

    fn parse_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, String> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let length = match response.parse(bytes) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => return Ok(None),
            Err(error) => return Err(format!("the response is not HTTP: {error}")),
        };
        let status = response.code.unwrap_or_default();
        if (100..200).contains(&status) && status != 101 {
            return Ok(Some(length));
        }
        let mut keep_alive = response.version == Some(1);
        let (mut is_chunked, mut size) = (false, None);
        for header in response.headers.iter() {
            let has = |token: &str| {
                header
                    .value
                    .split(|byte| *byte == b',')
                    .any(|member| member.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
            };
            if header.name.eq_ignore_ascii_case("content-length") {
                let text = std::str::from_utf8(header.value).unwrap_or_default();
                let value: u64 = text
                    .trim()
                    .parse()
                    .map_err(|_| format!("the response has an invalid Content-Length: {text:?}"))?;
                size = Some(value);
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                is_chunked |= has("chunked");
            } else if header.name.eq_ignore_ascii_case("connection") {
                keep_alive = (keep_alive || has("keep-alive")) && !has("close");
            }
        }
        self.now = LoadResponse {
            status,
            body_bytes: 0,
            is_expected: true,
            is_last: !keep_alive,
            says_error: false,
        };
        self.body = if self.expect.is_head || matches!(status, 101 | 204 | 304) {
            Body::Sized(0)
        } else if is_chunked {
            let limits = HeadLimits {
                body_bytes_max: u64::MAX,
                ..HeadLimits::default()
            };
            Body::Chunked(BodyDecoder::new(Framing::Chunked, &limits))
        } else if let Some(size) = size {
            Body::Sized(size)
        } else {
            self.now.is_last = true;
            Body::UntilEnd
        };
        Ok(Some(length))
    }
}

/// Returns whether JSON probably has a member `error`, without parsing it.
pub(crate) fn says_error(json: &[u8]) -> bool {
    const MEMBER: &[u8] = b"\"error\"";
    json.windows(MEMBER.len()).any(|window| window == MEMBER)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all responses, regardless of how the bytes are split.
    fn read(bytes: &[u8], expect: Option<&[u8]>) -> Result<Vec<LoadResponse>, String> {
        let mut all = Vec::new();
        for size in [1, 2, 3, 7, bytes.len()] {
            let mut reader = ResponseReader::new(ResponseExpectation {
                body: expect.map(Arc::from),
                may_say_error: true,
                ..ResponseExpectation::default()
            });
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                let mut rest = piece;
                while !rest.is_empty() {
                    let (taken, response) = reader.read(rest)?;
                    found.extend(response);
                    rest = &rest[taken..];
                }
            }
            found.extend(reader.end());
            all.push(found);
        }
        assert!(all.windows(2).all(|two| two[0] == two[1]), "{all:?}");
        Ok(all.swap_remove(0))
    }

    #[test]
    fn responses_one_behind_the_other() {
        let wire = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
            HTTP/1.1 100 Continue\r\n\r\n\
            HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
            HTTP/1.1 204 No Content\r\n\r\n\
            HTTP/1.0 200 OK\r\n\r\nto the end";
        let got = read(wire, Some(b"hello")).unwrap();
        let short: Vec<_> = got
            .iter()
            .map(|response| {
                (
                    response.status,
                    response.body_bytes,
                    response.is_expected,
                    response.is_last,
                )
            })
            .collect();
        assert_eq!(
            short,
            [
                (200, 5, true, false),
                (404, 3, false, false),
                (204, 0, false, false),
                (200, 10, false, true)
            ]
        );
    }

    #[test]
    fn keep_alive_is_as_the_version_and_the_header_say() {
        for (head, is_last) in [
            ("HTTP/1.1 200 OK", false),
            ("HTTP/1.1 200 OK\r\nConnection: close", true),
            ("HTTP/1.0 200 OK", true),
            ("HTTP/1.0 200 OK\r\nConnection: Keep-Alive", false),
        ] {
            let wire = format!("{head}\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(
                read(wire.as_bytes(), None).unwrap()[0].is_last,
                is_last,
                "{head}"
            );
        }
    }

    #[test]
    fn errors_with_a_good_status_are_seen() {
        let wire = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{\"error\":{\"code\":1}}\
            HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"result\":{}}";
        let says: Vec<_> = read(wire, None)
            .unwrap()
            .iter()
            .map(|response| response.says_error)
            .collect();
        assert_eq!(says, [true, false]);
    }

    #[test]
    fn garbage_is_reported() {
        assert!(read(b"SSH-2.0-OpenSSH_9.2\r\n", None).is_err());
        assert!(read(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", None).is_err());
        assert!(
            read(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                None
            )
            .is_err()
        );
    }
}
