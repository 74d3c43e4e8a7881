//! Calls of scripts behind FastCGI: the number of concurrent requests is limited, and further requests wait in order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout};
use veche_calls::{
    CallError, CallErrorKind, CallOutcome, CallReply, FastcgiCall, FastcgiPool, FastcgiReply,
};
use veche_fastcgi::{Cgi, ClientLimits, Error, Params, Response};

use crate::metrics::ClientMetrics;

/// The maximum number of stored bytes of a response's STDERR.
const LOG_BYTES_MAX: usize = 64 << 10;

/// The delay before the next attempt if a socket's backlog is full.
const PAUSE: Duration = Duration::from_millis(10);

/// The content type of a request's body.
const CONTENT_TYPE: &str = "application/octet-stream";

/// A FastCGI server, and the requests that wait for it.
#[derive(Debug)]
pub(crate) struct FastcgiServer {
    /// `None` if the address is invalid, which the configuration excludes.
    client: Option<veche_fastcgi::Client>,
    free: Semaphore,
    figures: Arc<ClientMetrics>,
}

impl FastcgiServer {
    pub(crate) fn new(pool: &FastcgiPool, figures: Arc<ClientMetrics>) -> Self {
        let limits = ClientLimits {
            idle_timeout: pool.idle_timeout,
            connect_timeout: pool.connect_timeout,
            response_bytes_max: pool.response_bytes_max,
            log_bytes_max: LOG_BYTES_MAX,
        };
        let address = pool.address.parse().ok();
        Self {
            client: address.map(|address| veche_fastcgi::Client::new(address, limits)),
            free: Semaphore::new(pool.size),
            figures,
        }
    }

    /// Performs one request and reads its complete response.
    pub(crate) async fn perform(&self, call: FastcgiCall) -> CallOutcome {
        let pool = Arc::clone(&call.pool);
        let params =
            params(&call).map_err(|words| CallError::new(CallErrorKind::Invalid, words))?;
        let Some(client) = &self.client else {
            let words = format!("fastcgi: {:?} is not a valid address", pool.address);
            return Err(CallError::new(CallErrorKind::Invalid, words));
        };
        let since = Instant::now();
        let _permit = self.permit(&pool).await?;
        let _busy = self.figures.used();
        loop {
            let request = client.request(params.clone(), &call.body);
            match timeout(pool.timeout, request).await {
                Ok(Ok(response)) => return Ok(CallReply::Fastcgi(reply(response))),
                // The server is also used by other clients and is busy with their requests. The script has not run, so
                // the request is repeated.
                Ok(Err(Error::Overloaded)) if since.elapsed() < pool.wait_timeout => {
                    sleep(PAUSE).await;
                }
                Ok(Err(error)) => return Err(fault(&pool, &error)),
                Err(_) => {
                    let words = format!("fastcgi: no response within {:?}", pool.timeout);
                    return Err(CallError::new(CallErrorKind::Timeout, words));
                }
            }
        }
    }

    /// Waits for one of the pool's connections to be free.
    async fn permit(&self, pool: &FastcgiPool) -> Result<SemaphorePermit<'_>, CallError> {
        if let Ok(permit) = self.free.try_acquire() {
            return Ok(permit);
        }
        let _waiting = self.figures.wait();
        match timeout(pool.wait_timeout, self.free.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => {
                let (size, within) = (pool.size, pool.wait_timeout);
                let words = format!(
                    "fastcgi: all {size} connections to {} were busy for {within:?}",
                    pool.address
                );
                Err(CallError::new(CallErrorKind::PoolFull, words))
            }
        }
    }
}

fn params(call: &FastcgiCall) -> Result<Params, String> {
    let client = &call.client;
    let cgi = Cgi {
        script: &call.pool.script,
        body_bytes: call.body.len(),
        content_type: CONTENT_TYPE,
        path: &client.path,
        query: &client.query,
        remote: client.remote,
        local: None,
        is_tls: false,
    };
    let headers = client.headers.iter();
    let headers = headers.map(|(name, value)| (&**name, &**value));
    let mut params = cgi.params(headers).map_err(|error| error.to_string())?;
    for (name, value) in &call.variables {
        let pushed = params.push(name, value.0.as_bytes());
        pushed.map_err(|error| error.to_string())?;
    }
    Ok(params)
}

fn reply(response: Response) -> FastcgiReply {
    FastcgiReply {
        status: response.status,
        body: response.body,
        log: response.log,
    }
}

fn fault(pool: &FastcgiPool, error: &Error) -> CallError {
    let kind = match error {
        Error::Overloaded => CallErrorKind::PoolFull,
        Error::Unreachable(_) => CallErrorKind::Unreachable,
        Error::Lost(_) => CallErrorKind::ConnectionLost,
        Error::Malformed(_) | Error::TooLong(_) => CallErrorKind::Broken,
    };
    CallError::new(kind, format!("fastcgi: {}: {error}", pool.address))
}
