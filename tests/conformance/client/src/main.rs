//! A WebSocket client for Autobahn's fuzzing server. It requests the number of cases, echoes the
//! messages of each case, and requests the report. It uses only blocking sockets and the codec of
//! `veche-proto` in the client's role, so that the suite tests the codec.
//!
//! `WS_PORT` and `AGENT` come from the environment.

use std::env;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::Duration;

use veche_proto::websocket::deflate::DeflatePolicy;
use veche_proto::websocket::handshake::{new_key, read_response, write_request};
use veche_proto::websocket::{
    Codecs, Decoder, Encoder, FrameEvent, MessageLimits, Opcode, Role, encode_close, encode_control,
};

/// Autobahn's cases 9.3.1 and 9.4.1 have 65,536 fragments, its cases 9.1.6 and 9.2.6 have 16 MiB.
const LIMITS: MessageLimits = MessageLimits {
    message_bytes_max: 32 << 20,
    fragments_max: 70_000,
    inflate_ratio_max: 0,
};

fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = env::var("WS_PORT")?.parse()?;
    let agent = env::var("AGENT")?;
    let mut codecs = Codecs::new();
    let mut count = Vec::new();
    run(port, "/getCaseCount", &mut codecs, |data| {
        count.extend_from_slice(data)
    })?;
    let count: usize = str::from_utf8(&count)?.parse()?;
    for case in 1..=count {
        let target = format!("/runCase?case={case}&agent={agent}");
        if let Err(error) = run(port, &target, &mut codecs, |_| {}) {
            eprintln!("case {case}: {error}");
        }
    }
    run(
        port,
        &format!("/updateReports?agent={agent}"),
        &mut codecs,
        |_| {},
    )
}

/// Handles one connection until it ends: passes each message to `seen` and echoes it. A case may
/// make its connection fail; the report has the verdict.
fn run(
    port: u16,
    target: &str,
    codecs: &mut Codecs,
    mut seen: impl FnMut(&[u8]),
) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;

    // Unlike Veche's default, the offer permits context takeover, which the server may refuse.
    let policy = DeflatePolicy {
        takeover: true,
        ..DeflatePolicy::default()
    };
    let key = new_key(std::array::from_fn(|_| fastrand::u8(..)));
    let mut out = Vec::new();
    let host = format!("127.0.0.1:{port}");
    write_request(&mut out, &host, target, &key, "", Some(&policy), []);
    stream.write_all(&out)?;

    let mut input = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    let accepted = loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err("the connection was closed in the handshake".into());
        }
        input.extend_from_slice(&buffer[..count]);
        if let Some((taken, accepted)) = read_response(&input, &key, "", Some(&policy))? {
            let deflate = accepted.deflate;
            input.drain(..taken);
            break deflate;
        }
    };

    let mut decoder = Decoder::new(Role::Client, accepted);
    let mut encoder = Encoder::new(Role::Client, accepted);
    loop {
        let mut at = 0;
        while at < input.len() {
            let mask = Some(fastrand::u32(..).to_ne_bytes());
            let mut reply = Vec::new();
            let mut ended = false;
            // The message borrows from the codecs, which the encoder needs too, so it is copied.
            let mut message = None;
            match decoder.decode(&mut input[at..], codecs, &LIMITS) {
                Ok((taken, event)) => {
                    at += taken;
                    match event {
                        None => {}
                        Some(FrameEvent::Message { kind, data }) => {
                            message = Some((kind, data.to_vec()))
                        }
                        Some(FrameEvent::Ping(data)) => {
                            encode_control(&mut reply, Opcode::Pong, data, mask)
                        }
                        Some(FrameEvent::Pong(_)) => {}
                        Some(FrameEvent::Close { code, .. }) => {
                            encode_close(&mut reply, code, "", mask);
                            ended = true;
                        }
                    }
                }
                Err(error) => {
                    encode_close(
                        &mut reply,
                        Some(error.close_code()),
                        &error.to_string(),
                        mask,
                    );
                    ended = true;
                }
            }
            if let Some((kind, data)) = message {
                seen(&data);
                encoder.encode(&mut reply, kind, &data, codecs, mask);
            }
            stream.write_all(&reply)?;
            if ended {
                return end(stream, &mut buffer);
            }
        }
        let count = match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) => return Err(error.into()),
        };
        input.clear();
        input.extend_from_slice(&buffer[..count]);
    }
}

/// Ends a connection after the Close frames. The server closes the TCP connection first (RFC 6455,
/// section 7.1.1).
fn end(mut stream: TcpStream, buffer: &mut [u8]) -> Result<(), Box<dyn Error>> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    while stream.read(buffer).is_ok_and(|count| count > 0) {}
    stream.shutdown(Shutdown::Both).ok();
    Ok(())
}
