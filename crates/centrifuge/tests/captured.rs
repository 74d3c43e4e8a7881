//! Frames sent by a real client: npm `centrifuge` 5.8.0.

use veche_centrifuge::{ClientRequest, DecodeLimits, Encoding, PublicationData};

fn read(message: &str) -> Vec<(u32, ClientRequest<'_>)> {
    Encoding::Json
        .commands(message.as_bytes(), DecodeLimits::default())
        .map(|command| command.map(|command| (command.id, command.request)))
        .collect::<Result<_, _>>()
        .unwrap()
}

#[test]
fn connect_and_subscribe_in_one_frame() {
    let commands = read(concat!(
        r#"{"connect":{"token":"T","data":{"d":1},"name":"app","version":"1.0"},"id":1}"#,
        "\n",
        r#"{"subscribe":{"channel":"chat:1","token":"ST","data":{"x":1},"recoverable":true,"join_leave":true,"flag":1},"id":2}"#,
    ));
    let [
        (1, ClientRequest::Connect(connect)),
        (2, ClientRequest::Subscribe(subscribe)),
    ] = &commands[..]
    else {
        panic!("{commands:?}");
    };
    assert_eq!(&*connect.token, "T");
    assert_eq!(connect.data, Some(PublicationData::Json(r#"{"d":1}"#)));
    assert_eq!((&*connect.name, &*connect.version), ("app", "1.0"));
    assert_eq!(subscribe.channel, "chat:1");
    assert_eq!(&*subscribe.token, "ST");
    assert_eq!(subscribe.data, Some(PublicationData::Json(r#"{"x":1}"#)));
    assert!(subscribe.recoverable && subscribe.join_leave && !subscribe.recover);
    assert_eq!(subscribe.flag, 1);
}

#[test]
fn subscribe_again_after_a_reconnect() {
    let commands = read(
        r#"{"subscribe":{"channel":"chat:1","token":"ST","recoverable":true,"join_leave":true,"flag":1,"recover":true,"offset":6,"epoch":"ep"},"id":7}"#,
    );
    let [(7, ClientRequest::Subscribe(subscribe))] = &commands[..] else {
        panic!("{commands:?}");
    };
    assert!(subscribe.recover);
    assert_eq!((subscribe.offset, &*subscribe.epoch), (6, "ep"));
}

#[test]
fn a_command_in_an_envelope() {
    let body = br#"{"session":"S","node":"N","data":"{\"subscribe\":{\"channel\":\"e:1\",\"flag\":1},\"id\":2}"}"#;
    let envelope = Encoding::Json
        .emulation(body, DecodeLimits::default())
        .unwrap();
    let data = str::from_utf8(&envelope.data).unwrap();
    let commands = read(data);
    assert!(
        matches!(&commands[..], [(2, ClientRequest::Subscribe(subscribe))] if subscribe.channel == "e:1")
    );
}
