//! Power cuts during publications and bans.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::disk::{OnDisk, Unsynced};
use super::{Answered, history, is_let_in};
use crate::history::Follower;
use crate::support::http::Http;
use crate::support::server::KEY_HEADER;
use crate::support::{SOON, now};

const CHANNELS: [&str; 2] = ["chat:0", "chat:1"];

fn number_of(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn a_power_cut_costs_nothing_that_was_answered_where_each_commit_waits_for_the_disk() {
    cut_power("commit");
}

#[test]
fn after_a_power_cut_unsynced_commits_renew_epochs() {
    cut_power("1s");
}

fn cut_power(fsync: &str) {
    let Some(mut on) = OnDisk::start(fsync, 0) else {
        return;
    };
    let seed = number_of("VECHE_DURABILITY_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("VECHE_DURABILITY_SEED={seed}, fsync {fsync:?}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut numbers = [0; CHANNELS.len()];
    for round in 0..number_of("VECHE_DURABILITY_ROUNDS").unwrap_or(2) {
        let pause = Duration::from_millis(random.u64(100..600));
        let (answered, blocked) = run_until_halt(&on, &mut numbers, round, pause);
        let all_is_gone = round % 2 == 0;
        on.lose_power(match all_is_gone {
            true => Unsynced::Gone,
            false => Unsynced::Partly(&mut random),
        });
        on.start_again(0);
        for (channel, answered) in CHANNELS.iter().zip(&answered) {
            check(&on, channel, answered, fsync, all_is_gone);
        }
        assert!(!is_let_in(&on.server, &blocked), "{blocked} was blocked");
        assert!(is_let_in(&on.server, "ann"));
    }
}

/// Publishes to all channels and bans users until the machine stops; returns the acknowledged
/// publications, and a user whose ban must be on disk.
fn run_until_halt(
    on: &OnDisk,
    numbers: &mut [u64],
    round: u64,
    pause: Duration,
) -> (Vec<Answered>, String) {
    let address = on.server.internal;
    let blocks = AtomicU32::new(0);
    let name = |number| format!("user-{round}-{number}.");
    let blocked = || blocks.load(Relaxed);
    thread::scope(|scope| {
        let publishers: Vec<_> = { CHANNELS.iter().zip(numbers) }
            .map(|(channel, number)| scope.spawn(|| publish(address, channel, number)))
            .collect();
        scope.spawn(|| {
            let mut http = Http::connect(address);
            for number in 0.. {
                let body = json!({ "user": name(number) }).to_string();
                let answer = http.request("POST", "/api/block_user", KEY_HEADER, body.as_bytes());
                let Ok(answer) = answer else { return };
                assert_eq!(answer.json()["result"], json!({ "disconnected": 0 }));
                blocks.store(number + 1, Relaxed);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let deadline = now() + SOON;
        while blocked() < 3 && now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let user = name(blocked().saturating_sub(1));
        while !on.has("blocks/list", &user) && now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let is_known = on.has("blocks/list", &user);
        thread::sleep(pause);
        // The publishers end only when the machine is halted, so nothing may panic before the halt.
        on.halt();
        assert!(is_known, "the disk does not know {user}");
        let answered = { publishers.into_iter() }
            .map(|publisher| publisher.join().expect("it published"))
            .collect();
        (answered, user)
    })
}

/// Publishes consecutive numbers until the server is gone.
fn publish(address: SocketAddr, channel: &str, number: &mut u64) -> Answered {
    let mut answered = Answered::default();
    let mut http = Http::connect(address);
    loop {
        *number += 1;
        if !answered.publish(&mut http, channel, *number) {
            return answered;
        }
    }
}

fn check(on: &OnDisk, channel: &str, answered: &Answered, fsync: &str, all_is_gone: bool) {
    let last = answered.last();
    assert!(last > 0, "{channel}: nothing was published");
    let history = history(&on.server, channel);
    history.check_is_whole(channel);
    let is_same = history.epoch == answered.epoch;
    println!(
        "{channel}: {} answered, up to {last} of {}; there are {} up to {}, of {}",
        answered.offsets.len(),
        answered.epoch,
        history.numbers.len(),
        history.top,
        history.epoch
    );
    if is_same || fsync == "commit" {
        history.check_has_all(answered, channel);
    }
    match fsync {
        // A new epoch is permitted only if the power cut left parts of unsynced data. A partly
        // written commit, which was never acknowledged, can't be distinguished from a lost one.
        "commit" => assert!(is_same || !all_is_gone, "{channel}: {}", on.server.log()),
        _ => assert!(!is_same, "{channel}: what clients know may be gone"),
    }
    let since = format!("{}:{last}", answered.epoch);
    let client = Follower::open(&on.server, "ann", channel, Some(&since));
    assert_eq!(client.recovered, json!(is_same), "{channel} since {since}");
}
