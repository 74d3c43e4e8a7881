//! Messages as lists of fields, defined once for both encodings.

use crate::data::{DeltaKind, PublicationData};

/// An encodable message: a list of fields in their order.
pub(crate) trait Message {
    /// Whether the JSON form of this message contains fields with zero values. Older clients expect them in some messages.
    const KEEPS_ZEROS: bool = false;

    fn write(&self, fields: &mut impl Fields);
}

/// Receives the fields of one message: Protobuf uses the number, JSON the name. Zero values are omitted, except from
/// JSON messages with [`Message::KEEPS_ZEROS`].
pub(crate) trait Fields {
    fn text(&mut self, number: u32, name: &'static str, value: &str);
    fn unsigned(&mut self, number: u32, name: &'static str, value: u64);
    fn signed(&mut self, number: u32, name: &'static str, value: i64);
    fn flag(&mut self, number: u32, name: &'static str, value: bool);
    /// Receives the data of a publication.
    fn payload(
        &mut self,
        number: u32,
        name: &'static str,
        value: PublicationData<'_>,
        delta: DeltaKind,
    );
    /// Receives a nested message, which is written even if it is empty.
    fn message(&mut self, number: u32, name: &'static str, value: &impl Message);
    fn messages(&mut self, number: u32, name: &'static str, values: &[impl Message]);
    fn texts(&mut self, number: u32, name: &'static str, entries: &[(&str, &str)]);
    fn map(&mut self, number: u32, name: &'static str, entries: &[(&str, impl Message)]);

    fn data(&mut self, number: u32, name: &'static str, value: Option<PublicationData<'_>>) {
        if let Some(data) = value {
            self.payload(number, name, data, DeltaKind::Off);
        }
    }

    fn optional(&mut self, number: u32, name: &'static str, value: Option<&impl Message>) {
        if let Some(message) = value {
            self.message(number, name, message);
        }
    }
}

impl<M: Message> Message for &M {
    const KEEPS_ZEROS: bool = M::KEEPS_ZEROS;

    fn write(&self, fields: &mut impl Fields) {
        (**self).write(fields);
    }
}

/// A message without fields.
pub(crate) struct Empty;

impl Message for Empty {
    fn write(&self, _fields: &mut impl Fields) {}
}
