//! Client commands for HTTP fallback transports. They do not arrive on the connection that carries
//! the streaming response of their session, so they contain the address of that response.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use veche_types::{ConnectionId, WorkerId};

use crate::wire;

/// Length of the secret in bytes. The secret is random and known only to the client that receives
/// the response.
const SECRET_BYTES: usize = 16;

/// The address of a streaming response. It contains a secret that authorises the client to send commands for it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmulationAddress {
    /// The worker that holds the response.
    #[serde(with = "wire::WireWorker")]
    pub worker: WorkerId,
    /// The connection that carries the response.
    #[serde(with = "wire::WireConnection")]
    pub session: ConnectionId,
    #[serde(with = "wire::raw")]
    secret: [u8; SECRET_BYTES],
}

impl EmulationAddress {
    /// Creates the address of a streaming response. Only the client that receives the response may learn the
    /// secret.
    #[must_use]
    pub fn new(worker: WorkerId, session: ConnectionId, secret: [u8; SECRET_BYTES]) -> Self {
        Self {
            worker,
            session,
            secret,
        }
    }

    /// Returns whether both addresses are equal. The duration of the comparison does not depend on
    /// the secrets.
    #[must_use]
    pub fn equals_constant_time(&self, other: &Self) -> bool {
        let is_there = self.worker == other.worker && self.session == other.session;
        is_there && bool::from(self.secret.ct_eq(&other.secret))
    }

    /// Formats the address as the client receives it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut bytes = Vec::with_capacity(10 + SECRET_BYTES);
        bytes.extend_from_slice(&self.worker.0.to_be_bytes());
        bytes.extend_from_slice(&self.session.index.to_be_bytes());
        bytes.extend_from_slice(&self.session.generation.to_be_bytes());
        bytes.extend_from_slice(&self.secret);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Parses an address sent by a client; `None` if it is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (worker, rest) = bytes.split_first_chunk()?;
        let (index, rest) = rest.split_first_chunk()?;
        let (generation, secret) = rest.split_first_chunk()?;
        Some(Self {
            worker: WorkerId(u16::from_be_bytes(*worker)),
            session: ConnectionId {
                index: u32::from_be_bytes(*index),
                generation: u32::from_be_bytes(*generation),
            },
            secret: secret.try_into().ok()?,
        })
    }
}

impl std::fmt::Debug for EmulationAddress {
    /// Formats the session and the worker without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {:?}", self.session, self.worker)
    }
}

/// Commands that a client sends for its streaming response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmulationRequest {
    /// The address of the streaming response.
    pub to: EmulationAddress,
    /// The commands as sent by the client.
    #[serde(with = "wire::raw")]
    pub commands: Box<[u8]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let session = ConnectionId {
            index: 7,
            generation: u32::MAX,
        };
        let address = EmulationAddress::new(WorkerId(3), session, [0xa5; SECRET_BYTES]);
        let read = EmulationAddress::parse(&address.text()).expect("one");
        assert!(read.equals_constant_time(&address));
        let other = EmulationAddress::new(WorkerId(3), session, [0; SECRET_BYTES]);
        assert!(!read.equals_constant_time(&other));
        let text = address.text();
        for bad in ["", "x", "*", &text[1..], &format!("{text}AAAA")] {
            assert_eq!(EmulationAddress::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_address_is_the_same_in_all_its_parts() {
        let address = |worker, index, generation, last| {
            let mut secret = [7; SECRET_BYTES];
            secret[SECRET_BYTES - 1] = last;
            EmulationAddress::new(WorkerId(worker), ConnectionId { index, generation }, secret)
        };
        let own = address(1, 2, 3, 4);
        assert!(own.equals_constant_time(&address(1, 2, 3, 4)));
        for other in [
            address(0, 2, 3, 4),
            address(1, 0, 3, 4),
            address(1, 2, 0, 4),
            address(1, 2, 3, 0),
        ] {
            assert!(!own.equals_constant_time(&other), "{}", other.text());
        }
    }
}
