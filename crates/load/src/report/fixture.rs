//! A report with something in every field, for tests.

use super::model::*;

/// Returns a report in which every field is set and every list has an entry.
pub(crate) fn full() -> Report {
    let latency = Latency {
        count: 1_000_000,
        min: 95.0,
        mean: 1_051.2,
        p50: 812.4,
        p90: 1_020.0,
        p95: 1_500.0,
        p99: 4_567.0,
        p999: 12_345.0,
        max: 2_001_000.0,
    };
    Report {
        schema: SCHEMA,
        kind: "echo".to_owned(),
        target: "ws://127.0.0.1:8080/echo".to_owned(),
        started: "2026-11-21T06:00:00Z".to_owned(),
        machine: Machine {
            veche: "0.1.0".to_owned(),
            cpu: "Example 9000".to_owned(),
            cores: 8,
            kernel: "6.1.0".to_owned(),
        },
        settings: Settings {
            command: ["echo", "ws://127.0.0.1:8080/echo", "--connections", "240"]
                .map(str::to_owned)
                .to_vec(),
            label: Some("veche".to_owned()),
            connections: 240,
            duration_s: Some(10.0),
            warmup_s: 2.0,
            rate: Some(100_000.0),
            size_bytes: Some(20),
            stamped: Some(true),
            inflight: Some(1),
            threads: 1,
            processes: 1,
        },
        seconds: 10.0,
        interrupted: false,
        stopped: false,
        incomplete: false,
        connections: ConnectionCounts {
            asked: 240,
            opened: 239,
            failed: 1,
            disconnected: 2,
            reconnected: 3,
            dead: 0,
            late: 0,
            all_open_s: Some(0.05),
            time_wait: Some(7),
        },
        messages: Messages {
            sent: 1_000_010,
            received: 1_000_000,
            received_in_time: 1_000_000,
            per_second: 100_000.0,
            rate_reached: Some(true),
            bytes_sent: 20_000_200,
            bytes_received: 20_000_000,
            unasked: 240,
            heartbeats: 6,
            duplicated: 5,
            late: 4,
            lost: 3,
            unanswered: 10,
        },
        errors: Errors {
            refused: 1,
            reset: 2,
            examples: [(
                "refused".to_owned(),
                "connect to 127.0.0.1:8080: Connection refused".to_owned(),
            )]
            .into(),
            ..Errors::default()
        },
        latency_us: Some(latency.clone()),
        latency_refused: None,
        handshake_us: Some(Latency {
            count: 239,
            ..latency.clone()
        }),
        histogram: (0..60)
            .map(|step| Bucket {
                to_us: 95.0 * 1.18_f64.powi(step),
                count: 1 + (60 - step as u64) * 500,
            })
            .collect(),
        timeline: (0..10)
            .map(|second| Interval {
                from_s: f64::from(second),
                seconds: 1.0,
                received: 100_000 - 7 * u64::from(second as u32),
                errors: u64::from(second == 3),
                p50_us: Some(810.0 + f64::from(second)),
                p99_us: Some(4_500.0 + 10.0 * f64::from(second)),
                max_us: Some(if second == 4 { 2_001_000.0 } else { 15_000.0 }),
            })
            .collect(),
        ledger: Some(LedgerCounts {
            receivers: 100,
            published: 1_000,
            expected: 100_000,
            delivered: 99_990,
            lost: 7,
            away: 3,
            duplicated: 2,
            reordered: 1,
            corrupted: 4,
            foreign: 9,
            recovery: Some(Recovery {
                returned: 5_000,
                refused: 6,
                ended: 101,
                retried: 9,
                example: Some("the connection was reset".to_owned()),
                unanswered: 3,
                unanswered_delivered: 200,
            }),
            worst: vec![LedgerPage {
                receiver: 17,
                lost: 5,
                duplicated: 1,
                reordered: 0,
                corrupted: 0,
                first: "message 512 of publisher 0 was never received".to_owned(),
            }],
        }),
        http: Some(HttpTally {
            statuses: [(200, 500_000), (503, 500_000)].into(),
            body_bytes: [(13, 500_000), (162, 499_000)].into(),
            other_body_bytes: 1_000,
            unexpected_bodies: Some(500_000),
        }),
        script: Some(ScriptTally {
            sessions: 900,
            sessions_failed: 3,
            actions: vec![ActionFigures {
                name: "log in".to_owned(),
                count: 900,
                per_second: 90.0,
                failed: 3,
                latency_us: Some(latency.clone()),
                example: Some("users.lua:7: status 503".to_owned()),
            }],
        }),
        steps: vec![Step {
            clients: 1_000,
            samples: 5_000,
            p50_us: 900.0,
            p95_us: 1_100.0,
            max_us: 9_000.0,
            errors: 0,
        }],
        server: Some(ServerUse {
            pid: 4_242,
            processes: 2,
            cpu_busiest: 0.5,
            cpu_s: 5.25,
            cpu_us_per_message: Some(5.25),
            rss_before_bytes: 12 << 20,
            rss_open_bytes: 13 << 20,
            bytes_per_connection: Some(812.3),
        }),
        server_ended: None,
        distribution: None,
        search: Some(Search {
            rate: Some(12_000.0),
            broken_at: Some(12_500.0),
            steps: vec![SearchStep {
                rate: 12_500.0,
                per_second: 12_100.0,
                p99_us: Some(9_000.0),
                held: false,
                broken: vec!["latency.p99 <= 5ms: 9 ms".to_owned()],
            }],
        }),
        generator: GeneratorUse {
            cpu: 0.45,
            cpu_s: 4.5,
            cpu_us_per_message: Some(4.5),
            waited: 0.003,
            lag_us_max: 1_234.0,
            pause_us_max: 0.0,
            unsent_bytes_max: 4_096,
            late_sends: 12,
            bytes_per_connection: Some(700.0),
            bottleneck: false,
            reasons: Vec::new(),
            remarks: vec!["a thread of the tester waited for a core 6 % of the time".to_owned()],
            lost: Vec::new(),
        },
        phases: Vec::new(),
        checks: vec![Objective {
            promise: "latency.p99 <= 50ms".to_owned(),
            measured: "4.57 ms".to_owned(),
            passed: true,
        }],
    }
}
