//! Users simulated by a script: the report's counts are equal to those of the server.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::known::http::{After, response, serve_http};
use crate::support::Setup;
use crate::support::server::Server;
use crate::{Outcome, bench, silence};

/// Runs a script for half a second, without a warm-up.
fn play(script: &str, url: &str, more: &[&str]) -> Outcome {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, SeqCst);
    let name = format!("veche-bench-script-{}-{number}.lua", std::process::id());
    let file = std::env::temp_dir().join(name);
    let head = "local veche, bench = require \"veche\", require \"veche.bench\" ";
    fs::write(&file, format!("{head}{script}")).expect("a temporary folder");
    let path = file.to_str().expect("UTF-8");
    let fixed = ["script", path, url, "-d", "500ms", "--warmup", "0s"];
    let outcome = bench(&[&fixed[..], more].concat());
    let _ = fs::remove_file(&file);
    outcome
}

impl Outcome {
    /// Returns one figure of a script's action from the report.
    #[track_caller]
    fn action(&self, name: &str, figure: &str) -> u64 {
        let actions = self.at("/script/actions").as_array();
        let action = actions.and_then(|all| all.iter().find(|action| action["name"] == name));
        let action = action.unwrap_or_else(|| panic!("{name}: {self:#?}"));
        action
            .pointer(figure)
            .and_then(|it| it.as_u64())
            .unwrap_or(0)
    }
}

/// Every third request of a path fails.
#[test]
fn failures_are_counted_to_the_request() {
    let (good, bad) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let seen = (Arc::clone(&good), Arc::clone(&bad));
    let count = AtomicU64::new(0);
    let address = serve_http(move |_, _, _| {
        if count.fetch_add(1, SeqCst) % 3 == 2 {
            bad.fetch_add(1, SeqCst);
            return (response("503 Service Unavailable", "no"), After::Stay);
        }
        good.fetch_add(1, SeqCst);
        (response("200 OK", "yes"), After::Stay)
    });
    let script = "bench.user(function(user)
        for _ = 1, 4 do
          pcall(bench.action, 'act', function()
            local answer = veche.http.get(user.url .. '/act')
            assert(answer.status == 200, 'status ' .. answer.status)
          end)
          veche.sleep(0.01)
        end
      end)";
    let outcome = play(
        script,
        &format!("http://{address}/"),
        &["-c", "5", "--threads", "2"],
    );
    let (good, bad) = (seen.0.load(SeqCst), seen.1.load(SeqCst));
    assert!(good > 20 && bad > 10, "{good} {bad} {outcome:#?}");
    assert_eq!(outcome.code, Some(8), "{outcome:#?}");
    assert_eq!(outcome.count("/messages/sent"), good + bad);
    assert_eq!(outcome.count("/messages/received"), good);
    assert_eq!(outcome.count("/latency_us/count"), good);
    assert_eq!(outcome.action("act", "/latency_us/count"), good);
    assert_eq!(outcome.action("act", "/failed"), bad);
    assert_eq!(outcome.count("/errors/script"), bad);
    // The script has caught these errors, so its sessions count as successful.
    assert_eq!(outcome.count("/script/sessions_failed"), 0);
    assert!(outcome.count("/script/sessions") > 0, "{outcome:#?}");
    assert_eq!(outcome.count("/connections/opened"), 5);
    let example = outcome.at("/errors/examples/script").as_str();
    assert!(
        example.is_some_and(|words| words.starts_with("act: ") && words.ends_with("status 503")),
        "{example:?}"
    );
}

#[test]
fn a_session_fails_once() {
    let address = serve_http(|_, _, _| (response("200 OK", "yes"), After::Stay));
    let script = "bench.user(function(user)
        bench.action('act', veche.http.get, user.url)
        if user.number == 0 then bench.action('fail', error, 'by an action', 0) end
        if user.number == 1 then error('by itself', 0) end
        veche.sleep(60)
      end)";
    let outcome = play(script, &format!("http://{address}"), &["-c", "3"]);
    assert_eq!(outcome.code, Some(8), "{outcome:#?}");
    assert_eq!(outcome.count("/script/sessions_failed"), 2);
    assert_eq!(outcome.count("/errors/script"), 2, "each error once");
    assert_eq!(outcome.action("act", "/latency_us/count"), 3);
    assert_eq!(outcome.action("fail", "/failed"), 1);
}

#[test]
fn an_action_that_hangs_is_an_error() {
    let address = crate::serve(silence);
    let script = "bench.user(function(user)
        bench.record('delivery', 0.25)
        bench.action('hang', veche.http.get, user.url)
      end)";
    let more = ["-c", "2", "--timeout", "100ms"];
    let outcome = play(script, &format!("http://{address}"), &more);
    assert_eq!(outcome.code, Some(8), "{outcome:#?}");
    assert_eq!(outcome.count("/messages/unanswered"), 2);
    assert_eq!(outcome.count("/errors/timed_out"), 2);
    // A delivery timed by the script itself may have started before the measurement, so it counts only in the
    // throughput.
    assert_eq!(outcome.action("delivery", "/count"), 2);
}

#[test]
fn a_script_without_users_is_refused() {
    for (script, code, words) in [
        ("", 2, "never calls bench.user"),
        (
            "bench.user(1)",
            2,
            "bad argument #1 to 'bench.user': a function expected",
        ),
        (
            "bench.user(function() end) bench.user(function() end)",
            2,
            "called twice",
        ),
        ("if", 2, "unexpected symbol"),
        (
            "bench.user(function() veche.sleep(0.01) end)",
            8,
            "no action ended",
        ),
    ] {
        let outcome = play(script, "http://127.0.0.1:1", &["-c", "1"]);
        assert_eq!(outcome.code, Some(code), "{script}: {outcome:#?}");
        assert!(outcome.stderr.contains(words), "{script}: {outcome:#?}");
    }
    let outcome = bench(&["script", "/nowhere/users.lua", "http://127.0.0.1:1"]);
    assert_eq!(outcome.code, Some(2), "{outcome:#?}");
    assert!(
        outcome.stderr.contains("/nowhere/users.lua"),
        "{outcome:#?}"
    );
}

/// Runs the example of a load script against the demo.
#[test]
fn the_example_plays_users_of_the_demo() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let setup = Setup {
        io: "epoll",
        workers: 2,
    };
    let server = Server::copy_of(setup, &examples.join("push"));
    let script = examples.join("bench/users.lua");
    let (script, url) = (
        script.to_str().expect("UTF-8"),
        format!("http://{}", server.public),
    );
    let pid = server.pid().to_string();
    let run = [
        "script", script, &url, "-c", "6", "-d", "8s", "--warmup", "0s",
    ];
    let outcome = bench(&[&run[..], &["--threads", "2", "--pid", &pid]].concat());
    outcome.assert_clean();
    assert_eq!(outcome.at("/kind"), "script");
    // Each user loads the page once; some do so before the measured time begins.
    let at_least = [
        ("page", 1),
        ("connect", 1),
        ("subscribe", 1),
        ("publish", 6),
        ("delivery", 6),
    ];
    for (name, count) in at_least {
        assert!(
            outcome.action(name, "/latency_us/count") >= count,
            "{name}: {outcome:#?}"
        );
    }
    assert!(outcome.count("/server/rss_open_bytes") > 0);
}
