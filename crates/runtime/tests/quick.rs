//! Tests that the fast path for heads of common forms reads and writes them exactly as the general
//! code does.

use veche_runtime::wire::{
    EventConnection, EventName, Frame, FrameLimits, FromWorker, HandlerEnd, OutgoingEvent,
    answer_id, encode, encode_message,
};
use veche_runtime::{Attribute, Attributes, Event};
use veche_types::{ConnectionId, MessageKind, WorkerId};

const SEND: &str = r#"{"effect":"send","data":0}"#;
const FAR: &str = r#"{"effect":"send","connection":"3.17.2","data":1}"#;
const BYTES: &str = r#"{"effect":"send","data_kind":"binary","data":1}"#;
const TEXT: &str = r#"{"effect":"send","connection":"0.0.1","data_kind":"text","data":0}"#;

/// Reads a frame twice: as given, and with a space in its head, which the quick form does not
/// permit.
fn read_both(head: &str, payload: &[u8], name: EventName) {
    let spaced = head.replacen('{', "{ ", 1);
    let event = |id| (id == 12).then_some(name);
    let read = |head: &str| {
        let frame = Frame {
            head: head.as_bytes(),
            payload,
        };
        let read = format!("{:?}", FromWorker::read(frame, event));
        // The space in the head shifts the column in an error text, so the position is cut off.
        let text = read.split(" at line ").next();
        text.unwrap_or_default().to_owned()
    };
    assert_eq!(read(head), read(&spaced), "{head}");
}

#[test]
fn answers_of_the_quick_form_are_read_as_by_the_general_parser() {
    let mut heads = Vec::new();
    for effects in [
        vec![],
        vec![SEND],
        vec![SEND, FAR, BYTES, TEXT],
        vec![r#"{"effect":"send","data":7}"#],
        vec![r#"{"effect":"send"}"#],
        vec![r#"{"effect":"send","data":0,"data_kind":"binary"}"#],
        vec![r#"{"effect":"send","connection":"0.1","data":0}"#],
        vec![r#"{"effect":"send","connection":"00.1.1","data":0}"#],
        vec![r#"{"effect":"send","connection":"70000.1.1","data":0}"#],
        vec![r#"{"effect":"send","data_kind":"json","data":0}"#],
        vec![r#"{"effect":"close"}"#],
        vec![SEND, r#"{"effect":"unheard"}"#],
        vec![SEND; 4096],
        vec![SEND; 4097],
    ] {
        for parts in [
            "",
            r#","parts":[2,3]"#,
            r#","parts":[5,0]"#,
            r#","parts":[5]"#,
        ] {
            for id in ["12", "13", "012", "1234567890123456789012"] {
                let effects = match effects.is_empty() {
                    true => String::new(),
                    false => format!(r#","effects":[{}]"#, effects.join(",")),
                };
                heads.push(format!(r#"{{"type":"answer","id":{id}{effects}{parts}}}"#));
            }
        }
    }
    for tail in ["", "]", ",", r#","reply":{}}"#, r#","failed":"it"}"#, "}}"] {
        heads.push(format!(
            r#"{{"type":"answer","id":12,"effects":[{SEND}]{tail}"#
        ));
    }
    for head in &heads {
        for payload in [&b"hello"[..], b"", b"he\xff\xfe\xfd"] {
            for name in [EventName::Message, EventName::Close, EventName::Open] {
                read_both(head, payload, name);
            }
        }
    }
}

#[test]
fn only_a_complete_answer_has_an_id_without_the_parser() {
    let answer = |rest: &str| answer_id(format!(r#"{{"type":"answer","id":{rest}"#).as_bytes());
    assert_eq!(answer("12}"), Some(12));
    assert_eq!(
        answer(&format!(r#"12,"effects":[{SEND},{FAR}],"parts":[1,2]}}"#)),
        Some(12)
    );
    for rest in [
        "12",
        "12}}",
        "12]",
        "}",
        "-1}",
        "1.5}",
        r#"12,"effects":[]}"#,
        r#"12,"effects":[{"effect":"send","data":0}"#,
        r#"12,"effects":[{"effect":"send","data":0},]}"#,
        r#"12,"parts":[1,]}"#,
        r#"12,"failed":"it"}"#,
    ] {
        assert_eq!(answer(rest), None, "{rest}");
    }
    let frame = Frame {
        head: br#"{"type":"answer","id":12}"#,
        payload: b"",
    };
    let read = FromWorker::read(frame, |_| Some(EventName::Message));
    let Ok(FromWorker::Handled(handled)) = read else {
        panic!("{read:?}");
    };
    assert_eq!(handled.end, Some(HandlerEnd::Done));
}

#[test]
fn messages_are_written_as_by_the_general_writer() {
    let mut attributes = Attributes::default();
    let id = ConnectionId {
        index: 4_294_967_295,
        generation: 10,
    };
    for kind in [MessageKind::Text, MessageKind::Binary] {
        for user in [None, Some(""), Some("ann"), Some("\"\\\u{1}é\u{2028}")] {
            for data in [&b""[..], b"hello"] {
                let event = Event::Message { id, kind, data };
                let known = EventConnection {
                    worker: WorkerId(65_535),
                    user,
                    attributes: Some(&attributes),
                };
                let mut quick = b"before".to_vec();
                let written = encode_message(&mut quick, FrameLimits::default(), &event, known);
                assert_eq!(written, Some(Ok(())));
                let mut general = b"before".to_vec();
                let outgoing = OutgoingEvent::of(&event, 0, known).expect("a message");
                let (head, parts) = (&outgoing.head, &outgoing.parts);
                encode(&mut general, FrameLimits::default(), head, parts).expect("it is short");
                assert_eq!(String::from_utf8(quick), String::from_utf8(general));
            }
        }
    }
    let value = Attribute::Boolean(true);
    attributes.set("admin", Some(value)).expect("there is room");
    let known = EventConnection {
        worker: WorkerId(0),
        user: None,
        attributes: Some(&attributes),
    };
    let (kind, data) = (MessageKind::Text, &b"hello"[..]);
    let message = Event::Message { id, kind, data };
    let mut out = Vec::new();
    assert!(encode_message(&mut out, FrameLimits::default(), &message, known).is_none());
    assert!(out.is_empty());
    let limits = FrameLimits {
        head_bytes_max: 1000,
        payload_bytes_max: 4,
    };
    let too_long = encode_message(&mut out, limits, &message, EventConnection::default());
    assert!(too_long.is_some_and(|written| written.is_err()) && out.is_empty());
}
