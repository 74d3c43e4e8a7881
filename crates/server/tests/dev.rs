//! `veche dev`: what is saved runs, and what is wrong is told while the old code goes on.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

struct Dev {
    folder: PathBuf,
    address: SocketAddr,
    child: Child,
}

impl Dev {
    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("veche-dev-{}", std::process::id()));
        fs::create_dir_all(folder.join("lib")).expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        fs::write(
            folder.join("veche.toml"),
            format!(
                "[server]\ncontrol = \"veche.sock\"\n[[listen]]\naddress = \"{address}\"\n\
                 [[route]]\npath = \"/*\"\nhandler = \"lua\"\nscript = \"app.lua\"\n"
            ),
        )
        .expect("written");
        fs::write(folder.join("lib/words.lua"), "return 'one'").expect("written");
        fs::write(
            folder.join("app.lua"),
            "local words = require 'lib.words' return { request = function() return words end }",
        )
        .expect("written");
        let log = fs::File::create(folder.join("log")).expect("a file");
        let child = Command::new(env!("CARGO_BIN_EXE_veche"))
            .args(["dev", "-c", "veche.toml"])
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn()
            .expect("it starts");
        Self {
            folder,
            address,
            child,
        }
    }

    fn says(&self) -> Option<String> {
        let mut socket = TcpStream::connect(self.address).ok()?;
        socket
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .ok()?;
        let mut text = String::new();
        socket.read_to_string(&mut text).ok()?;
        Some(text.rsplit_once("\r\n\r\n")?.1.to_owned())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    #[track_caller]
    fn until(&self, what: &str, happens: impl Fn() -> bool) {
        for _ in 0..400 {
            if happens() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("waited in vain for {what}:\n{}", self.log());
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = Command::new(env!("CARGO_BIN_EXE_veche"))
            .args(["stop", "--now", "-c", "veche.toml"])
            .current_dir(&self.folder)
            .output();
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn what_is_saved_runs() {
    let dev = Dev::start();
    dev.until("the start", || dev.says().as_deref() == Some("one"));
    // As editors save: a new file takes the old one's name.
    fs::write(dev.folder.join("lib/words.lua~"), "return 'two'").expect("written");
    let words = dev.folder.join("lib/words.lua");
    fs::rename(dev.folder.join("lib/words.lua~"), &words).expect("renamed");
    dev.until("the new code", || dev.says().as_deref() == Some("two"));
    fs::write(&words, "return = 'three'").expect("written");
    dev.until("the error", || dev.log().contains("lib/words.lua:1"));
    assert_eq!(dev.says().as_deref(), Some("two"));
    fs::write(&words, "return 'three'").expect("written");
    dev.until("the mended code", || dev.says().as_deref() == Some("three"));
}
