//! A relay of TCP connections that misbehaves on demand, between a node and its engine.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

/// The longest delay until a change of the fault takes effect.
const STEP: Duration = Duration::from_millis(10);

/// The behaviour of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Bytes pass in both directions.
    None,
    /// Connections are closed, and new ones are closed at once.
    Cut,
    /// Connections stay open, and nothing passes until the fault ends.
    Stall,
    /// Bytes to the engine are accepted and lost; nothing is returned. Connections are closed when the fault ends.
    HalfOpen,
    /// Each piece of data is delayed by this many milliseconds.
    Delay(u64),
}

/// A relay that ends with the process.
pub(crate) struct Relay {
    pub(crate) port: u16,
    fault: Arc<Mutex<Fault>>,
}

impl Relay {
    /// Starts a relay to a port of this machine.
    pub(crate) fn to(engine: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let fault = Arc::new(Mutex::new(Fault::None));
        let own = Arc::clone(&fault);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if *own.lock() == Fault::Cut {
                    continue;
                }
                if let Ok(server) = TcpStream::connect(("127.0.0.1", engine)) {
                    join(&client, &server, &own);
                }
            }
        });
        Self { port, fault }
    }

    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock() = fault;
        thread::sleep(2 * STEP);
    }
}

fn join(client: &TcpStream, server: &TcpStream, fault: &Arc<Mutex<Fault>>) {
    for (from, to) in [(client, server), (server, client)] {
        let (from, to) = (from.try_clone(), to.try_clone());
        let (Ok(from), Ok(to)) = (from, to) else {
            return;
        };
        let _ = from.set_read_timeout(Some(STEP));
        let _ = to.set_nodelay(true);
        let fault = Arc::clone(fault);
        thread::spawn(move || {
            pass(&from, &to, &fault);
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}

/// Forwards bytes until one side ends.
fn pass(mut from: &TcpStream, mut to: &TcpStream, fault: &Mutex<Fault>) {
    let mut bytes = vec![0; 64 << 10];
    let mut has_lost = false;
    loop {
        let now = *fault.lock();
        match now {
            Fault::Cut => return,
            Fault::Stall => {
                thread::sleep(STEP);
                continue;
            }
            Fault::HalfOpen => has_lost = true,
            Fault::None | Fault::Delay(_) if has_lost => return,
            Fault::None | Fault::Delay(_) => {}
        }
        let count = match from.read(&mut bytes) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => return,
        };
        // The fault may have changed while this thread waited for bytes.
        match *fault.lock() {
            Fault::Cut => return,
            Fault::HalfOpen => {
                has_lost = true;
                continue;
            }
            Fault::Delay(ms) => thread::sleep(Duration::from_millis(ms)),
            Fault::None | Fault::Stall => {}
        }
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}
