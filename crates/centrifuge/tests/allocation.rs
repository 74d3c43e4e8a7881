//! Tests that encoding a publication, and decoding a command whose texts have no escapes, allocates nothing.

use allocation_counter::measure;
use veche_centrifuge::{
    ClientInfo, DecodeLimits, DeltaKind, Encoding, Publication, PublicationData, Push, PushBody,
};

#[test]
fn writing_a_publication_allocates_nothing() {
    let tags = [("a", "1")];
    let info = ClientInfo {
        user: "42",
        client: "c-1",
        conn_info: Some(PublicationData::Json("{}")),
        chan_info: None,
    };
    let long = format!("\"{}\"", "0123456789 \\n".repeat(1000));
    let mut out = Vec::with_capacity(256 * 1024);
    for data in [
        PublicationData::Json(&long),
        PublicationData::Json("{\"a\":1}"),
        PublicationData::Text(&long),
    ] {
        for delta in [DeltaKind::Off, DeltaKind::Whole, DeltaKind::Patch] {
            let push = Push {
                channel: "chat:1",
                body: PushBody::Publication(Publication {
                    data,
                    delta,
                    info: Some(info),
                    offset: 1_000_000,
                    tags: &tags,
                    time_ms: 1_700_000_000_000,
                    channel: "",
                }),
            };
            for encoding in [Encoding::Json, Encoding::Protobuf] {
                out.clear();
                let counted = measure(|| {
                    encoding.write_push(&mut out, &push);
                    encoding.write_bare_push(&mut out, &push);
                    encoding.write_ping(&mut out);
                });
                assert_eq!(counted.count_total, 0, "{encoding:?} {delta:?}");
            }
        }
    }
}

#[test]
fn reading_a_command_allocates_nothing() {
    let json = br#"{"id":2,"publish":{"channel":"chat:1","data":{"a":"b\n"}}}
        {"id":3,"rpc":{"method":"m","data":1}}
        {"id":4,"subscribe":{"channel":"c","token":"T","recover":true,"offset":6,"epoch":"e"}}
        {}"#;
    // A publish command and a pong in Protobuf.
    let wire = [
        12, 0x08, 2, 0x3a, 8, 0x0a, 1, b'c', 0x12, 3, b'a', b'b', b'c', 0,
    ];
    for (encoding, message, expected) in [
        (Encoding::Json, json.as_slice(), 4),
        (Encoding::Protobuf, &wire, 2),
    ] {
        let counted = measure(|| {
            let mut count = 0;
            for command in encoding.commands(message, DecodeLimits::default()) {
                command.unwrap();
                count += 1;
            }
            assert_eq!(count, expected);
        });
        assert_eq!(counted.count_total, 0, "{encoding:?}");
    }
}
