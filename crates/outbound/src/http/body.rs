//! Reads the body of a response, to its end or in part.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::Mutex;
use tokio::time::timeout;
use veche_calls::{CallError, CallErrorKind, CallOutcome, CallReply};

use super::connect::{error_text, io_kind};
use super::exchange::HttpExchange;
use super::gzip::Inflater;
use super::{fault, shown};

/// The approximate size of decompressed parts, in bytes.
const PIECE_BYTES: usize = 64 << 10;

/// The maximum number of bytes that are reserved because of a declared `Content-Length`.
const ANNOUNCED_BYTES_MAX: u64 = 1 << 20;

/// A body that is being read. If this value is dropped before the end of the body, the connection is closed.
pub(super) struct IncomingBody {
    /// The source of the rest of the body; `None` at the end of the body, and after an error.
    source: Option<(Incoming, HttpExchange)>,
    inflater: Option<Inflater>,
    /// The number of bytes that may still be read without exceeding `bytes_max`.
    left: u64,
    bytes_max: u64,
}

impl IncomingBody {
    pub(super) fn new(
        incoming: Incoming,
        exchange: HttpExchange,
        is_gzip: bool,
        bytes_max: u64,
    ) -> Self {
        Self {
            source: Some((incoming, exchange)),
            inflater: is_gzip.then(Inflater::new),
            left: bytes_max,
            bytes_max,
        }
    }

    /// Returns the next part, never empty; `None` at the end. Cancel-safe.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, CallError> {
        let piece = self.raw_piece().await;
        let piece = piece.and_then(|piece| {
            let length = piece.as_ref().map_or(0, Bytes::len) as u64;
            self.left = self
                .left
                .checked_sub(length)
                .ok_or_else(|| self.too_long())?;
            Ok(piece)
        });
        if piece.is_err() {
            self.source = None;
        }
        piece
    }

    fn too_long(&self) -> CallError {
        let words = format!(
            "the response is longer than {} bytes (max_body)",
            self.bytes_max
        );
        fault(CallErrorKind::Broken, words)
    }

    async fn raw_piece(&mut self) -> Result<Option<Bytes>, CallError> {
        loop {
            if let Some(inflater) = &mut self.inflater
                && !inflater.needs_input()
            {
                let piece = inflater.pull(PIECE_BYTES).map_err(no_gzip)?;
                if !piece.is_empty() {
                    return Ok(Some(piece.into()));
                }
            }
            let Some((incoming, _)) = &mut self.source else {
                return Ok(None);
            };
            match incoming.frame().await {
                Some(Ok(frame)) => {
                    // Trailers are ignored.
                    let Ok(bytes) = frame.into_data() else {
                        continue;
                    };
                    match &mut self.inflater {
                        Some(inflater) => inflater.push(bytes),
                        None if bytes.is_empty() => {}
                        None => return Ok(Some(bytes)),
                    }
                }
                Some(Err(error)) => return Err(broken_off(&error)),
                None => {
                    if let Some((_, exchange)) = self.source.take() {
                        exchange.finish();
                    }
                    let rest = self.inflater.take().map(|mut inflater| inflater.finish());
                    let rest = rest.transpose().map_err(no_gzip)?.unwrap_or_default();
                    return Ok((!rest.is_empty()).then(|| rest.into()));
                }
            }
        }
    }

    /// Reads the whole body.
    pub(super) async fn whole(mut self) -> Result<Vec<u8>, CallError> {
        use hyper::body::Body as _;
        let announced = self
            .source
            .as_ref()
            .and_then(|(body, _)| body.size_hint().exact());
        let announced = announced.filter(|_| self.inflater.is_none()).unwrap_or(0);
        if announced > self.bytes_max {
            return Err(self.too_long());
        }
        let mut whole = Vec::with_capacity(announced.min(ANNOUNCED_BYTES_MAX) as usize);
        while let Some(piece) = self.piece().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole)
    }

    /// Reads the rest of the body if it is short, so that the connection can be reused.
    pub(super) async fn discard(mut self) {
        self.inflater = None;
        self.left = PIECE_BYTES as u64;
        while let Ok(Some(_)) = self.piece().await {}
    }
}

fn no_gzip(error: std::io::Error) -> CallError {
    let words = format!("the response has Content-Encoding: gzip but is not gzip: {error}");
    fault(CallErrorKind::Broken, words)
}

fn broken_off(error: &hyper::Error) -> CallError {
    let is_closed = error.is_incomplete_message() || error.is_closed() || {
        let kind = io_kind(error);
        matches!(
            kind,
            Some(ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
        )
    };
    match is_closed {
        true => {
            let words = "the connection was closed in the middle of the response";
            fault(CallErrorKind::ConnectionLost, words)
        }
        false => {
            let words = format!("the response was interrupted: {}", error_text(error));
            fault(CallErrorKind::Broken, words)
        }
    }
}

/// A body that a script reads in parts.
pub(super) struct BodyStream {
    body: Mutex<IncomingBody>,
    /// The time limit for reading each part.
    timeout: Duration,
    /// The host of the request, which error texts name.
    place: String,
}

impl BodyStream {
    pub(super) fn new(body: IncomingBody, timeout: Duration, place: String) -> Self {
        let body = Mutex::new(body);
        Self {
            body,
            timeout,
            place,
        }
    }

    pub(super) async fn read(&self) -> CallOutcome {
        let piece = async { self.body.lock().await.piece().await };
        match timeout(self.timeout, piece).await {
            Ok(piece) => Ok(CallReply::Chunk(piece?.map(Vec::from))),
            Err(_) => {
                let (time, place) = (shown(self.timeout), &self.place);
                let words = format!("timeout after {time} reading the response from {place}");
                Err(fault(CallErrorKind::Timeout, words))
            }
        }
    }
}
