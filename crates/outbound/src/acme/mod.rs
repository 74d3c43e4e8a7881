//! Orders of certificates by ACME (RFC 8555): one order from the account to the chain, proven by TLS-ALPN-01 (RFC 8737).
//!
//! It keeps nothing and tries nothing twice: whoever orders keeps the account and decides when to order again. The
//! protocol is `instant-acme`'s; what goes over the wire goes by the HTTP client that everybody has.

mod client;
mod order;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use veche_calls::CertificateTrust;
use veche_tls::AlpnChallenges;

use crate::Outbound;

/// From the first request to the chain: an authority may take its time over proofs.
const ORDER_TIME: Duration = Duration::from_secs(180);

/// One certificate to be had.
pub struct CertificateOrder {
    /// The URL of the authority's directory (RFC 8555 section 7.1.1).
    pub directory: String,
    /// Who vouches for the authority's own server, if not the system's authorities.
    pub ca: Option<PathBuf>,
    /// Whom the authority may write to, such as `mailto:ops@example.org`. For new accounts.
    pub contact: Vec<String>,
    /// As [`OrderOutcome::account`] had it; without one an account is made, which means that the authority's terms are agreed to.
    pub account: Option<String>,
    /// Host names, at least one; no wildcards.
    pub names: Vec<String>,
    /// Where proofs are shown.
    pub proofs: AlpnChallenges,
}

/// What has become of an order.
pub struct OrderOutcome {
    /// An account that was made for it, to be kept also if the order has failed. It has the account's key in it.
    pub account: Option<String>,
    /// The certificate, or why there is none.
    pub result: Result<IssuedCertificate, OrderError>,
}

/// A certificate with a new key.
pub struct IssuedCertificate {
    /// The chain, the server's own first, as PEM.
    pub chain: String,
    /// The private key, as PEM.
    pub key: String,
}

/// Why there is no certificate, split by how soon another try makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderError {
    /// The authority can't be reached, or is in trouble itself.
    Unreachable(String),
    /// It does not issue this: most often a proof has failed.
    Refused(String),
    /// There were too many orders (RFC 8555 section 6.6).
    Limited {
        /// In words.
        why: String,
        /// For so many seconds the authority wants none: at most a day, 0 if it does not say.
        after_s: u64,
    },
    /// It may have been issued, but it did not get here: each further try may cost another certificate.
    Lost(String),
    /// It does not know the account any more.
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
    /// Has a certificate ordered; `done` is called with what has become of it, on a thread of the runtime, or on this one
    /// if there is none.
    pub fn order(&self, order: CertificateOrder, done: impl FnOnce(OrderOutcome) + Send + 'static) {
        let runtime = match self.runtime() {
            Ok(runtime) => runtime,
            Err(error) => {
                let words = format!("no threads for calls to the outside: {error}");
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
            let mut course = order::OrderProgress::default();
            let client = client::AcmeClient { clients, trust };
            let going = order::perform(order, client, &mut course);
            let result = match tokio::time::timeout(ORDER_TIME, going).await {
                Ok(result) => result,
                Err(_) => {
                    let words = format!("it took longer than {} s", ORDER_TIME.as_secs());
                    Err(OrderError::Unreachable(words))
                }
            };
            done(OrderOutcome {
                account: course.account,
                result: result.map_err(|why| match course.may_be_issued {
                    true => OrderError::Lost(why.to_string()),
                    false => why,
                }),
            });
        });
    }
}
