//! History on disk: the server process is killed, stopped, restarted with another number of workers, and finds its
//! folder locked or damaged.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::history::Follower;
use crate::support::http::Http;
use crate::support::metrics::Metrics;
use crate::support::server::KEY_HEADER;
use crate::support::{
    Lines, Options, Seen, Server, Setup, Socket, USUAL, call, now, on_all, process, until,
};

const ROUTES: &str = "[[route]]\npath = \"/follow\"\nhandler = \"push\"\nidentity = \"query:user\"\n\
    channels = [\"chat:*\", \"news\"]\npositions = true\n\
    [[namespace]]\nname = \"chat\"\nhistory_size = 100000\n\
    [[namespace]]\nname = \"#\"\nhistory_size = 3\n\
    [history]\npath = \"kept\"\n";

/// A server that stops writes its history to disk, which a busy disk can delay by more than a second.
const DRAIN_TIME: &str = "drain_time = \"30s\"";

fn start(setup: Setup, fsync: &str) -> Server {
    let routes = format!("{ROUTES}fsync = \"{fsync}\"\n");
    let options = Options {
        routes: &routes,
        limits: DRAIN_TIME,
        ..Options::default()
    };
    Server::with(setup, &options)
}

fn publish(server: &Server, channel: &str, data: &Value) -> Value {
    let body = json!({ "channel": channel, "data": data });
    call(server.internal, "publish", &body)["result"].take()
}

/// Kills the server process and waits for another one.
pub(crate) fn kill(server: &Server) {
    let old = server.pid();
    process::kill(old, Signal::KILL);
    until("another server process", || {
        server.try_pid().is_some_and(|pid| pid != old)
            && server
                .status()
                .is_some_and(|status| status["state"] == "ready")
    });
}

#[test]
fn a_kill_costs_a_client_nothing() {
    on_all(|setup| {
        let server = start(setup, "1s");
        let channels = ["chat:1", "chat:2", "chat:3"];
        // Nothing is published to `chat:9`.
        let silent = Follower::open(&server, "ann", "chat:9", None).position;
        let mut since = BTreeMap::new();
        for channel in channels {
            let mut ann = Follower::open(&server, "ann", channel, None);
            let first = publish(&server, channel, &json!({ "n": 1 }));
            assert_eq!((&first["handed"], &first["offset"]), (&json!(1), &json!(1)));
            assert_eq!(ann.next(), json!({ "n": 1 }));
            since.insert(channel, ann.position);
        }
        for channel in channels {
            assert_eq!(publish(&server, channel, &json!("two"))["offset"], 2);
            assert_eq!(publish(&server, channel, &json!([3]))["offset"], 3);
        }
        kill(&server);
        for channel in channels {
            let mut ann = Follower::open(&server, "ann", channel, Some(&since[channel]));
            assert_eq!(ann.recovered, true, "{channel}");
            assert_eq!([ann.next(), ann.next()], [json!("two"), json!([3])]);
            let fourth = publish(&server, channel, &json!(4));
            assert_eq!(fourth["offset"], 4);
            assert_eq!(ann.next(), 4);
            let epoch = fourth["epoch"].as_str().expect("an epoch");
            assert!(since[channel].starts_with(epoch), "the epoch goes on");
        }
        publish(&server, "chat:9", &json!("at last"));
        let mut ann = Follower::open(&server, "ann", "chat:9", Some(&silent));
        assert_eq!(ann.recovered, true);
        assert_eq!(ann.next(), "at last");
        until("a word of it in the log", || {
            server.log().contains("history was restored")
        });
        let metrics = Metrics::scrape(server.internal);
        assert_eq!(metrics.sum("veche_history_channels", &[]), 5.0);
        assert!(metrics.sum("veche_history_disk_commits_total", &[]) >= 1.0);
        assert!(metrics.sum("veche_history_disk_bytes", &[]) > 0.0);
        assert_eq!(metrics.sum("veche_history_pending", &[]), 0.0);
    });
}

#[test]
fn removed_history_is_removed_on_disk() {
    let server = start(USUAL, "never");
    for number in 1..=5 {
        publish(&server, "#ann", &json!(number));
        publish(&server, "chat:1", &json!(number));
    }
    // A publication with a version: the server rejects older versions afterwards.
    let body = |version: u32| json!({ "channel": "chat:2", "data": version, "version": version });
    call(server.internal, "publish", &body(7));
    let removed = call(
        server.internal,
        "history_remove",
        &json!({ "channel": "chat:1" }),
    );
    assert_eq!(removed, json!({ "result": {} }));
    kill(&server);
    let history = |channel: &str| {
        let body = json!({ "channel": channel, "limit": -1 });
        call(server.internal, "history", &body)["result"].take()
    };
    let numbers = |page: &Value| {
        let all = page["publications"].as_array().expect("a list").iter();
        all.map(|one| one["data"].as_u64().expect("a number"))
            .collect::<Vec<_>>()
    };
    let ann = history("#ann");
    assert_eq!((numbers(&ann), &ann["offset"]), (vec![3, 4, 5], &json!(5)));
    let chat = history("chat:1");
    assert_eq!((numbers(&chat), &chat["offset"]), (vec![], &json!(5)));
    call(server.internal, "publish", &body(6));
    assert_eq!(numbers(&history("chat:2")), [7]);
    call(server.internal, "publish", &body(8));
    assert_eq!(numbers(&history("chat:2")), [7, 8]);
}

#[test]
fn history_survives_a_change_of_the_worker_count() {
    let mut server = start(USUAL, "commit");
    let channels: Vec<String> = (0..20).map(|number| format!("chat:{number}")).collect();
    let mut offset = 0;
    let mut epochs = Vec::new();
    for workers in [3, 1, 2] {
        server.stop();
        server.set_workers(workers);
        server.start_again(&Options {
            routes: ROUTES,
            limits: DRAIN_TIME,
            ..Options::default()
        });
        offset += 1;
        let published =
            { channels.iter() }.map(|channel| publish(&server, channel, &json!(offset)));
        let published: Vec<Value> = published.collect();
        assert!(published.iter().all(|one| one["offset"] == offset));
        let now: Vec<String> = { published.iter() }
            .map(|one| one["epoch"].to_string())
            .collect();
        if offset > 1 {
            assert_eq!(now, epochs, "with {workers} workers");
        }
        epochs = now;
    }
    for channel in &channels {
        let body = json!({ "channel": channel, "limit": -1 });
        let page = call(server.internal, "history", &body);
        let all = page["result"]["publications"].as_array().expect("a list");
        assert_eq!(all.len(), 3);
    }
    assert!(!server.log().contains("WARN history"), "{}", server.log());
}

#[test]
fn damage_is_reported_and_does_not_prevent_the_start() {
    let mut server = start(USUAL, "1s");
    let first = publish(&server, "chat:1", &json!(1));
    server.stop();
    let file = server.folder.join("kept/history.sqlite");
    let length = fs::metadata(&file).expect("there").len() as usize;
    fs::write(&file, vec![0x5a; length]).expect("written");
    let options = Options {
        routes: ROUTES,
        limits: DRAIN_TIME,
        ..Options::default()
    };
    server.start_again(&options);
    until("a word of it in the log", || {
        server.log().contains("was set aside")
    });
    assert!(server.folder.join("kept/damaged-1/history.sqlite").exists());
    let restarted = publish(&server, "chat:1", &json!(2));
    assert_eq!(restarted["offset"], 1);
    assert_ne!(restarted["epoch"], first["epoch"]);
    // Publishes a recognisable text, and changes one bit of it on disk.
    publish(&server, "chat:2", &json!("a text that stands out"));
    server.stop();
    let mut bytes = fs::read(&file).expect("read");
    let text = b"a text that stands out";
    let at = bytes.windows(text.len()).position(|part| part == text);
    bytes[at.expect("it is there")] ^= 1;
    fs::write(&file, bytes).expect("written");
    server.start_again(&options);
    until("a word of it in the log", || {
        server.log().contains("is damaged")
    });
    let goes_on = publish(&server, "chat:1", &json!(3));
    assert_eq!(
        (&goes_on["offset"], &goes_on["epoch"]),
        (&json!(2), &restarted["epoch"])
    );
}

#[test]
fn a_folder_has_one_server() {
    let server = start(USUAL, "1s");
    let other = fs::read_to_string(server.config()).expect("a config");
    let other = other.replacen("[server]", "[server]\ncontrol = \"other.sock\"", 1);
    let config = server.folder.join("other.toml");
    fs::write(&config, other).expect("written");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_veche"))
        .arg("serve")
        .arg("-c")
        .arg(&config)
        .output()
        .expect("it runs");
    assert!(!output.status.success());
    let printed = String::from_utf8_lossy(&output.stderr);
    let why = format!("kept belongs to another running process ({})", server.pid());
    assert!(printed.contains(&why), "{printed}");
    // A history on disk has one owner, so an upgrade is refused; the refusal is logged and
    // reported.
    let answer = server.ask("upgrade").expect("an answer");
    assert_eq!(answer["ok"], false);
    let error = answer["error"].to_string();
    assert!(error.contains("[history] path"), "{error}");
    assert_eq!(publish(&server, "chat:1", &json!(1))["offset"], 1);
}

/// A server process whose supervisor was killed holds the folder only briefly, whatever its drain time.
#[test]
fn another_start_soon_has_the_folder_of_an_orphan() {
    let options = Options {
        routes: ROUTES,
        limits: "drain_time = \"30s\"",
        ..Options::default()
    };
    let mut server = Server::prepared(USUAL, &options, |_| {});
    assert_eq!(publish(&server, "chat:1", &json!(1))["offset"], 1);
    // Clients that stay keep the drain running.
    let stays = Socket::open(server.public, "/ws?user=ann");
    server.kill_supervisor();
    server.start_again(&options);
    assert_eq!(publish(&server, "chat:1", &json!(2))["offset"], 2);
    drop(stays);
}

/// A folder restored from a backup lacks the publications that clients have received since the backup.
#[test]
fn epochs_are_renewed_by_command_while_no_server_has_the_folder() {
    let options = Options {
        routes: ROUTES,
        limits: DRAIN_TIME,
        ..Options::default()
    };
    let mut server = Server::prepared(USUAL, &options, |_| {});
    let before = publish(&server, "chat:1", &json!(1));
    let renew = |server: &Server| {
        let output = server.command(&["history", "renew-epochs"]).output();
        let output = output.expect("it runs");
        let printed = [output.stdout, output.stderr]
            .map(|printed| String::from_utf8_lossy(&printed).into_owned());
        (output.status.success(), printed.concat())
    };
    let (done, printed) = renew(&server);
    assert!(
        !done && printed.contains("belongs to another running process"),
        "{printed}"
    );
    server.stop();
    let (done, printed) = renew(&server);
    assert!(done, "{printed}");
    assert!(
        printed.contains("new epochs at the next start"),
        "{printed}"
    );
    server.start_again(&options);
    let after = publish(&server, "chat:1", &json!(2));
    assert_eq!(after["offset"], 2, "the history is there");
    assert_ne!(after["epoch"], before["epoch"]);
    // A renewal of the epochs by command applies to the next start only.
    server.stop();
    server.start_again(&options);
    let later = publish(&server, "chat:1", &json!(3));
    assert_eq!(later["epoch"], after["epoch"]);
}

#[test]
fn it_is_kept_in_a_sandbox_and_for_another_user() {
    let user = match rustix::process::geteuid().is_root() {
        true => "user = \"nobody\"\n",
        false => "",
    };
    let options = |server| Options {
        routes: ROUTES,
        server,
        ..Options::default()
    };
    let text = format!("{user}sandbox = true");
    let server = Server::prepared(USUAL, &options(&text), |_| {});
    if server.log().contains("no Landlock") {
        eprintln!("this kernel has no Landlock: nothing tested");
        return;
    }
    for number in 1..=3 {
        assert_eq!(publish(&server, "chat:1", &json!(number))["offset"], number);
    }
    kill(&server);
    assert_eq!(publish(&server, "chat:1", &json!(4))["offset"], 4);
    let kept = server.folder.join("kept");
    // The server has stored the boot ID, although the sandbox hides the kernel's boot ID file.
    let run = fs::read_to_string(kept.join("run")).expect("the file of this run");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux");
    assert_eq!(run.split(' ').next(), Some(boot.trim_end()));
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(kept).expect("there").permissions());
    assert_eq!(mode & 0o777, 0o700);
}

/// A limit on file sizes simulates a full disk.
#[test]
fn a_full_disk_delays_only_stored_publications() {
    const PUBLICATIONS: u64 = 300;
    on_all(|setup| {
        let options = Options {
            routes: ROUTES,
            // The shell ignores SIGXFSZ, which would otherwise kill the process when a file reaches its size limit.
            shell: "trap '' XFSZ",
            ..Options::default()
        };
        let server = Server::with(setup, &options);
        let metric = |name: &str| Metrics::scrape(server.internal).sum(name, &[]);
        process::limit_files(server.pid(), Some(96 << 10));
        let mut ann = Follower::open(&server, "ann", "chat:1", None);
        let mut lines = Lines::connect(server.push);
        let text = "x".repeat(400);
        for number in 1..=PUBLICATIONS {
            let data = json!([number, text]);
            lines.send(&json!({ "channel": "chat:1", "data": data }));
        }
        until("writing to fail", || {
            metric("veche_history_disk_failing") == 1.0
        });
        until("a word of it in the log", || {
            server.log().contains("history can't be written")
        });
        let error = || server.status().expect("it runs")["report"]["history_error"].take();
        // The server is busy, so its report may come too late: the status is requested again until it has the error.
        until("the status to name the error", || error().is_string());
        let waiting = metric("veche_history_pending");
        assert!(waiting > 0.0);
        // Publications without history are not delayed.
        assert_eq!(publish(&server, "news", &json!(1))["handed"], 0);
        let body = json!({ "channel": "chat:2", "data": 1, "skip_history": true });
        let passing = call(server.internal, "publish", &body);
        assert_eq!(passing, json!({ "result": { "handed": 0 } }));
        // Some lines may not have arrived yet, and the publications that fit the disk were written, so fewer than
        // all may be pending.
        assert!(metric("veche_history_pending") <= PUBLICATIONS as f64);
        process::limit_files(server.pid(), None);
        for number in 1..=PUBLICATIONS {
            assert_eq!(ann.next()[0], number);
        }
        let last = lines.ask(&json!({ "channel": "chat:1", "data": 0, "ack": true }));
        assert_eq!(last["result"]["offset"], PUBLICATIONS + 1);
        until("a word of that too", || {
            server.log().contains("history can be written again")
        });
        assert_eq!(metric("veche_history_disk_failing"), 0.0);
        assert_eq!(error(), Value::Null);
        assert!(metric("veche_history_disk_errors_total") >= 1.0);
        kill(&server);
        let after = publish(&server, "chat:1", &json!(0));
        assert_eq!(after["offset"], PUBLICATIONS + 2);
    });
}

/// Kills the server twenty times, five times on each setup. Publishers record the acknowledged publications, and
/// followers the received ones.
#[test]
fn kills_under_load_lose_nothing() {
    const KILLS: u32 = 5;
    on_all(|setup| {
        let fsync = match (setup.io, setup.workers) {
            ("epoll", 1) => "commit",
            ("epoll", _) => "never",
            _ => "1s",
        };
        let server = start(setup, fsync);
        let is_over = AtomicBool::new(false);
        let channels = ["chat:0", "chat:1"];
        let starts = channels.map(|channel| Follower::open(&server, "x", channel, None).position);
        thread::scope(|scope| {
            let (server, is_over) = (&server, &is_over);
            let publishers = channels
                .map(|channel| scope.spawn(move || publish_until(server, channel, is_over)));
            let followers: Vec<_> = { channels.into_iter().zip(&starts) }
                .map(|(channel, start)| scope.spawn(move || follow(server, channel, start)))
                .collect();
            for number in 0..KILLS {
                thread::sleep(Duration::from_millis(150 + 70 * u64::from(number)));
                kill(server);
            }
            thread::sleep(Duration::from_millis(100));
            is_over.store(true, Relaxed);
            for ((publisher, follower), (channel, start)) in
                { publishers.into_iter().zip(followers) }.zip(channels.iter().zip(&starts))
            {
                let answered = publisher.join().expect("it published");
                let received = follower.join().expect("it followed");
                compare(server, channel, start, &answered, &received);
            }
        });
        assert_eq!(server.status().expect("it runs")["restarts"], KILLS);
    });
}

/// Publishes consecutive numbers, and finally 0; returns the acknowledged offset of each.
fn publish_until(server: &Server, channel: &str, is_over: &AtomicBool) -> BTreeMap<u64, u64> {
    let mut answered = BTreeMap::new();
    let mut number = 0;
    loop {
        let mut http = Http::connect(server.internal);
        loop {
            let is_last = is_over.load(Relaxed);
            number += 1;
            let data = if is_last { 0 } else { number };
            let body = json!({ "channel": channel, "data": data }).to_string();
            let answer = http.request("POST", "/api/publish", KEY_HEADER, body.as_bytes());
            let Ok(answer) = answer else { break };
            assert_eq!(answer.status, 200, "{answer:?}");
            let offset = answer.json()["result"]["offset"]
                .as_u64()
                .expect("it is kept");
            if is_last {
                return answered;
            }
            answered.insert(number, offset);
        }
    }
}

/// Follows a channel until a publication of the number 0 arrives, reconnecting as needed. Returns the
/// offset and the number of each received publication.
fn follow(server: &Server, channel: &str, start: &str) -> Vec<(u64, u64)> {
    let (epoch, _) = start.split_once(':').expect("a position");
    let mut received: Vec<(u64, u64)> = Vec::new();
    let deadline = now() + Duration::from_secs(120);
    loop {
        assert!(now() < deadline, "no end of {channel}");
        let last = received.last().map_or(0, |(offset, _)| *offset);
        let since = format!("{epoch}:{last}");
        let Some(mut client) = Follower::try_open(server, "ann", channel, Some(&since)) else {
            continue;
        };
        if client.recovered == false {
            // More publications are missing than one recovery sends, so they are read from the history.
            received.extend(read(server, channel, &since));
            continue;
        }
        assert_eq!(client.recovered, true, "{channel} since {since}");
        while let Seen::Text(message) = client.socket.within(Duration::from_secs(5)) {
            let message: Value = serde_json::from_str(&message).expect("JSON");
            if message["subscribed"] != Value::Null {
                continue;
            }
            let position = message["position"].as_str().expect("a position");
            let (found, offset) = position.split_once(':').expect("a position");
            assert_eq!(found, epoch, "{channel}");
            let data = message["data"].as_u64().expect("a number");
            received.push((offset.parse().expect("a number"), data));
            if data == 0 {
                return received;
            }
        }
    }
}

/// Returns a page of the history after a position, as offsets and data.
fn read(server: &Server, channel: &str, since: &str) -> Vec<(u64, u64)> {
    let (epoch, offset) = since.split_once(':').expect("a position");
    let offset: u64 = offset.parse().expect("a number");
    let place = json!({ "offset": offset, "epoch": epoch });
    let body = json!({ "channel": channel, "limit": 200, "since": place }).to_string();
    let answer =
        Http::connect(server.internal).request("POST", "/api/history", KEY_HEADER, body.as_bytes());
    let Ok(answer) = answer else {
        return Vec::new();
    };
    let page = answer.json();
    assert_eq!(
        page["error"],
        Value::Null,
        "{channel} since {since}: the epoch is lost"
    );
    let number = |value: &Value| value.as_u64().expect("a number");
    let all = page["result"]["publications"].as_array().expect("a list");
    all.iter()
        .map(|one| (number(&one["offset"]), number(&one["data"])))
        .collect()
}

/// Asserts that acknowledged publications are at their offsets, and that the received publications
/// match the history: complete, once and in order.
fn compare(
    server: &Server,
    channel: &str,
    start: &str,
    answered: &BTreeMap<u64, u64>,
    received: &[(u64, u64)],
) {
    let mut kept: Vec<(u64, u64)> = Vec::new();
    let (epoch, _) = start.split_once(':').expect("a position");
    loop {
        let last = kept.last().map_or(0, |(offset, _)| *offset);
        let page = read(server, channel, &format!("{epoch}:{last}"));
        if page.is_empty() {
            break;
        }
        kept.extend(page);
    }
    let offsets = kept.iter().map(|(offset, _)| *offset);
    assert!(offsets.eq(1..=kept.len() as u64), "{channel} has a hole");
    let numbers: Vec<u64> = { kept.iter() }
        .map(|(_, data)| *data)
        .filter(|data| *data > 0)
        .collect();
    assert!(
        numbers.is_sorted_by(|a, b| a < b),
        "{channel}: twice, or in another order"
    );
    let by_number: BTreeMap<u64, u64> =
        kept.iter().map(|(offset, data)| (*data, *offset)).collect();
    let lost: Vec<_> = { answered.iter() }
        .filter(|(number, offset)| by_number.get(number) != Some(offset))
        .collect();
    assert!(lost.is_empty(), "{channel}: {lost:?} were answered");
    assert!(
        answered.len() > 50,
        "{channel}: only {} were published",
        answered.len()
    );
    let last = received.last().expect("the 0 came").0 as usize;
    assert!(
        received == &kept[..last],
        "{channel}: not what is kept was received"
    );
    println!(
        "{channel}: {} answered, {} kept, {} received",
        answered.len(),
        kept.len(),
        received.len()
    );
}

/// While the disk accepts nothing, scripts continue to publish to channels without history. Publications to channels
/// with history wait once the queue is full, or are refused where a script can't wait.
#[test]
fn a_full_disk_does_not_delay_unstored_publications_of_scripts() {
    const TICKER: &str = r#"
local veche = require "veche"
local ticker = {}
function ticker.run()
    local refused, taken, n = 0, 0, 0
    for channel = 1, 8 do
        veche.spawn(function()
            while true do
                veche.publish("chat:" .. channel, ("x"):rep(2000))
                taken = taken + 1
                veche.sleep(0.002)
            end
        end)
    end
    local function impatient()
        if not pcall(veche.publish, "chat:1", "x") then refused = refused + 1 end
    end
    while true do
        n = n + 1
        table.sort({ 1, 2 }, impatient)
        veche.publish("news", { n = n, refused = refused, taken = taken })
        veche.sleep(0.002)
    end
end
return ticker
"#;
    on_all(|setup| {
        let routes = format!("{ROUTES}\n[[service]]\nname = \"ticker\"\nscript = \"ticker.lua\"\n");
        let options = Options {
            routes: &routes,
            // The shell ignores SIGXFSZ, which would otherwise kill the process when a file reaches its size limit.
            shell: "trap '' XFSZ",
            files: &[("ticker.lua", TICKER)],
            ..Options::default()
        };
        let server = Server::with(setup, &options);
        let metric = |name: &str| Metrics::scrape(server.internal).sum(name, &[]);
        let mut ann = Socket::open(server.public, "/follow?user=ann&channel=news");
        process::limit_files(server.pid(), Some(96 << 10));
        until("writing to fail", || {
            metric("veche_history_disk_failing") == 1.0
        });
        let mut tick = || {
            loop {
                let mut message: Value = serde_json::from_str(&ann.text()).expect("JSON");
                // The first message reports the subscription.
                if message["data"].is_object() {
                    return message["data"].take();
                }
            }
        };
        // Each attempt reads many ticks, since they arrive faster than `until` retries.
        until("scripts to be refused", || {
            (0..200).any(|_| tick()["refused"].as_u64() > Some(0))
        });
        until("all to wait", || {
            let (now, next) = (tick()["taken"].as_u64(), tick()["taken"].as_u64());
            now == next
        });
        let memory = process::rss_kib(server.pid());
        let until_tick = tick()["n"].as_u64().map(|n| n + 300);
        until("300 ticks", || {
            (0..200).any(|_| tick()["n"].as_u64() >= until_tick)
        });
        let grown = process::rss_kib(server.pid()).saturating_sub(memory);
        assert!(grown < 8 << 10, "{grown} KiB more");
        process::limit_files(server.pid(), None);
        until("writing to work", || {
            metric("veche_history_disk_failing") == 0.0
        });
        let taken = tick()["taken"].as_u64().map(|taken| taken + 100);
        until("scripts to go on", || {
            (0..200).any(|_| tick()["taken"].as_u64() >= taken)
        });
    });
}
