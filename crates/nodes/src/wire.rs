//! Serialisation of bytes, shared texts, and types of other crates.
//!
//! The names in this module, and in all types that derive `Serialize`, are part of the wire format. The test vectors
//! fail if they change.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use veche_types::{ConnectionId, Epoch, MessageKind, Payload, PayloadKind, Since, WorkerId};

#[derive(Serialize, Deserialize)]
#[serde(remote = "WorkerId")]
pub(crate) struct WireWorker(u16);

#[derive(Serialize, Deserialize)]
#[serde(remote = "ConnectionId")]
pub(crate) struct WireConnection {
    index: u32,
    generation: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "MessageKind", rename_all = "snake_case")]
pub(crate) enum WireMessageKind {
    Text,
    Binary,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "PayloadKind", rename_all = "snake_case")]
enum WirePayloadKind {
    Text,
    Json,
    Binary,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Payload")]
struct WirePayload {
    #[serde(with = "WirePayloadKind")]
    kind: PayloadKind,
    #[serde(with = "raw")]
    bytes: Bytes,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct WireSince {
    epoch: Option<u64>,
    offset: u64,
}

/// Serialises bytes as one byte string instead of a sequence of numbers.
pub(crate) mod raw {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        bytes: &impl AsRef<[u8]>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes.as_ref())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: TryFrom<Vec<u8>>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        deserializer.deserialize_byte_buf(RawVisitor(PhantomData))
    }

    struct RawVisitor<T>(PhantomData<T>);

    impl<T: TryFrom<Vec<u8>>> Visitor<'_> for RawVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<T, E> {
            self.visit_byte_buf(bytes.to_vec())
        }

        fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<T, E> {
            let length = bytes.len();
            T::try_from(bytes)
                .map_err(|_| E::invalid_length(length, &"as many bytes as the type has"))
        }
    }
}

/// Serialises a shared text as a string.
pub(crate) mod text {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        text: &Arc<str>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<str>, D::Error> {
        Box::<str>::deserialize(deserializer).map(Arc::from)
    }
}

/// An element of a list of shared texts.
struct Text(Arc<str>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::deserialize(deserializer).map(Self)
    }
}

/// Serialises a list of shared texts as a list of strings.
pub(crate) mod texts {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        texts: &[Arc<str>],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(texts.iter().map(|text| &**text))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Box<[Arc<str>]>, D::Error> {
        let texts = Vec::<Text>::deserialize(deserializer)?;
        Ok(texts.into_iter().map(|Text(text)| text).collect())
    }
}

/// Serialises a list of channels with their numbers of subscribers.
pub(crate) mod channels {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        channels: &[(Arc<str>, u32)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let pairs = channels.iter();
        serializer.collect_seq(pairs.map(|(channel, clients)| (&**channel, clients)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(Arc<str>, u32)>, D::Error> {
        let pairs = Vec::<(Text, u32)>::deserialize(deserializer)?;
        let pairs = pairs.into_iter();
        Ok(pairs
            .map(|(Text(channel), clients)| (channel, clients))
            .collect())
    }
}

/// Serialises the value in an [`Arc`].
pub(crate) mod shared {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        value: &Arc<impl Serialize>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
        deserializer: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}

/// Serialises a payload that may be absent.
pub(crate) mod payload {
    use super::*;

    struct BorrowedPayload<'a>(&'a Payload);

    impl Serialize for BorrowedPayload<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            WirePayload::serialize(self.0, serializer)
        }
    }

    struct OwnedPayload(Payload);

    impl<'de> Deserialize<'de> for OwnedPayload {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            WirePayload::deserialize(deserializer).map(Self)
        }
    }

    pub(crate) fn serialize<S: Serializer>(
        payload: &Option<Payload>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        payload.as_ref().map(BorrowedPayload).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Payload>, D::Error> {
        let payload = Option::<OwnedPayload>::deserialize(deserializer)?;
        Ok(payload.map(|OwnedPayload(payload)| payload))
    }
}

/// Serialises an optional position in a channel's stream.
pub(crate) mod since {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        since: &Option<Since>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let wire = since.map(|Since { epoch, offset }| WireSince {
            epoch: epoch.map(Epoch::bits),
            offset,
        });
        wire.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Since>, D::Error> {
        let Some(WireSince { epoch, offset }) = Option::deserialize(deserializer)? else {
            return Ok(None);
        };
        let epoch = epoch.map(epoch_of).transpose().map_err(D::Error::custom)?;
        Ok(Some(Since { epoch, offset }))
    }

    fn epoch_of(bits: u64) -> Result<Epoch, &'static str> {
        let known = [Epoch::UNKNOWN, Epoch::from_bits(bits)];
        let mut known = known.into_iter();
        known
            .find(|epoch| epoch.bits() == bits)
            .ok_or("not an epoch")
    }
}
