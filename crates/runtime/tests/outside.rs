//! Compares calls of workers to external servers, and their results, with the test vectors.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::vector;
use veche_calls::mysql::{Database, MysqlAction, MysqlReply, MysqlValue, ResultMode, Rows};
use veche_calls::redis::{RedisAction, RedisDatabase, RedisReply, RedisValue};
use veche_calls::{
    Call, CallError, CallErrorKind, CallOutcome, CallReply, CertificateTrust, Databases, HttpCall,
    HttpReply, ReplyBody, ServerAccount, TlsMode,
};
use veche_runtime::wire::{
    CallRequest, Frame, FrameDecoder, FrameLimits, FromWorker, Outside, ResultHead, encode,
};

fn server(port: u16) -> ServerAccount {
    ServerAccount {
        host: "127.0.0.1".into(),
        port,
        user: None,
        password: None,
        tls: TlsMode::Off,
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn configured() -> Databases {
    let shop = Database {
        server: server(3306),
        name: None,
        pool_name: None,
        pool: 2,
        connect_timeout: SECOND,
        wait_timeout: SECOND,
        timeout: SECOND,
        idle_timeout: SECOND,
        rows_max: 10,
        bytes_max: 1000,
    };
    let cache = RedisDatabase {
        server: server(6379),
        database: 0,
        pool_name: None,
        pool: 2,
        connect_timeout: SECOND,
        wait_timeout: SECOND,
        timeout: SECOND,
        idle_timeout: SECOND,
        queue: 10,
    };
    Databases {
        mysql: [("shop".to_owned(), Arc::new(shop))].into(),
        redis: [("cache".to_owned(), Arc::new(cache))].into(),
    }
}

fn call(name: &str) -> Result<Call, CallError> {
    let vector = vector("calls", name);
    let wire = vector.wire();
    let mut decoder = FrameDecoder::new(FrameLimits::default());
    let mut input = &wire[..];
    let frame: Frame<'_> = decoder.decode(&mut input).expect("a frame").expect("whole");
    match FromWorker::read(frame, |id| vector.in_hand(id)).expect("a frame of a worker") {
        FromWorker::Call(call) => match call.request {
            CallRequest::Outside(outside) => outside.call(&configured()),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_have_the_limits_of_all() {
    let Ok(Call::Http(HttpCall::Fetch(fetch))) = call("http") else {
        panic!("no request");
    };
    assert_eq!(
        (&*fetch.method, &*fetch.url),
        ("POST", "https://example.com/orders")
    );
    let pair = ("content-type".to_owned(), b"application/json".to_vec());
    assert_eq!(fetch.headers, [pair]);
    assert_eq!(fetch.body, br#"{"a":1}"#);
    assert_eq!(fetch.timeout, Duration::from_millis(2500));
    assert_eq!(
        fetch.body_bytes_max,
        FrameLimits::default().payload_bytes_max as u64
    );
    assert_eq!(
        (&fetch.trust, fetch.is_stream),
        (&CertificateTrust::System, false)
    );
    let Ok(Call::Http(HttpCall::Fetch(least))) = call("http, the least") else {
        panic!("no request");
    };
    assert_eq!(
        (&*least.method, least.timeout),
        ("GET", Duration::from_secs(30))
    );
    assert!(least.body.is_empty() && least.headers.is_empty());
}

#[test]
fn statements_and_commands_go_to_the_pool_of_that_name() {
    let Ok(Call::Mysql(mysql)) = call("mysql") else {
        panic!("no statement");
    };
    assert_eq!(mysql.database.server.port, 3306);
    let MysqlAction::Run {
        within,
        sql,
        values,
        wanted,
    } = mysql.action
    else {
        panic!("{:?}", mysql.action);
    };
    assert!(within.is_none() && sql.starts_with("SELECT id"));
    assert_eq!(
        values,
        [MysqlValue::Number(3.0), MysqlValue::Bytes("Zoë".into())]
    );
    assert_eq!(wanted, ResultMode::Rows);
    let Ok(Call::Redis(redis)) = call("redis") else {
        panic!("no command");
    };
    let RedisAction::Run(command) = redis.action else {
        panic!("{:?}", redis.action);
    };
    let words: Vec<&[u8]> = command.parts().collect();
    assert_eq!(words, [&b"HGETALL"[..], b"user:1"]);
}

#[test]
fn what_no_pool_can_carry_out_is_invalid() {
    let command = |words: &[&str]| {
        let mut command = veche_calls::redis::RedisCommand::default();
        words.iter().for_each(|word| command.push(word.as_bytes()));
        command
    };
    let redis = |database: &'static str, words: &[&str]| {
        let outside = Outside::Redis {
            database: database.into(),
            command: command(words),
        };
        outside.call(&configured())
    };
    let statement = Outside::Mysql {
        database: "cache".into(),
        sql: "SELECT 1".into(),
        values: Vec::new(),
        wanted: ResultMode::Value,
    };
    for (result, words) in [
        (
            redis("shop", &["GET", "a"]),
            "no Redis [[database]] named \"shop\"",
        ),
        (
            statement.call(&configured()),
            "no MySQL [[database]] named \"cache\"",
        ),
        (redis("cache", &["SELECT", "1"]), "SELECT is not allowed"),
    ] {
        let fault = result.expect_err(words);
        assert_eq!(fault.kind, CallErrorKind::Invalid);
        assert!(fault.words.contains(words), "{}", fault.words);
    }
    let Ok(Call::Redis(waits)) = redis("cache", &["BLPOP", "a", "1"]) else {
        panic!("no command");
    };
    assert!(matches!(waits.action, RedisAction::Block(_)));
}

#[test]
fn results_are_those_of_the_vectors() {
    let bytes = |bytes: &[u8]| MysqlValue::Bytes(bytes.to_vec());
    let rows = Rows {
        columns: ["id", "name", "photo"].map(str::to_owned).to_vec(),
        values: vec![
            MysqlValue::Number(1.0),
            bytes(b"Ann"),
            bytes(b"\x89PNG\0\xff"),
            MysqlValue::Number(2.0),
            bytes(b"Bob"),
            MysqlValue::Null,
        ],
    };
    let text = |text: &str| RedisValue::Bytes(text.as_bytes().to_vec());
    let tags = RedisValue::List(vec![
        text("a"),
        RedisValue::Number(7.0),
        RedisValue::Boolean(true),
        RedisValue::Nil,
    ]);
    let pair = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
    let response = HttpReply {
        status: 201,
        headers: vec![
            pair("content-type", "text/plain"),
            pair("set-cookie", "a=1"),
        ],
        url: "https://example.com/orders".into(),
        body: ReplyBody::Whole(b"done".to_vec()),
    };
    let changes = MysqlReply::Changes {
        affected: 1,
        last_id: Some(42),
        rows: None,
    };
    for (name, id, reply) in [
        ("the result of http", 8, CallReply::Http(Box::new(response))),
        (
            "the result of mysql, rows",
            10,
            CallReply::Mysql(MysqlReply::Rows(rows)),
        ),
        (
            "the result of mysql, a value",
            10,
            CallReply::Mysql(MysqlReply::Value(Some(MysqlValue::Number(0.5)))),
        ),
        (
            "the result of mysql, changes",
            10,
            CallReply::Mysql(changes),
        ),
        (
            "the result of redis",
            11,
            CallReply::Redis(RedisReply::Value(RedisValue::Map(vec![(
                text("tags"),
                tags,
            )]))),
        ),
    ] {
        let outcome: CallOutcome = Ok(reply);
        let (head, payload) = ResultHead::of_outcome(id, &outcome);
        let mut wire = Vec::new();
        encode(&mut wire, FrameLimits::default(), &head, &[&payload]).expect("it is short");
        assert_eq!(wire, vector("calls", name).wire(), "{name}");
    }
}
