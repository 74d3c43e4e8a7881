//! The connection that ordinary commands share. It is established on demand, and again after a
//! loss.
//!
//! While the server is unreachable, the delay between attempts to connect grows, and commands
//! between two attempts fail at once instead of being queued.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo as _, ProtocolVersion,
    PushInfo, PushKind, RedisConnectionInfo, TlsCertificates,
};
use socket2::TcpKeepalive;
use tokio::time::{Instant, timeout};
use veche_calls::redis::RedisDatabase;
use veche_calls::{CallError, CallErrorKind, TlsMode};

use super::PAUSES;
use super::values::{call_error, not_connected};
use crate::authority;
use crate::metrics::{ClientMetrics, ConnectionGuard};

/// The idle time after which the operating system sends keep-alive probes.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The maximum number of requests queued for the connection's task.
const BUFFER: usize = 1024;

/// Establishes connections to a server.
#[derive(Clone, Debug)]
pub(crate) struct RedisDialer {
    keyspace: Arc<RedisDatabase>,
}

impl RedisDialer {
    pub(crate) fn new(keyspace: &Arc<RedisDatabase>) -> Self {
        let keyspace = Arc::clone(keyspace);
        Self { keyspace }
    }

    /// Establishes a connection. `pushed` receives unsolicited messages, and [`PushKind::Disconnection`] when the connection
    /// ends.
    pub(crate) async fn connect(
        &self,
        pushed: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, CallError> {
        let client = self.client().await?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(BUFFER)
            .set_push_sender(move |push| {
                pushed(push);
                Ok::<(), redis::aio::SendError>(())
            });
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        connection.await.map_err(|error| not_connected(&error))
    }

    async fn client(&self) -> Result<Client, CallError> {
        let server = &self.keyspace.server;
        let address = match server.tls {
            TlsMode::Off => ConnectionAddr::Tcp(server.host.clone(), server.port),
            TlsMode::Public | TlsMode::Authority(_) => ConnectionAddr::TcpTls {
                host: server.host.clone(),
                port: server.port,
                insecure: false,
                tls_params: None,
            },
        };
        let mut account = RedisConnectionInfo::default()
            .set_db(self.keyspace.database.into())
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("veche", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &server.user {
            account = account.set_username(user);
        }
        if let Some(password) = &server.password {
            account = account.set_password(&password.0);
        }
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE / 3);
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(keepalive);
        let info = address
            .into_connection_info()
            .map_err(|error| call_error(&error))?;
        let info = info.set_redis_settings(account).set_tcp_settings(tcp);
        let client = match authority::read("redis", &server.tls).await? {
            Some(roots) => {
                let certificates = TlsCertificates {
                    client_tls: None,
                    root_cert: Some(roots.pem().to_vec()),
                };
                Client::build_with_tls(info, certificates)
            }
            None => Client::open(info),
        };
        client.map_err(|error| call_error(&error))
    }
}

/// One connection that the calls of all workers share.
pub(super) struct SharedConnection {
    dialer: RedisDialer,
    connect_timeout: Duration,
    state: Mutex<State>,
    /// Held during a connection attempt.
    connecting: tokio::sync::Mutex<()>,
    figures: Arc<ClientMetrics>,
}

impl fmt::Debug for SharedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedConnection")
    }
}

enum State {
    Up(ConnectionRef),
    Down {
        /// The time before which no further attempt to connect is made.
        until: Instant,
        pause: Duration,
        /// The error of the last attempt to connect.
        fault: Option<CallError>,
    },
}

/// A command's reference to the shared connection.
#[derive(Clone)]
pub(super) struct ConnectionRef {
    pub(super) connection: MultiplexedConnection,
    life: Arc<Liveness>,
    /// The number of responses that the connection had received when the command started.
    answers: u64,
}

struct Liveness {
    is_over: Arc<AtomicBool>,
    answers: AtomicU64,
    _connected: ConnectionGuard,
}

impl ConnectionRef {
    pub(super) fn count_answer(&self) {
        self.life.answers.fetch_add(1, Relaxed);
    }

    /// Returns whether no response has arrived on the connection since the command started.
    pub(super) fn is_silent(&self) -> bool {
        self.life.answers.load(Relaxed) == self.answers
    }
}

impl SharedConnection {
    pub(super) fn new(
        dialer: RedisDialer,
        connect_timeout: Duration,
        figures: Arc<ClientMetrics>,
    ) -> Self {
        Self {
            dialer,
            connect_timeout,
            state: Mutex::new(State::Down {
                until: Instant::now(),
                pause: PAUSES[0],
                fault: None,
            }),
            connecting: tokio::sync::Mutex::new(()),
            figures,
        }
    }

    /// Returns the connection; establishes a new one if it is known to be lost.
    pub(super) async fn connection(&self) -> Result<ConnectionRef, CallError> {
        if let Some(known) = self.known() {
            return known;
        }
        let _connecting = self.connecting.lock().await;
        // Another command may have connected, or failed to, while this one waited for the lock.
        if let Some(known) = self.known() {
            return known;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let connect = self.dialer.connect(move |push| {
            if push.kind == PushKind::Disconnection {
                flag.store(true, Relaxed);
            }
        });
        let connection = timeout(self.connect_timeout, connect)
            .await
            .unwrap_or_else(|_| {
                let words = format!("redis: no connection within {:?}", self.connect_timeout);
                Err(CallError::new(CallErrorKind::Unreachable, words))
            });
        match connection {
            Ok(connection) => Ok(self.up(connection, is_over)),
            Err(fault) => {
                self.down(fault.clone());
                Err(fault)
            }
        }
    }

    /// Returns the current connection, or the last error while the next attempt is delayed; `None` if an attempt is due.
    fn known(&self) -> Option<Result<ConnectionRef, CallError>> {
        match &*self.state.lock() {
            State::Up(up) => {
                let is_alive = !up.life.is_over.load(Relaxed);
                is_alive.then(|| {
                    let answers = up.life.answers.load(Relaxed);
                    Ok(ConnectionRef {
                        answers,
                        ..up.clone()
                    })
                })
            }
            State::Down { until, fault, .. } => {
                let fault = fault.as_ref().filter(|_| Instant::now() < *until)?;
                Some(Err(fault.clone()))
            }
        }
    }

    fn up(&self, connection: MultiplexedConnection, is_over: Arc<AtomicBool>) -> ConnectionRef {
        let up = ConnectionRef {
            connection,
            life: Arc::new(Liveness {
                is_over,
                answers: AtomicU64::new(0),
                _connected: self.figures.connected(),
            }),
            answers: 0,
        };
        *self.state.lock() = State::Up(up.clone());
        up
    }

    fn down(&self, fault: CallError) {
        let state = &mut *self.state.lock();
        let [first, longest] = PAUSES;
        let pause = match state {
            State::Down {
                pause,
                fault: Some(_),
                ..
            } => (*pause * 2).min(longest),
            _ => first,
        };
        *state = State::Down {
            until: Instant::now() + pause,
            pause,
            fault: Some(fault),
        };
    }

    /// Reports that a connection is unusable.
    pub(super) fn lost(&self, lost: &ConnectionRef) {
        lost.life.is_over.store(true, Relaxed);
    }
}
