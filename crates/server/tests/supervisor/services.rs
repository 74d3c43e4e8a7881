//! Services in an upgrade: the services of the new process start when those of all old processes
//! have ended.
//!
//! Each service reports its start and end to a ledger by HTTP, and waits for the response. So the
//! order of the ledger is the order of events across processes.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;

use crate::ask::{UPGRADE, ask};
use crate::support::process::{is_alive, kill};
use crate::support::until;
use crate::veche::{Veche, freeze};

const SCRIPT: &str = r#"
local veche, service = require "veche", {}
local function tell(what)
  return veche.http.get(veche.config.ledger .. what .. "/" .. veche.config.name).status
end
function service.run()
  tell("begins")
  while not veche.stopping(0.02) do tell("beat") end
  while tell("may-end") ~= 200 do veche.sleep(0.02) end
  tell("ends")
end
return service
"#;

/// The reports of all services, in the order of their arrival.
struct Ledger {
    address: SocketAddr,
    lines: Arc<Mutex<Vec<String>>>,
    /// True while services that were requested to stop may end.
    may_end: Arc<AtomicBool>,
}

impl Ledger {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (lines, may_end) = (Arc::default(), Arc::new(AtomicBool::new(true)));
        let ledger = Self {
            address,
            lines: Arc::clone(&lines),
            may_end: Arc::clone(&may_end),
        };
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (lines, may_end) = (Arc::clone(&lines), Arc::clone(&may_end));
                thread::spawn(move || serve(client, &lines, &may_end));
            }
        });
        ledger
    }

    /// Returns the reports of starts and ends.
    fn lives(&self) -> Vec<String> {
        let lines = self.lines.lock();
        let is_life = |line: &&String| line.starts_with("begins") || line.starts_with("ends");
        let lives = lines.iter().filter(is_life);
        lives.cloned().collect()
    }

    fn count(&self, line: &str) -> usize {
        self.lines.lock().iter().filter(|one| *one == line).count()
    }

    /// Returns configuration lines that continue `[limits]` and define a service, which reports under this name.
    fn limits(&self, name: &str) -> String {
        format!(
            "drain_time = \"30s\"\nupgrade_drain_time = \"30s\"\n[[service]]\nname = \"life\"\nscript = \"life.lua\"\n\
             options = {{ name = {name:?}, ledger = \"http://{}/\" }}",
            self.address
        )
    }

    /// Starts a server with the first service, and waits until this service has started.
    fn first(&self, test: &str) -> Veche {
        let mut veche = Veche::prepare(test, &self.limits("1"));
        std::fs::write(veche.folder().join("life.lua"), SCRIPT).expect("written");
        veche.install();
        veche.start_again();
        until("the first service", || self.lives() == ["begins/1"]);
        veche
    }

    /// Upgrades to a process whose service reports to the ledger under this name.
    fn upgrade(&self, veche: &Veche, name: &str) -> Result<(), String> {
        veche.write_config(&self.limits(name), "");
        ask(&veche.control(), UPGRADE)?;
        veche.await_status("ready", |status| status["state"] == "ready");
        Ok(())
    }
}

fn serve(client: TcpStream, requests: &Mutex<Vec<String>>, may_end: &AtomicBool) -> Option<()> {
    let mut answers = client.try_clone().ok()?;
    let mut lines = BufReader::new(client).lines();
    loop {
        let request = lines.next()?.ok()?;
        let line = request
            .split(' ')
            .nth(1)?
            .trim_start_matches('/')
            .to_owned();
        while !lines.next()?.ok()?.is_empty() {}
        let is_may_end = line.starts_with("may-end");
        let status = match is_may_end && !may_end.load(Ordering::Relaxed) {
            true => 409,
            false => 200,
        };
        requests.lock().push(line);
        let answer = format!("HTTP/1.1 {status} Word\r\nContent-Length: 0\r\n\r\n");
        answers.write_all(answer.as_bytes()).ok()?;
    }
}

#[test]
fn they_begin_when_those_of_the_old_process_have_ended() {
    let ledger = Ledger::open();
    let veche = ledger.first("services-upgrade");
    let old = veche.server_pid();
    // The old process closes its clients over half a minute, so some stay with it for a while.
    let mut sessions: Vec<_> = (0..12).map(|_| veche.open()).collect();
    ledger.may_end.store(false, Ordering::Relaxed);
    ledger.upgrade(&veche, "2").expect("upgraded");
    assert!(veche.is_answering().expect("the new process serves"));
    assert_eq!(ledger.lives(), ["begins/1"]);
    ledger.may_end.store(true, Ordering::Relaxed);
    until("the second service", || ledger.lives().len() == 3);
    assert_eq!(ledger.lives(), ["begins/1", "ends/1", "begins/2"]);
    assert!(is_alive(old), "it drains");
    let staying = sessions
        .iter_mut()
        .filter_map(|it| it.is_alive().then_some(()));
    assert!(staying.count() > 0, "the services did not wait for clients");
}

#[test]
fn the_newest_waits_for_all_that_still_drain() {
    let ledger = Ledger::open();
    let veche = ledger.first("services-twice");
    let first = veche.server_pid();
    let _sessions: Vec<_> = (0..12).map(|_| veche.open()).collect();
    ledger.may_end.store(false, Ordering::Relaxed);
    ledger.upgrade(&veche, "2").expect("upgraded");
    let second = veche.server_pid();
    let _later: Vec<_> = (0..12).map(|_| veche.open()).collect();
    ledger.upgrade(&veche, "3").expect("upgraded again");
    assert!(is_alive(first) && is_alive(second), "both drain");
    assert_eq!(ledger.lives(), ["begins/1"]);
    ledger.may_end.store(true, Ordering::Relaxed);
    until("the third service", || ledger.lives().len() == 3);
    // The second process's service never started: that process was replaced before the first one's service had ended.
    assert_eq!(ledger.lives(), ["begins/1", "ends/1", "begins/3"]);
    // A process that replaces a killed one starts its services at once.
    kill(veche.server_pid(), Signal::KILL);
    until("the third again", || ledger.count("begins/3") == 2);
}

#[test]
fn one_that_does_not_stop_is_ended_by_its_own_process() {
    let ledger = Ledger::open();
    let veche = ledger.first("services-deaf");
    let old = veche.server_pid();
    let _sessions: Vec<_> = (0..12).map(|_| veche.open()).collect();
    ledger.may_end.store(false, Ordering::Relaxed);
    ledger.upgrade(&veche, "2").expect("upgraded");
    until("the second service", || ledger.count("beat/2") > 10);
    assert!(is_alive(old), "it drains");
    assert_eq!(ledger.lives(), ["begins/1", "begins/2"]);
    let lines = ledger.lines.lock();
    let second = lines.iter().position(|line| line == "begins/2");
    let later = &lines[second.expect("it has begun")..];
    let of_first: Vec<_> = later.iter().filter(|line| line.ends_with("/1")).collect();
    assert!(of_first.is_empty(), "{of_first:?} after the second began");
    assert!(
        lines.iter().any(|line| line == "may-end/1"),
        "it was requested to stop"
    );
    let words = "the service did not stop in time: ending it";
    assert!(veche.log().contains(words), "{}", veche.log());
}

#[test]
fn an_old_process_that_says_nothing_is_waited_for_until_it_is_dead() {
    let ledger = Ledger::open();
    let veche = ledger.first("services-frozen");
    let old = veche.server_pid();
    freeze(old);
    ledger.upgrade(&veche, "2").expect("upgraded");
    let new = veche.server_pid();
    assert!(veche.is_answering().expect("the new process serves"));
    // If the new process is killed, the process that replaces it waits for the old services too.
    kill(new, Signal::KILL);
    veche.await_another_than(new);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(ledger.lives(), ["begins/1"]);
    kill(old, Signal::KILL);
    until("the second service", || {
        ledger.lives() == ["begins/1", "begins/2"]
    });
}

#[test]
fn services_continue_if_the_new_process_fails() {
    let ledger = Ledger::open();
    let veche = ledger.first("services-refused");
    // The new program's server process becomes ready, but its supervisor fails in the trial start.
    let half = "test \"$1\" = server-process && exec PROGRAM \"$@\"; sleep 0.3; exit 7";
    veche.install_script(&half.replace("PROGRAM", env!("CARGO_BIN_EXE_veche")));
    let error = ledger.upgrade(&veche, "2").expect_err("no supervisor");
    assert!(error.contains("exit status: 7"), "{error}");
    let before = ledger.count("beat/1");
    until("the service to go on", || {
        ledger.count("beat/1") > before + 3
    });
    assert_eq!(ledger.lives(), ["begins/1"]);
    // After the failed upgrade, an upgrade to a working program succeeds.
    veche.install();
    ledger.upgrade(&veche, "3").expect("upgraded");
    until("the third service", || ledger.lives().len() == 3);
    assert_eq!(ledger.lives(), ["begins/1", "ends/1", "begins/3"]);
}
