//! A crowd that says nothing: for the memory a connection costs when it only is there.

use std::io::{ErrorKind, Write, stdin, stdout};
use std::net::TcpStream;

use serde::Serialize;

use crate::{Target, fleet};

#[derive(Serialize)]
pub struct Report {
    pub opened: usize,
    pub closed_meanwhile: usize,
}

/// Prints `open` once all are, returns when standard input ends.
pub fn run(target: &Target, user_bytes: usize) -> anyhow::Result<Report> {
    let connections = fleet::open(target, |index| user_path(&target.path, index, user_bytes))?;
    println!("open");
    stdout().flush()?;
    std::io::copy(&mut stdin(), &mut std::io::sink())?;
    let closed_meanwhile = connections
        .iter()
        .filter(|stream| is_gone(&stream.socket))
        .count();
    Ok(Report {
        opened: connections.len(),
        closed_meanwhile,
    })
}

fn is_gone(stream: &TcpStream) -> bool {
    match stream.peek(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// `path?user=u00…0123`, the name as long as asked for.
pub fn user_path(path: &str, index: usize, user_bytes: usize) -> String {
    match user_bytes {
        0 => path.to_owned(),
        _ => format!("{path}?user={}", user_name(index, user_bytes)),
    }
}

pub fn user_name(index: usize, user_bytes: usize) -> String {
    format!("u{index:0width$}", width = user_bytes.saturating_sub(1))
}
