//! Tests `wss` connections of scripts with trusted and untrusted certificates.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Command;
use std::thread;

use super::{run, start_with};
use crate::peer::{Peer, serve, serve_tls};
use crate::support::{on_all, setups};

#[test]
fn a_certificate_that_is_believed_and_any_when_asked() {
    on_all(|setup| {
        let (address, pem) = serve_tls("127.0.0.1", |socket| {
            if let Some(mut peer) = Peer::accept(socket) {
                peer.echo();
            }
        });
        let server = start_with(setup, &[("ca.pem", &pem)]);
        for options in ["{ ca_file = 'ca.pem' }", "{ insecure = true }"] {
            let results = run(
                &server,
                &format!(
                    r#"
                    local ws = websocket.connect("wss://{address}/", {options})
                    -- The sizes are below and above the maximum of one TLS record.
                    for _, size in ipairs {{ 0, 20, 20000, 300000 }} do
                      local text = ("x"):rep(size)
                      ws:send(text)
                      assert(ws:receive() == text)
                    end
                    for i = 1, 500 do ws:send(tostring(i)) end
                    for i = 1, 500 do assert(ws:receive() == tostring(i)) end
                    ws:close(1000)
                    return "same", ws:receive()"#
                ),
            );
            assert_eq!(results, "same\nnil\n1000\n");
        }
    });
}

#[test]
fn a_certificate_that_is_not_believed() {
    on_all(|setup| {
        let (address, pem) = serve_tls("127.0.0.1", |socket| drop(Peer::accept(socket)));
        let (elsewhere, its) = serve_tls("elsewhere.example", |socket| drop(Peer::accept(socket)));
        let plain = serve(|_, mut socket| {
            let _ = socket.write_all(b"220 welcome\r\n");
            let _ = socket.read(&mut [0; 1024]);
        });
        let server = start_with(
            setup,
            &[("ca.pem", &pem), ("its.pem", &its), ("empty.pem", "")],
        );
        // Each of these fails: certificates that are self-signed, of another authority or for another name, and a
        // server without TLS.
        for (address, options, words) in [
            (address, "{}", "invalid peer certificate"),
            (
                address,
                "{ ca_file = 'its.pem' }",
                "invalid peer certificate",
            ),
            (elsewhere, "{ ca_file = 'its.pem' }", "not valid for name"),
            (plain, "{ insecure = true }", "TLS: "),
            (
                address,
                "{ ca_file = 'none.pem' }",
                "none.pem: there is no such file",
            ),
            (
                address,
                "{ ca_file = 'empty.pem' }",
                "the file contains no certificate",
            ),
        ] {
            let results = run(
                &server,
                &format!("websocket.connect('wss://{address}/', {options})"),
            );
            assert!(
                results.starts_with(&format!("error: test:3: wss://{address}/: "))
                    && results.contains(words),
                "{options}: {results}"
            );
        }
        // A connection without TLS to the TLS server fails.
        let results = run(&server, &format!("websocket.connect('ws://{address}/')"));
        assert!(results.starts_with("error: "), "{results}");
    });
}

/// The file of certificates is slow: a pipe whose other end belongs to the test.
#[test]
fn a_worker_goes_on_while_certificates_are_read() {
    for setup in setups().filter(|setup| setup.workers == 1) {
        let (address, pem) = serve_tls("127.0.0.1", |socket| {
            if let Some(mut peer) = Peer::accept(socket) {
                peer.echo();
            }
        });
        let server = start_with(setup, &[]);
        let pipe = server.config().with_file_name("ca.pem");
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo").success());
        // Three connections wait for the same file. The script abandons one of them.
        let script = format!(
            r#"
            local function dial()
              local ws = websocket.connect("wss://{address}/", {{ ca_file = 'ca.pem' }})
              ws:send("through")
              return (ws:receive())
            end
            local one, other, unwanted = veche.spawn(dial), veche.spawn(dial), veche.spawn(dial)
            veche.sleep(0.05)
            unwanted:cancel()
            return one:join(), other:join(), (pcall(unwanted.join, unwanted))"#
        );
        thread::scope(|scope| {
            let results = scope.spawn(|| run(&server, &script));
            // `open` returns once the server has opened the pipe, so the server's read is in progress.
            let mut reads = File::options().write(true).open(&pipe).expect("a reader");
            for _ in 0..3 {
                assert_eq!(run(&server, "veche.sleep(0.03) return 'here'"), "here");
            }
            reads.write_all(pem.as_bytes()).expect("written");
            drop(reads);
            assert_eq!(
                results.join().expect("an answer"),
                "through\nthrough\nfalse"
            );
        });
    }
}
