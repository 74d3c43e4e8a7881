//! Outgoing WebSocket connections of applications, converted to the types of the front ends.

use std::net::SocketAddr;

use veche_calls::CertificateTrust;
use veche_frontends::{AppId, ClientOptions, Context, DialCommand, DialId};
use veche_hub::ConnectionId;
use veche_proto::websocket::MessageLimits;
use veche_runtime::{Runtime, Token};
use veche_tls::TrustSource;

use super::app_hosts::AppHosts;

/// Maximum number of fragments of one message from the remote server.
const FRAGMENTS_MAX: u32 = 65_536;

/// An outgoing connection that the worker has to open.
pub struct OutgoingConnection {
    /// The resolved address of the server.
    pub address: SocketAddr,
    /// The host name that the remote server's certificate has to match.
    pub host: String,
    /// The certificates to trust; `None` for a connection without TLS.
    pub tls: Option<TrustSource>,
    /// The options of the connection that the front ends need.
    pub dial: DialCommand,
}

/// A request to the worker about an outgoing connection.
pub enum DialAction {
    /// Opens a connection; the worker reports success or failure later.
    Dial(Box<OutgoingConnection>),
    /// Abandons a connection that is no longer needed.
    HangUp(DialId),
}

impl AppHosts {
    /// Takes the requests made since the last call, in order.
    pub fn take_dial_actions(&mut self) -> Vec<DialAction> {
        std::mem::take(&mut self.asked)
    }

    pub(super) fn dial(&mut self, app: AppId, token: Token, mut dial: veche_runtime::Dial) {
        self.calls.redirect(&mut dial);
        let tls = dial.tls.map(|trust| match trust {
            CertificateTrust::System => TrustSource::System,
            CertificateTrust::File(file) => TrustSource::File(file),
            CertificateTrust::Insecure => TrustSource::Insecure,
        });
        self.asked
            .push(DialAction::Dial(Box::new(OutgoingConnection {
                address: dial.address,
                host: dial.host,
                tls,
                dial: DialCommand {
                    caller: caller(app, token),
                    authority: dial.authority,
                    target: dial.target,
                    protocols: dial.protocols,
                    headers: dial.headers,
                    compresses: dial.compresses,
                    timeout_ms: dial.timeout_ms,
                    options: ClientOptions {
                        message_limits: MessageLimits {
                            message_bytes_max: dial.message_bytes_max,
                            fragments_max: FRAGMENTS_MAX,
                            inflate_ratio_max: 0,
                        },
                        ping_interval_ms: dial.ping_interval_ms,
                        pong_timeout_ms: dial.pong_timeout_ms,
                    },
                },
            })));
    }

    pub(super) fn hang_up(&mut self, app: AppId, token: Token) {
        self.asked.push(DialAction::HangUp(caller(app, token)));
    }

    pub(super) fn opened_client(
        &mut self,
        app: AppId,
        token: u64,
        id: ConnectionId,
        protocol: Option<&str>,
        shared: &mut Context,
    ) -> Option<()> {
        let token = Token(token);
        let (opened, _) = self.run(app, None, shared, |app, now| {
            app.runtime.client_opened(token, id, protocol, now)
        });
        opened.filter(|opened| *opened).map(drop)
    }

    pub(super) fn failed_client(
        &mut self,
        app: AppId,
        token: u64,
        why: &str,
        shared: &mut Context,
    ) {
        let token = Token(token);
        self.run(app, None, shared, |app, now| {
            app.runtime.client_failed(token, why, now);
        });
    }
}

fn caller(app: AppId, Token(token): Token) -> DialId {
    DialId { app, token }
}
