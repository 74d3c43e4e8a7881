//! A server in the place of the real one: a thread for each socket, a thread for each connection.
//!
//! Each line is answered with the process id and the connection closed; a drain answers those still open with
//! "drained". The file `mood` beside the config makes it misbehave.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::config::Config;
use crate::process::{ServerControl, Start, deal};

pub(crate) struct Fake {
    mood: PathBuf,
    config: Mutex<Arc<Config>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

pub(crate) fn start(start: Start) -> Result<Fake, String> {
    let mood = start.config.file.with_file_name("mood");
    let fake = Fake {
        mood,
        config: Mutex::new(start.config),
        open: Arc::default(),
    };
    match fake.mood().as_str() {
        "die" => std::process::exit(9),
        "fail" => return Err("no workers today".to_owned()),
        _ => {}
    }
    for listener in &start.listeners {
        tracing::info!(address = %listener.address, "fake server");
    }
    for socket in deal(start.listeners, 2)
        .into_iter()
        .flatten()
        .map(|(_, socket)| socket)
    {
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(false).map_err(|e| e.to_string())?;
        let open = Arc::clone(&fake.open);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                open.lock().push(stream.try_clone().expect("a descriptor"));
                let open = Arc::clone(&open);
                thread::spawn(move || serve(stream, &open));
            }
        });
    }
    Ok(fake)
}

/// Answers lines: "hello" and the end, any other and more.
fn serve(stream: TcpStream, open: &Mutex<Vec<TcpStream>>) {
    let peer = stream.peer_addr();
    let mut lines = BufReader::new(&stream);
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok_and(|n| n > 0) {
        let _ = (&stream).write_all(format!("{}\n", std::process::id()).as_bytes());
        if line == "hello\n" {
            break;
        }
        line.clear();
    }
    let _ = stream.shutdown(Shutdown::Both);
    open.lock()
        .retain(|other| other.peer_addr().ok() != peer.as_ref().ok().copied());
}

impl Fake {
    fn mood(&self) -> String {
        fs::read_to_string(&self.mood).unwrap_or_default()
    }
}

impl ServerControl for Fake {
    fn reload(&self, config: Arc<Config>) -> Result<(), String> {
        if self.mood() == "refuse" {
            return Err("not in the mood".to_owned());
        }
        *self.config.lock() = config;
        Ok(())
    }

    fn drain(&self, _within: Duration) {
        if self.mood() == "deaf" {
            return;
        }
        for mut stream in self.open.lock().drain(..) {
            let _ = stream.write_all(b"drained\n");
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn drained(&self) -> bool {
        self.mood() != "deaf" && self.open.lock().is_empty()
    }

    fn status(&self) -> Value {
        let config = self.config.lock();
        let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        json!({
            "fake": true,
            "connections": format!("{:?}", config.limits.connections),
            "workers": format!("{:?}", config.server.workers),
            "descriptors_max": limits.current,
        })
    }
}
