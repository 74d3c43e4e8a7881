//! Passes arbitrary bytes to the decoders of HTTP heads and bodies. They must not panic, must give the same result
//! however the bytes are split, and must accept no head that a more lenient decoder would interpret differently.

use veche_proto::http::{
    BodyDecoder, Framing, Head, HeadLimits, HeadScan, HttpError, Query, read_head,
};

/// Low limits, so that short inputs reach them.
const LIMITS: HeadLimits = HeadLimits {
    head_bytes_max: 2048,
    headers_max: 16,
    target_bytes_max: 256,
    body_bytes_max: 1000,
};

/// Decodes an input as a head. Panics if a decoder behaves wrongly.
pub fn run_head(data: &[u8]) {
    let whole = read_in_steps(data, data.len());
    for step in [1, 2, 7] {
        assert_eq!(
            describe(&read_in_steps(data, step)),
            describe(&whole),
            "splitting changes the answer"
        );
    }
    let Some(Ok((head, taken))) = &whole else {
        return;
    };
    ask(head);
    let bytes = &data[..*taken];
    assert!(bytes.ends_with(b"\r\n\r\n"));
    assert!(bytes.iter().enumerate().all(|(at, byte)| match byte {
        b'\n' => at > 0 && bytes[at - 1] == b'\r',
        b'\r' => bytes.get(at + 1) == Some(&b'\n'),
        0 => false,
        _ => true,
    }));
    for name in ["content-length", "host"] {
        assert!(head.header_all(name).count() <= 1, "two of {name}");
    }
    let has_coding = head.header_bytes("transfer-encoding").is_some();
    assert_eq!(has_coding, head.framing == Framing::Chunked);
    assert!(!has_coding || head.header_bytes("content-length").is_none());
}

/// Decodes an input as a chunked body. Panics if a decoder behaves wrongly.
pub fn run_body(data: &[u8]) {
    let whole = decode_in_steps(data, data.len());
    for step in [1, 2, 7] {
        assert_eq!(
            decode_in_steps(data, step),
            whole,
            "splitting changes the body"
        );
    }
    if let Ok((body, Some(end))) = whole {
        assert!(body.len() as u64 <= LIMITS.body_bytes_max && body.len() < end);
        assert!(data[..end].ends_with(b"\r\n"));
    }
}

type Read<'b> = Option<Result<(Head<'b>, usize), HttpError>>;

fn read_in_steps(data: &[u8], step: usize) -> Read<'_> {
    let mut scan = HeadScan::default();
    let mut end = 0;
    loop {
        end = (end + step).min(data.len());
        if let Some(read) = read_head(&mut scan, &data[..end], &LIMITS).transpose() {
            return Some(read);
        }
        if end == data.len() {
            return None;
        }
    }
}

fn describe(read: &Read<'_>) -> String {
    match read {
        None => "incomplete".to_owned(),
        Some(Err(error)) => error.status.0.to_string(),
        Some(Ok((head, taken))) => {
            format!("{head:?} {taken} {:?}", head.headers().collect::<Vec<_>>())
        }
    }
}

fn ask(head: &Head<'_>) {
    for name in ["a", "session", ""] {
        let _ = (
            head.cookie(name),
            head.query(name),
            head.query_all(name).count(),
        );
    }
    for (name, value) in Query::new(head.query).iter() {
        assert!(name.len() + value.len() <= head.query.len());
    }
    for (name, value) in head.headers() {
        assert!(head.header_bytes(name).is_some());
        assert_eq!(value.trim_ascii(), value);
    }
}

fn decode_in_steps(data: &[u8], step: usize) -> Result<(Vec<u8>, Option<usize>), HttpError> {
    let mut decoder = BodyDecoder::new(Framing::Chunked, &LIMITS);
    let (mut body, mut at, mut end) = (Vec::new(), 0, 0);
    while end < data.len() && !decoder.is_end() {
        end = (end + step).min(data.len());
        while at < end && !decoder.is_end() {
            let input = &data[at..end];
            let piece = decoder.decode(input)?;
            assert!(piece.consumed > 0 && piece.data.end <= piece.consumed);
            body.extend_from_slice(&input[piece.data]);
            at += piece.consumed;
        }
    }
    Ok((body, decoder.is_end().then_some(at)))
}
