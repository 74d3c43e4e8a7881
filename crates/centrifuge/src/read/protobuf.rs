//! Mapping of Protobuf fields to requests. Unknown fields are skipped; the last of duplicate fields counts, as Protobuf
//! requires.

use std::borrow::Cow;

use super::wire::{self, FieldValue};
use crate::request::CommandBuilder;
use crate::{
    ChannelRequest, ClientRequest, ConnectRequest, ENTRIES_MAX, EmulationBody, HistoryRequest,
    MalformedMessage, PublicationData, PublishRequest, RefreshRequest, RpcRequest, SecretText,
    SendRequest, ServerSub, StreamPosition, SubRefreshRequest, SubscribeRequest,
};

/// A decodable message: created with default values, then filled field by field.
pub(super) trait Message<'a>: Default {
    /// Stores a field if its number is known.
    fn take(&mut self, field: Field<'a>) -> Result<(), MalformedMessage>;
}

/// Decodes a message that takes up all of `bytes`.
pub(super) fn message<'a, M: Message<'a>>(bytes: &'a [u8]) -> Result<M, MalformedMessage> {
    let mut message = M::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (number, value) = wire::field(&mut rest)?;
        message.take(Field { number, value })?;
    }
    Ok(message)
}

/// A field whose value is decoded as the expected type.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    number: u32,
    value: FieldValue<'a>,
}

impl<'a> Field<'a> {
    fn unexpected(self) -> MalformedMessage {
        MalformedMessage::Field { field: self.number }
    }

    fn bytes(self) -> Result<&'a [u8], MalformedMessage> {
        self.value.bytes().ok_or_else(|| self.unexpected())
    }

    fn text(self) -> Result<Cow<'a, str>, MalformedMessage> {
        super::text(self.bytes()?).map(Cow::Borrowed)
    }

    fn data(self) -> Result<Option<PublicationData<'a>>, MalformedMessage> {
        // Protobuf does not distinguish absent data from empty data.
        let bytes = self.bytes()?;
        Ok((!bytes.is_empty()).then_some(PublicationData::Binary(bytes)))
    }

    fn message<M: Message<'a>>(self) -> Result<M, MalformedMessage> {
        message(self.bytes()?)
    }

    fn u64(self) -> Result<u64, MalformedMessage> {
        self.value.varint().ok_or_else(|| self.unexpected())
    }

    /// Returns an error for a value above 32 bits, which other decoders would truncate.
    fn u32(self) -> Result<u32, MalformedMessage> {
        self.u64()?.try_into().map_err(|_| self.unexpected())
    }

    fn i64(self) -> Result<i64, MalformedMessage> {
        self.u64().map(|value| value as i64)
    }

    fn i32(self) -> Result<i32, MalformedMessage> {
        self.i64()?.try_into().map_err(|_| self.unexpected())
    }

    fn bool(self) -> Result<bool, MalformedMessage> {
        self.u64().map(|value| value != 0)
    }
}

/// Adds an entry of a map. One entry beyond [`ENTRIES_MAX`] is kept, so that the caller detects the excess; further
/// ones are dropped.
fn push<T>(entries: &mut Vec<T>, entry: T) {
    if entries.len() <= ENTRIES_MAX {
        entries.push(entry);
    }
}

impl<'a> Message<'a> for CommandBuilder<'a> {
    fn take(&mut self, field: Field<'a>) -> Result<(), MalformedMessage> {
        let request = match field.number {
            1 => {
                self.id = field.u32()?;
                return Ok(());
            }
            4 => ClientRequest::Connect(field.message()?),
            5 => ClientRequest::Subscribe(field.message()?),
            6 => ClientRequest::Unsubscribe(field.message()?),
            7 => ClientRequest::Publish(field.message()?),
            8 => ClientRequest::Presence(field.message()?),
            9 => ClientRequest::PresenceStats(field.message()?),
            10 => ClientRequest::History(field.message()?),
            11 => field
                .message::<EmptyMessage>()
                .map(|_| ClientRequest::Ping)?,
            12 => ClientRequest::Send(field.message()?),
            13 => ClientRequest::Rpc(field.message()?),
            14 => ClientRequest::Refresh(field.message()?),
            15 => ClientRequest::SubRefresh(field.message()?),
            _ => return Ok(()),
        };
        self.add(request);
        Ok(())
    }
}

impl<'a> Message<'a> for ConnectRequest<'a> {
    fn take(&mut self, field: Field<'a>) -> Result<(), MalformedMessage> {
        match field.number {
            1 => self.token = SecretText(field.text()?),
            2 => self.data = field.data()?,
            3 => {
                let entry: Entry<'_, SubscribeRequest<'_>> = field.message()?;
                push(
                    &mut self.subs,
                    ServerSub {
                        channel: entry.key,
                        recover: entry.value.recover,
                        position: StreamPosition {
                            offset: entry.value.offset,
                            epoch: entry.value.epoch,
                        },
                        join_leave: entry.value.join_leave,
                    },
                );
            }
            4 => self.name = field.text()?,
            5 => self.version = field.text()?,
            6 => {
                let entry: Entry<'_, Cow<'_, str>> = field.message()?;
                push(&mut self.headers, (entry.key, SecretText(entry.value)));
            }
            7 => self.flag = field.i64()?,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for SubscribeRequest<'a> {
    fn take(&mut self, field: Field<'a>) -> Result<(), MalformedMessage> {
        match field.number {
            1 => self.channel = field.text()?,
            2 => self.token = SecretText(field.text()?),
            3 => self.recover = field.bool()?,
            6 => self.epoch = field.text()?,
            7 => self.offset = field.u64()?,
            8 => self.data = field.data()?,
            9 => self.positioned = field.bool()?,
            10 => self.recoverable = field.bool()?,
            11 => self.join_leave = field.bool()?,
            12 => self.delta = field.text()?,
            13 => self.filter = Some(PublicationData::Binary(field.bytes()?)),
            14 => self.flag = field.i64()?,
            15 => self.kind = field.i32()?,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for ChannelRequest<'a> {
    fn take(&mut self, field: Field<'a>) -> Result<(), MalformedMessage> {
        if field.number == 1 {
            self.channel = field.text()?;
        }
        Ok(())
    }
}

impl<'a> Message<'a> for PublishRequest<'a> {
    fn take(&mut self, field: Field<'a>) -> Result<(), MalformedMessage> {
        match field.number {
            1 => self.channel = field.text()?,
            2 => self.data = field.data()?,
            3 => self.kind = field.i32()?,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for HistoryRequest<'a> {
    fn take(&mut self, field: Field<'a>) -> Result<(), MalformedMessage> {
        match field.number {
            1 => self.channel = field.text()?,
            7 => self.limit = field.i32()?,
            8 => self.since = Some(field.message()?),
            9 => self.reverse = field.bool()?,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for StreamPosition<'a> {
    fn take(&mut self, field: Field<'a>) -> Result<(), MalformedMessage> {
        match field.number {
            1 => self.offset = field.u64()?,
            2 => self.epoch = field.text()?,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for SendRequest<'a> {
    fn take(&mut self, field: Field<'a>) -> Result<(), MalformedMessage> {
        if field.number == 1 {
            self.data = field.data()?;
        }
        Ok(())
    }
}

impl<'a> Message<'a> for RpcRequest<'a> {
    fn take(&mut self, field: Field<'a>) -> Result<(), MalformedMessage> {
        match field.number {
            1 => self.data = field.data()?,
            2 => self.method = field.text()?,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for RefreshRequest<'a> {
    fn take(&mut self, field: Field<'a>) -> Result<(), MalformedMessage> {
        if field.number == 1 {
            self.token = SecretText(field.text()?);
        }
        Ok(())
    }
}

impl<'a> Message<'a> for SubRefreshRequest<'a> {
    fn take(&mut self, field: Field<'a>) -> Result<(), MalformedMessage> {
        match field.number {
            1 => self.channel = field.text()?,
            2 => self.token = SecretText(field.text()?),
            3 => self.kind = field.i32()?,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for EmulationBody<'a> {
    fn take(&mut self, field: Field<'a>) -> Result<(), MalformedMessage> {
        match field.number {
            1 => self.node = field.text()?,
            2 => self.session = field.text()?,
            3 => self.data = Cow::Borrowed(field.bytes()?),
            _ => {}
        }
        Ok(())
    }
}

/// A message whose fields are ignored.
#[derive(Default)]
struct EmptyMessage;

impl<'a> Message<'a> for EmptyMessage {
    fn take(&mut self, _field: Field<'a>) -> Result<(), MalformedMessage> {
        Ok(())
    }
}

/// An entry of a map.
#[derive(Default)]
struct Entry<'a, V> {
    key: Cow<'a, str>,
    value: V,
}

/// A value type of maps.
trait EntryValue<'a>: Default {
    fn of(field: Field<'a>) -> Result<Self, MalformedMessage>;
}

impl<'a> EntryValue<'a> for Cow<'a, str> {
    fn of(field: Field<'a>) -> Result<Self, MalformedMessage> {
        field.text()
    }
}

impl<'a> EntryValue<'a> for SubscribeRequest<'a> {
    fn of(field: Field<'a>) -> Result<Self, MalformedMessage> {
        field.message()
    }
}

impl<'a, V: EntryValue<'a>> Message<'a> for Entry<'a, V> {
    fn take(&mut self, field: Field<'a>) -> Result<(), MalformedMessage> {
        match field.number {
            1 => self.key = field.text()?,
            2 => self.value = V::of(field)?,
            _ => {}
        }
        Ok(())
    }
}
