//! The client for the example `echo`: each connection sends a message again when its echo arrives.
//!
//! `pingpong [ADDRESS] [CONNECTIONS] [BYTES] [SECONDS]`

use std::net::SocketAddr;

use veche_net::{Buffer, Driver, DriverEvent, Epoll, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default: usize| {
        arguments
            .get(place)
            .map_or(Ok(default), |number| number.parse())
    };
    let addr: SocketAddr = arguments
        .first()
        .map_or("127.0.0.1:7777", String::as_str)
        .parse()?;
    let (connections, bytes) = (number(1, 240)?, number(2, 20)?);
    let mut driver = Epoll::new(Options::default())?;
    let mut spare: Vec<Vec<u8>> = Vec::new();
    let mut missing = Vec::new();
    for _ in 0..connections {
        let id = driver.connect(addr)?;
        missing.resize(missing.len().max(id.index as usize + 1), 0);
        missing[id.index as usize] = bytes;
        driver.send(id, Buffer::Owned(vec![1; bytes]), false);
    }
    let end_ms = driver.now_ms() + number(3, 10)? as u64 * 1000;
    let mut messages = 0_u64;
    while driver.now_ms() < end_ms {
        driver.turn(Some(100), &mut |driver: &mut Epoll, event| match event {
            DriverEvent::Received { id, bytes: part } => {
                let missing = &mut missing[id.index as usize];
                *missing -= part.len().min(*missing);
                if *missing == 0 {
                    messages += 1;
                    *missing = bytes;
                    let mut out = spare.pop().unwrap_or_default();
                    out.resize(bytes, 1);
                    let back = driver.send(id, Buffer::Owned(out), false);
                    spare.extend(back.and_then(Buffer::reclaim));
                }
            }
            DriverEvent::Sent { buffer, .. } => spare.extend(buffer.reclaim()),
            DriverEvent::Closed { reason, .. } => eprintln!("closed: {reason:?}"),
            _ => {}
        })?;
    }
    println!("{messages} messages");
    Ok(())
}
