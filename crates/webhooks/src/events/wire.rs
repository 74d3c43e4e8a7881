//! The JSON form of a batch of events.

use serde::Serialize;
use serde_json::value::RawValue;
use veche_hub::ChannelEvent;

/// The content of the request that delivers one batch of events.
pub(super) struct EventsBody<'e> {
    /// The id of the batch: the same in each retry, and different from the ids of all other
    /// batches.
    pub(super) id: String,
    /// The name of the node that sends the batch, if the server belongs to a cluster.
    pub(super) node: Option<&'e str>,
    /// Whether this is the first batch of the process.
    pub(super) is_first: bool,
    /// The number of events lost before this batch.
    pub(super) lost: u64,
    pub(super) events: &'e [ChannelEvent],
}

#[derive(Serialize)]
struct Wire<'e> {
    id: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'e str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    started: bool,
    #[serde(skip_serializing_if = "is_zero")]
    lost: u64,
    events: Vec<Event<'e>>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls this function with a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Serialize)]
struct Event<'e> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conn_info: Option<&'e RawValue>,
    time: u64,
}

impl EventsBody<'_> {
    /// Returns the body of the request.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let wire = Wire {
            id: &self.id,
            node: self.node,
            started: self.is_first,
            lost: self.lost,
            events: self.events.iter().map(event).collect(),
        };
        serde_json::to_vec(&wire).expect("it must be possible to encode a batch of events as JSON")
    }
}

fn event(event: &ChannelEvent) -> Event<'_> {
    let about = event.fields();
    Event {
        kind: about.kind,
        channel: about.channel,
        user: about.user,
        client: about.client,
        conn_info: about
            .info
            .and_then(|info| serde_json::from_slice::<&RawValue>(info).ok()),
        time: event.at_ms,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use veche_hub::{ChannelEventKind, ClientInfo, Payload, PayloadKind};

    use super::*;

    #[test]
    fn events_are_written_with_their_subject() {
        let client = Arc::new(ClientInfo {
            user: "ann".into(),
            client: "c1".into(),
            conn_info: Some(Payload {
                kind: PayloadKind::Json,
                bytes: bytes::Bytes::from_static(br#"{"name":"Ann"}"#),
            }),
            chan_info: None,
        });
        let channel_event = |channel: &str, kind| ChannelEvent {
            channel: Arc::from(channel),
            at_ms: 7,
            kind,
        };
        let events = [
            channel_event("#ann", ChannelEventKind::Occupied),
            channel_event("chat:1", ChannelEventKind::Joined(Arc::clone(&client))),
            channel_event("chat:1", ChannelEventKind::Left(client)),
            channel_event("chat:1", ChannelEventKind::Vacated),
            channel_event("price:1", ChannelEventKind::Empty),
            channel_event("#ann", ChannelEventKind::Vacated),
        ];
        let delivery = EventsBody {
            id: "1-2".to_owned(),
            node: Some("a"),
            is_first: true,
            lost: 3,
            events: &events,
        };
        let expected = [
            r#"{"id":"1-2","node":"a","started":true,"lost":3,"events":["#,
            r#"{"type":"online","user":"ann","time":7},"#,
            r#"{"type":"joined","channel":"chat:1","user":"ann","client":"c1","conn_info":{"name":"Ann"},"time":7},"#,
            r#"{"type":"left","channel":"chat:1","user":"ann","client":"c1","conn_info":{"name":"Ann"},"time":7},"#,
            r#"{"type":"vacated","channel":"chat:1","time":7},"#,
            r#"{"type":"empty","channel":"price:1","time":7},"#,
            r#"{"type":"offline","user":"ann","time":7}]}"#,
        ];
        assert_eq!(String::from_utf8(delivery.to_json()), Ok(expected.concat()));
        let delivery = EventsBody {
            id: "1-3".to_owned(),
            node: None,
            is_first: false,
            lost: 0,
            events: &[],
        };
        assert_eq!(delivery.to_json(), br#"{"id":"1-3","events":[]}"#);
    }
}
