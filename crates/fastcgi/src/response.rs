//! A response, assembled from the records of a connection.

use crate::client::{ClientLimits, Error};
use crate::head::CgiHead;
use crate::record::{NoRecord, Record, RecordDecoder, RecordKind};

/// Values of `protocolStatus` in an END_REQUEST record.
const COMPLETE: u8 = 0;
const OVERLOADED: u8 = 2;

/// The response of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status; 200 if the script set none.
    pub status: u16,
    /// Headers with their names as the script wrote them.
    pub headers: Vec<(String, String)>,
    /// The body of the response.
    pub body: Vec<u8>,
    /// The script's output on STDERR, truncated at the limit.
    pub log: Vec<u8>,
    /// Number of bytes of STDERR that were dropped because of the limit.
    pub log_lost_bytes: usize,
}

/// An incomplete response.
#[derive(Debug, Default)]
pub(crate) struct PartialResponse {
    decoder: RecordDecoder,
    output: Vec<u8>,
    log: Vec<u8>,
    log_lost_bytes: usize,
    has_begun: bool,
}

impl PartialResponse {
    /// Adds bytes; returns whether the response is complete.
    pub(crate) fn take(&mut self, bytes: &[u8], limits: &ClientLimits) -> Result<bool, Error> {
        self.has_begun = true;
        self.decoder.feed(bytes);
        while let Some(Record { kind, content }) = self.decoder.next().map_err(malformed)? {
            if kind == RecordKind::Stdout as u8 {
                if self.output.len() + content.len() > limits.response_bytes_max {
                    return Err(Error::TooLong(limits.response_bytes_max));
                }
                self.output.extend_from_slice(content);
            } else if kind == RecordKind::Stderr as u8 {
                let room = limits.log_bytes_max - self.log.len();
                let kept = content.len().min(room);
                self.log.extend_from_slice(&content[..kept]);
                self.log_lost_bytes += content.len() - kept;
            } else if kind == RecordKind::EndRequest as u8 {
                let &[_, _, _, _, status, ..] = content else {
                    return Err(Error::Malformed(
                        "the end record of the response is truncated".into(),
                    ));
                };
                return match status {
                    COMPLETE => Ok(true),
                    OVERLOADED => Err(Error::Overloaded),
                    other => {
                        let words = format!("the request was refused with protocol status {other}");
                        Err(Error::Malformed(words))
                    }
                };
            } else {
                return Err(Error::Malformed(format!(
                    "the response has an unexpected record of type {kind}"
                )));
            }
        }
        Ok(false)
    }

    /// Returns whether any output was received.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns whether no bytes followed the end of the response.
    pub(crate) fn is_clean(&self) -> bool {
        self.decoder.is_empty()
    }

    /// Returns the complete response.
    pub(crate) fn ended(self) -> Result<Response, Error> {
        let CgiHead {
            status,
            headers,
            body_at,
        } = CgiHead::read(&self.output).map_err(|error| self.no_head(error))?;
        let mut body = self.output;
        body.drain(..body_at);
        Ok(Response {
            status,
            headers,
            body,
            log: self.log,
            log_lost_bytes: self.log_lost_bytes,
        })
    }

    /// Returns an error with the content of STDERR, where php-fpm writes its reason, such as "Primary script unknown".
    fn no_head(&self, error: impl std::fmt::Display) -> Error {
        let log = String::from_utf8_lossy(&self.log);
        Error::Malformed(match log.trim() {
            "" => error.to_string(),
            log => format!("{error}: {log}"),
        })
    }
}

fn malformed(error: NoRecord) -> Error {
    Error::Malformed(error.to_string())
}
