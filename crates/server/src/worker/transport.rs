//! The layers between a socket and its connection.

use super::proxy_header::PendingProxyHeader;
use super::tls::TlsLayer;

/// The layer between a connection's socket and its application protocol; empty for a connection without PROXY header
/// and TLS.
#[derive(Default)]
pub(super) struct ConnectionTransport {
    /// PROXY header and TLS share one pointer: a connection has at most one of them at a time,
    /// since the header is complete before TLS starts.
    layer: Option<Box<TransportLayer>>,
}

#[expect(
    clippy::large_enum_variant,
    reason = "the value is boxed and is dropped once the PROXY header was read"
)]
pub(super) enum TransportLayer {
    /// The header of a proxy has not been received completely.
    ProxyHeader(PendingProxyHeader),
    /// The peer uses TLS.
    Tls(TlsLayer),
}

impl ConnectionTransport {
    pub(super) fn tls(tls_layer: TlsLayer) -> Self {
        Self {
            layer: Some(Box::new(TransportLayer::Tls(tls_layer))),
        }
    }

    pub(super) fn proxy_header(pending: PendingProxyHeader) -> Self {
        Self {
            layer: Some(Box::new(TransportLayer::ProxyHeader(pending))),
        }
    }

    #[inline]
    pub(super) fn layer(&self) -> Option<&TransportLayer> {
        self.layer.as_deref()
    }

    pub(super) fn proxy_header_mut(&mut self) -> Option<&mut PendingProxyHeader> {
        match self.layer.as_deref_mut() {
            Some(TransportLayer::ProxyHeader(pending)) => Some(pending),
            Some(TransportLayer::Tls(_)) | None => None,
        }
    }

    #[inline]
    pub(super) fn tls_layer(&self) -> Option<&TlsLayer> {
        match self.layer() {
            Some(TransportLayer::Tls(tls_layer)) => Some(tls_layer),
            Some(TransportLayer::ProxyHeader(_)) | None => None,
        }
    }

    #[inline]
    pub(super) fn tls_layer_mut(&mut self) -> Option<&mut TlsLayer> {
        match self.layer.as_deref_mut() {
            Some(TransportLayer::Tls(tls_layer)) => Some(tls_layer),
            Some(TransportLayer::ProxyHeader(_)) | None => None,
        }
    }

    /// Removes and returns the PROXY header or TLS layer. Without a layer, bytes are passed to the application protocol
    /// unchanged.
    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Returns the deadline of the PROXY header or TLS handshake, in monotonic milliseconds; `u64::MAX` if neither is
    /// pending.
    pub(super) fn opens_by_ms(&self) -> u64 {
        match self.layer() {
            Some(TransportLayer::ProxyHeader(pending)) => pending.until_ms(),
            Some(TransportLayer::Tls(tls_layer)) => tls_layer.until_ms(),
            None => u64::MAX,
        }
    }

    /// Returns whether the peer's FIN has to wait for earlier bytes.
    pub(super) fn holds_end(&mut self) -> bool {
        self.tls_layer_mut().is_some_and(TlsLayer::holds_end)
    }
}

const _: () = assert!(size_of::<ConnectionTransport>() == 8);
