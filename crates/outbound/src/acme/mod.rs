//! Certificate orders by ACME (RFC 8555), from the creation of the account to the issued chain, with the challenge TLS-ALPN-01
//! (RFC 8737).
//!
//! This module stores nothing and retries nothing: the caller stores the account and decides when to order again.
//! `instant-acme` implements the protocol, and the crate's HTTP client sends the requests.

mod client;
mod order;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use veche_calls::CertificateTrust;
use veche_tls::AlpnChallenges;

use crate::Outbound;

/// The time limit of an order, including the authority's validation.
const ORDER_TIME: Duration = Duration::from_secs(180);

/// An order of one certificate.
pub struct CertificateOrder {
    /// The URL of the authority's directory (RFC 8555 section 7.1.1).
    pub directory: String,
    /// A file of certificates to trust for connections to the ACME server; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// The contact addresses, such as `mailto:ops@example.org`, for a new account.
    pub contact: Vec<String>,
    /// The account from [`OrderOutcome::account`]; `None` creates one, which implies agreement to the authority's
    /// terms.
    pub account: Option<String>,
    /// The host names; at least one, without wildcards.
    pub names: Vec<String>,
    /// The store of challenge certificates, which the TLS listeners present.
    pub alpn_challenges: AlpnChallenges,
}

/// The outcome of an order.
pub struct OrderOutcome {
    /// The account created for the order, including its key. The caller should store the account even if the order failed.
    pub account: Option<String>,
    /// The certificate, or the error.
    pub result: Result<IssuedCertificate, OrderError>,
}

/// A certificate with a new key.
pub struct IssuedCertificate {
    /// The chain as PEM, the server's own certificate first.
    pub chain: String,
    /// The private key as PEM.
    pub key: String,
}

/// The error of an order, classified by when a retry makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderError {
    /// The authority is unreachable or has a problem.
    Unreachable(String),
    /// The authority refused, most often because a challenge failed.
    Refused(String),
    /// The authority's rate limit is exceeded (RFC 8555 section 6.6).
    Limited {
        /// The authority's message for the log.
        why: String,
        /// The requested delay in seconds: at most a day, 0 if none is given.
        after_s: u64,
    },
    /// The certificate may have been issued but was not received. Each retry may cause another
    /// certificate to be issued.
    Lost(String),
    /// The authority no longer knows the account.
    NoAccount(String),
}

impl fmt::Display for OrderError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unreachable(why)
        | Self::Refused(why)
        | Self::Limited { why, .. }
        | Self::Lost(why)
        | Self::NoAccount(why)) = self;
        out.write_str(why)
    }
}

impl std::error::Error for OrderError {}

impl Outbound {
    /// Orders a certificate. `done` receives the outcome on a thread of the runtime, or on the calling thread if the runtime
    /// can't be started.
    pub fn order(&self, order: CertificateOrder, done: impl FnOnce(OrderOutcome) + Send + 'static) {
        let runtime = match self.runtime() {
            Ok(runtime) => runtime,
            Err(error) => {
                let words = format!("can't start threads for outgoing calls: {error}");
                return done(OrderOutcome {
                    account: None,
                    result: Err(OrderError::Unreachable(words)),
                });
            }
        };
        let clients = Arc::clone(&self.0.clients);
        runtime.spawn(async move {
            let trust = match &order.ca {
                None => CertificateTrust::System,
                Some(file) => CertificateTrust::File(file.clone()),
            };
            let mut progress = order::OrderProgress::default();
            let client = client::AcmeClient { clients, trust };
            let going = order::perform(order, client, &mut progress);
            let result = match tokio::time::timeout(ORDER_TIME, going).await {
                Ok(result) => result,
                Err(_) => {
                    let words = format!("the order took longer than {} s", ORDER_TIME.as_secs());
                    Err(OrderError::Unreachable(words))
                }
            };
            done(OrderOutcome {
                account: progress.account,
                result: result.map_err(|why| match progress.may_be_issued {
                    true => OrderError::Lost(why.to_string()),
                    false => why,
                }),
            });
        });
    }
}
