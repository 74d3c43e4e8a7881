//! Establishes a connection: resolves the host, connects the socket, performs the TLS handshake, and starts the task that
//! drives the connection.

use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http_body_util::Full;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::sleep;
use tokio_rustls::TlsConnector;
use veche_calls::{CallError, CallErrorKind, CertificateTrust};
use veche_tls::TrustSource;

use super::pool::{ConnectionTarget, HttpConnection};
use super::{HttpClient, fault};
use crate::metrics::ConnectionGuard;

/// The delay after which the next address of a host is tried (RFC 8305, section 5).
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// The longest response head, and the read size of bodies, in bytes.
const HEAD_BYTES_MAX: usize = 128 << 10;

impl HttpClient {
    /// Dials the server, and performs the TLS handshake for `https`.
    pub(super) async fn connect(
        self: &Arc<Self>,
        place: &ConnectionTarget,
    ) -> Result<HttpConnection, CallError> {
        let stream = dial(place).await?;
        // Each request is sent in one write, so delaying small packets would only add latency.
        let _ = stream.set_nodelay(true);
        let connected = self.figures.connected();
        if !place.is_tls {
            return drive(TokioIo::new(stream), connected).await;
        }
        let broken = |why: &dyn std::fmt::Display| {
            let words = format!("TLS handshake with {} failed: {why}", place.shown());
            fault(CallErrorKind::Broken, words)
        };
        let trust = self.trust_store(tls_config(&place.trust)).await;
        let config = trust
            .map_err(|why| fault(CallErrorKind::Invalid, why))?
            .config();
        let name = ServerName::try_from(place.host.clone()).map_err(|error| broken(&error))?;
        let stream = TlsConnector::from(config).connect(name, stream).await;
        let stream = stream.map_err(|error| broken(&error))?;
        drive(TokioIo::new(stream), connected).await
    }

    /// Returns the trusted certificates; files are read on a thread that may block.
    async fn trust_store(
        &self,
        trust_source: TrustSource,
    ) -> Result<veche_tls::ClientTrust, String> {
        if let Some(known) = self.trusts.cached(&trust_source) {
            return Ok(known);
        }
        let trusts = Arc::clone(&self.trusts);
        match tokio::task::spawn_blocking(move || trusts.load(&trust_source)).await {
            Ok(found) => found.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn tls_config(trust: &CertificateTrust) -> TrustSource {
    match trust {
        CertificateTrust::System => TrustSource::System,
        CertificateTrust::File(file) => TrustSource::File(file.clone()),
        CertificateTrust::Insecure => TrustSource::Insecure,
    }
}

impl ConnectionTarget {
    /// Formats the target for error texts.
    pub(super) fn shown(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// Connects a socket to the first address that responds.
async fn dial(place: &ConnectionTarget) -> Result<TcpStream, CallError> {
    let unreachable = |why: &dyn std::fmt::Display| {
        let words = format!("cannot connect to {}: {why}", place.shown());
        fault(CallErrorKind::Unreachable, words)
    };
    let addresses = lookup_host((place.host.as_str(), place.port)).await;
    let mut addresses = addresses.map_err(|error| unreachable(&error))?;
    let mut attempts = FuturesUnordered::new();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        let next: Option<SocketAddr> = addresses.next();
        let has_next = next.is_some();
        attempts.extend(next.map(TcpStream::connect));
        tokio::select! {
            attempt = attempts.next() => match attempt {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err(error)) => last = error,
                None => return Err(unreachable(&last)),
            },
            () = sleep(NEXT_ADDRESS), if has_next => {}
        }
    }
}

/// Runs HTTP/1.1 on a stream, in a task that ends with the connection.
async fn drive<T>(stream: T, connected: ConnectionGuard) -> Result<HttpConnection, CallError>
where
    T: Read + Write + Unpin + Send + 'static,
{
    let mut builder = Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let handshake = builder.handshake::<_, Full<Bytes>>(stream).await;
    let (sender, connection): (SendRequest<Full<Bytes>>, _) =
        handshake.map_err(|error| fault(CallErrorKind::Broken, error_text(&error)))?;
    let task = tokio::spawn(async move {
        // The waiting request reports the error.
        let _ = connection.await;
        drop(connected);
    });
    Ok(HttpConnection {
        sender,
        task: task.abort_handle(),
    })
}

/// Returns the kind of the I/O error that caused an HTTP error; `None` if the cause was not an I/O error.
pub(super) fn io_kind(error: &hyper::Error) -> Option<io::ErrorKind> {
    let cause = error.source()?.downcast_ref::<io::Error>()?;
    Some(cause.kind())
}

/// Formats an error and its causes.
pub(super) fn error_text(error: &hyper::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}
