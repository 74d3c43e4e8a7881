//! Tests TLS with `openssl s_client`.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::TlsFixture;
use crate::support::{Options, on_all};

/// Returns the output of `openssl s_client` for a connection that requests a page.
fn connect(fixture: &TlsFixture, arguments: &[&str]) -> String {
    let mut child = Command::new("openssl")
        .args([
            "s_client",
            "-servername",
            "localhost",
            "-verify_return_error",
        ])
        .arg("-connect")
        .arg(fixture.server.public.to_string())
        .arg("-CAfile")
        .arg(fixture.authority.file())
        .args(["-alpn", "h2,http/1.1", "-ign_eof"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl is installed");
    let request = b"GET /index.html HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    // The process may have exited already if the handshake fails.
    let _ = child.stdin.take().expect("piped").write_all(request);
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn openssl_finds_nothing_wrong() {
    on_all(|setup| {
        let fixture = TlsFixture::start(setup, "", &Options::default());
        let session = fixture.server.folder.join("session");
        let session = session.to_str().expect("UTF-8");
        for (version, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
            let printed = connect(&fixture, &[version, "-sess_out", session]);
            for words in [
                "Verify return code: 0 (ok)",
                "ALPN protocol: http/1.1",
                &format!("New, {name}, Cipher is"),
                "HTTP/1.1 200 OK",
                "<p>hello</p>",
            ] {
                assert!(printed.contains(words), "{words}\nin\n{printed}");
            }
            let again = connect(&fixture, &[version, "-sess_in", session]);
            let words = format!("Reused, {name}, Cipher is");
            assert!(again.contains(&words), "{words}\nin\n{again}");
            assert!(again.contains("<p>hello</p>"), "{again}");
        }
        // The server refuses an obsolete version, and a client without a common cipher.
        for refused in [
            &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"][..],
            &["-tls1_2", "-cipher", "AES128-SHA:@SECLEVEL=0"],
        ] {
            let printed = connect(&fixture, refused);
            assert!(!printed.contains("<p>hello</p>"), "{printed}");
        }
        let label = "reason=\"incompatible\"";
        assert!(fixture.count("veche_tls_handshake_failures_total", label) >= 1);
        assert_eq!(
            fixture.count("veche_tls_handshakes_total", "outcome=\"resumed\""),
            2
        );
    });
}
