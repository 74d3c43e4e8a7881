//! Misbehaving back ends of applications: a Redis that sends arbitrary data, or nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::attack::Attack;
use crate::raw::{connect, status};
use crate::support::Options;

/// Arbitrary answers of a server that Veche calls. The server sends them to new connections, or in response to any
/// data.
const ANSWERS: [&[u8]; 8] = [
    b"$536870912\r\nhalf a gigabyte, of which this is all",
    b"*1000000000\r\n$1\r\na\r\n",
    b"%4000000000\r\n",
    b"$-9223372036854775808\r\n",
    b"+OK\r\n+OK\r\n+OK\r\n-ERR what?\r\n",
    b"\x00\xff\xfe garbage, and no end of a line",
    b"",
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
];

/// A server that answers with arbitrary data, until it is dropped.
struct Liar {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Liar {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut kept = Vec::new();
            for (number, socket) in listener.incoming().enumerate() {
                if over.load(Relaxed) {
                    return;
                }
                let Ok(socket) = socket else { continue };
                kept.extend(lie(socket, ANSWERS[number % ANSWERS.len()]));
            }
        });
        Self {
            address,
            is_over,
            thread: Some(thread),
        }
    }
}

/// Reads a request and sends a response. Closes the connection if the length of the response is odd. Otherwise returns
/// the connection, which has to stay open.
fn lie(mut socket: TcpStream, answer: &[u8]) -> Option<TcpStream> {
    let _ = socket.set_read_timeout(Some(Duration::from_millis(50)));
    let _ = socket.read(&mut [0; 4096]);
    let _ = socket.write_all(answer);
    answer.len().is_multiple_of(2).then_some(socket)
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Each call fails with an error within its time limit; announced lengths allocate no memory.
#[test]
fn a_database_that_answers_anything() {
    let liar = Liar::start();
    let script = format!(
        "local veche = require 'veche'\n\
         local app, r = {{}}, veche.redis.connect {{ port = {}, timeout = 0.2, connect_timeout = 0.2 }}\n\
         function app.request()\n\
           local ok, why = pcall(r.get, r, 'key')\n\
           return ok and 200 or 502, tostring(why)\n\
         end\n\
         return app\n",
        liar.address.port()
    );
    let attack = Attack {
        options: Options {
            routes: "[[route]]\npath = \"/app\"\nhandler = \"lua\"\nscript = \"app.lua\"",
            files: &[("app.lua", &script)],
            ..Options::default()
        },
        // The outbound threads start with the first call and keep a descriptor each.
        is_first_costly: true,
        memory_mib_max: 48,
        ..Attack::default()
    };
    attack.run(|target, _| {
        let mut socket = connect(target.address);
        let request = b"GET /app HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
        socket.write_all(request).expect("the server reads");
        let status = status(&mut socket).expect("an answer");
        // A response may be valid by chance.
        assert!([200, 502].contains(&status), "{status}");
        if status == 502 {
            target.landed();
        }
    });
}
