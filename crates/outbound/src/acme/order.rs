//! The steps of an order: account, challenges, certificate (RFC 8555 section 7.1).

use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Error, Identifier, NewAccount, NewOrder,
    OrderStatus, Problem, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Map, Value};
use veche_tls::{AlpnChallenge, AlpnChallenges};

use super::client::{AcmeClient, is_https};
use super::{CertificateOrder, IssuedCertificate, OrderError};

/// How often and how long to poll the authority's validation.
const ASKING: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(Duration::from_secs(90));

/// The types of problems that determine when to retry (RFC 8555 section 6.7).
const LIMITED: &str = "urn:ietf:params:acme:error:rateLimited";
const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";
const INTERNAL: &str = "urn:ietf:params:acme:error:serverInternal";
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// The progress of an order, which is read once the order has succeeded, failed or taken too long.
#[derive(Default)]
pub(super) struct OrderProgress {
    /// The account, if one was created for the order.
    pub(super) account: Option<String>,
    /// Whether the certificate was requested after all challenges were completed, so it may have been issued.
    pub(super) may_be_issued: bool,
}

/// Performs an order: finds or creates the account, completes the challenges, and gets the certificate.
pub(super) async fn perform(
    order: CertificateOrder,
    client: AcmeClient,
    progress: &mut OrderProgress,
) -> Result<IssuedCertificate, OrderError> {
    let account = account(&order, client, progress).await?;
    let names: Vec<Identifier> = order.names.iter().cloned().map(Identifier::Dns).collect();
    let mut going = account.new_order(&NewOrder::new(&names)).await?;
    // Challenges are presented until the authority has decided.
    let shown = complete_challenge(&mut going, &order.alpn_challenges).await?;
    let status = going.poll_ready(&ASKING).await;
    drop(shown);
    match status {
        Ok(OrderStatus::Ready) => {}
        Ok(_) | Err(Error::Api(_)) => {
            let why = reasons(&mut going).await;
            return Err(match (why.is_empty(), status) {
                (true, Err(error)) => error.into(),
                (true, Ok(_)) => OrderError::Refused("the authority rejected the order".to_owned()),
                (false, _) => OrderError::Refused(why.join("; ")),
            });
        }
        Err(error) => return Err(error.into()),
    }
    let (key, request) = request(&order.names)?;
    progress.may_be_issued = true;
    going.finalize_csr(&request).await?;
    let chain = going.poll_certificate(&ASKING).await?;
    Ok(IssuedCertificate { chain, key })
}

/// Returns a new key as PEM, and a certificate signing request for exactly the configured names, rather than the names in the
/// authority's response.
fn request(names: &[String]) -> Result<(String, Vec<u8>), OrderError> {
    let made = || {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key)?;
        Ok((key.serialize_pem(), request.der().to_vec()))
    };
    made().map_err(|error: rcgen::Error| OrderError::Refused(error.to_string()))
}

async fn account(
    order: &CertificateOrder,
    client: AcmeClient,
    progress: &mut OrderProgress,
) -> Result<Account, OrderError> {
    // The library does not check that the URL is https.
    if !is_https(&order.directory) {
        let words = format!("{:?} is not an https URL", order.directory);
        return Err(OrderError::Unreachable(words));
    }
    let builder = Account::builder_with_http(Box::new(client));
    if let Some(kept) = &order.account {
        let credentials = serde_json::from_str(kept).and_then(|mut kept: Map<String, Value>| {
            kept.insert("directory".to_owned(), order.directory.clone().into());
            serde_json::from_value(kept.into())
        });
        let credentials = credentials
            .map_err(|_| OrderError::NoAccount("the stored account is invalid".to_owned()))?;
        return Ok(builder.from_credentials(credentials).await?);
    }
    let contact: Vec<&str> = order.contact.iter().map(String::as_str).collect();
    let new = NewAccount {
        contact: &contact,
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let created = builder.create(&new, order.directory.clone(), None).await;
    let (account, credentials) = created?;
    let kept = serde_json::to_string(&credentials);
    progress.account = Some(kept.map_err(|error| OrderError::Refused(error.to_string()))?);
    Ok(account)
}

/// Presents the challenges of all names and waits for the validation.
async fn complete_challenge(
    order: &mut instant_acme::Order,
    alpn_challenges: &AlpnChallenges,
) -> Result<Vec<AlpnChallenge>, OrderError> {
    let mut shown = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        let name = authorization.identifier().to_string();
        match authorization.status {
            // The authority has validated the name recently, so no challenge is needed.
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => {
                let words = format!("{name}: the authorization is {status:?}");
                return Err(OrderError::Refused(words));
            }
        }
        let Some(mut challenge) = authorization.challenge(ChallengeType::TlsAlpn01) else {
            let words = format!("{name}: the authority does not offer TLS-ALPN-01");
            return Err(OrderError::Refused(words));
        };
        let digest = challenge.key_authorization().digest();
        let alpn_challenge = alpn_challenge(&name, digest.as_ref(), alpn_challenges);
        shown.push(alpn_challenge.map_err(|why| OrderError::Refused(format!("{name}: {why}")))?);
        challenge.set_ready().await?;
    }
    Ok(shown)
}

/// Creates the self-signed certificate with the challenge's digest (RFC 8737 section 3).
fn alpn_challenge(
    name: &str,
    digest: &[u8],
    alpn_challenges: &AlpnChallenges,
) -> Result<AlpnChallenge, String> {
    let made = || {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        Ok((params.self_signed(&key)?, key))
    };
    let (certificate, key) = made().map_err(|error: rcgen::Error| error.to_string())?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(str::to_owned)?;
    let shown = alpn_challenges.show(name, certificate.der().clone(), key);
    shown.map_err(|error| error.to_string())
}

/// Returns the authority's messages about failed challenges.
async fn reasons(order: &mut instant_acme::Order) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let name = authorization.identifier().to_string();
        let Ok(state) = authorization.refresh().await else {
            continue;
        };
        let problems = state.challenges.iter().filter_map(|one| one.error.as_ref());
        reasons.extend(problems.map(|problem| format!("{name}: {}", problem_text(problem))));
    }
    reasons
}

/// Formats a problem on one line.
pub(super) fn problem_text(problem: &Problem) -> String {
    let mut words = problem
        .detail
        .clone()
        .unwrap_or_else(|| "the authority gave no reason".to_owned());
    if let Some(kind) = &problem.r#type {
        words.push_str(&format!(" ({kind})"));
    }
    let one_line = words.chars().map(|c| if c.is_control() { ' ' } else { c });
    one_line.take(WORDS_MAX).collect()
}

/// The longest problem text in characters.
const WORDS_MAX: usize = 400;

impl From<Error> for OrderError {
    fn from(error: Error) -> Self {
        match error {
            Error::Api(problem) => {
                let words = problem_text(&problem);
                match problem.r#type.as_deref() {
                    Some(LIMITED) => Self::Limited {
                        why: words,
                        after_s: 0,
                    },
                    Some(NO_ACCOUNT) => Self::NoAccount(words),
                    // The request was valid; the problem is on the authority's side.
                    Some(BAD_NONCE | INTERNAL) => Self::Unreachable(words),
                    _ => Self::Refused(words),
                }
            }
            // An error that this module has already classified.
            Error::Other(other) => match other.downcast::<Self>() {
                Ok(failed) => *failed,
                Err(other) => Self::Refused(other.to_string()),
            },
            Error::Timeout(_) => {
                Self::Unreachable("the authority did not process the order in time".to_owned())
            }
            Error::Json(_) => {
                Self::Unreachable("unexpected response: is this URL an ACME directory?".to_owned())
            }
            other => Self::Refused(other.to_string()),
        }
    }
}
