//! Tests a start with a wrong clock, as before NTP has set it: bans, revoked tokens and history are
//! intact once the clock is right.

use serde_json::json;

use super::disk::OnDisk;
use super::{Answered, history, is_let_in};
use crate::jwt::{bearer, handshake, now_s, shared};
use crate::support::call;
use crate::support::http::Http;

const CHANNEL: &str = "chat:0";
const DAY_S: i64 = 86_400;

#[test]
fn a_start_with_a_wrong_clock_costs_nothing() {
    // The clock is a day ahead, or as far behind as a clock without a battery.
    for wrong_s in [DAY_S, -20 * 365 * DAY_S] {
        let Some(mut on) = OnDisk::start("1s", 0) else {
            return;
        };
        let token = shared(&json!({ "sub": "bob", "jti": "t1", "exp": now_s() + 3600 }));
        let status = |on: &OnDisk| handshake(on.server.public, "/jwt", &bearer(&token)).status;
        assert_eq!(status(&on), 101);
        let until_s = now_s() + 6 * 3600;
        for (method, body) in [
            ("block_user", json!({ "user": "eve", "expire_at": until_s })),
            ("revoke_token", json!({ "uid": "t1", "expire_at": until_s })),
        ] {
            let answer = call(on.server.internal, method, &body);
            assert!(answer["result"].is_object(), "{method}: {answer}");
        }
        assert!(!is_let_in(&on.server, "eve"));
        assert_eq!(status(&on), 401);
        let mut answered = Answered::default();
        let mut publish = |on: &OnDisk, number| {
            let mut http = Http::connect(on.server.internal);
            assert!(answered.publish(&mut http, CHANNEL, number));
            let history = history(&on.server, CHANNEL);
            history.check_has_all(&answered, CHANNEL);
            assert_eq!(history.numbers.len() as u64, number, "{wrong_s}");
        };
        publish(&on, 1);
        on.server.stop();
        on.start_again(wrong_s);
        // With the clock ahead the ban seems to have expired; with the clock behind it is in force.
        assert_eq!(is_let_in(&on.server, "eve"), wrong_s > 0);
        publish(&on, 2);
        // Other commands don't remove bans that seem expired.
        call(on.server.internal, "block_user", &json!({ "user": "mal" }));
        on.server.stop();
        on.start_again(0);
        assert!(!is_let_in(&on.server, "eve"), "{wrong_s}");
        assert!(!is_let_in(&on.server, "mal"), "{wrong_s}");
        assert_eq!(status(&on), 401, "{wrong_s}");
        publish(&on, 3);
    }
}
