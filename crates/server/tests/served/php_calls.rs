//! Calls of PHP handlers over Veche's pools: MariaDB, Redis, HTTP and the server's own API. The handlers wait
//! concurrently in one process.

use std::path::Path;
use std::time::Duration;

use crate::php_workers::has_php;
use crate::support::backing::Backing;
use crate::support::{Http, Server, Setup, Socket, USUAL, now, on_all};

const APP: &str = r#"
$app = Veche\App::create(concurrency: 100);
$db = $app->mysql('shop');
$cache = $app->redis('cache');
$app->message(function (Veche\Connection $conn, string $data) use ($app, $db, $cache): void {
    [$word, $rest] = explode(' ', $data, 2) + [1 => ''];
    try {
        $answer = match ($word) {
            'rows' => json_encode($db->rows('SELECT id, name, price FROM goods WHERE id <= ? ORDER BY id', (int) $rest)),
            'none' => json_encode([$db->row('SELECT * FROM goods WHERE id = 99'), $db->value('SELECT NULL')]),
            'bytes' => bin2hex($db->value('SELECT photo FROM goods WHERE id = 1')),
            'add' => json_encode($db->execute('INSERT INTO goods (name) VALUES (?)', $rest)),
            'clash' => $db->execute("SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'a deadlock'"),
            'push' => $cache->call('LPUSH', 'word', 'x'),
            'wrong' => $db->rows('SELECT nothing FROM nowhere'),
            'nameless' => $app->mysql('other')->value('SELECT 1'),
            'set' => $cache->call('SET', 'word', $rest),
            'get' => $cache->call('GET', 'word'),
            'list' => json_encode($cache->call('MGET', 'word', 'absent')),
            'switch' => $cache->call('SELECT', 1),
            'fetch' => json_encode([($got = $app->http()->get($rest))->status, $got->body]),
            'presence' => json_encode(array_keys($app->client()->presence($rest))),
            'slow' => (string) $db->value('SELECT SLEEP(?)', (float) $rest),
            'nap' => (string) Veche\sleep((float) $rest),
        };
    } catch (Veche\Exception\VecheException $error) {
        $answer = sprintf(
            '%s %s %s %s',
            $error->fault()->name,
            $error->codeName ?? $error->getCode(),
            $error->retryable() ? 'again' : 'never',
            $error->getMessage(),
        );
    }
    $conn->send("$word $answer");
});
$app->request(fn (Veche\Request $request) => (string) $db->value('SELECT SLEEP(1)'));
$app->run();
"#;

struct World {
    database: Backing,
    _cache: Backing,
    server: Server,
}

fn serve(setup: Setup, pool: u32) -> World {
    let (database, cache) = (Backing::mariadb(300), Backing::redis());
    database.sql(
        "create database test; use test;
         create table goods (id int auto_increment primary key, name varchar(20), price double, photo blob);
         insert into goods (name, price, photo) values ('tea', 2.5, x'00ff80'), ('bread', null, null)",
    );
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/php/veche.php");
    let program = format!("<?php require '{}';\n{APP}", sdk.display());
    let config = format!(
        "[[app]]
name = \"chat\"
runtime = \"php\"
command = [\"php\", \"app.php\"]
workers = 1
[[database]]
name = \"shop\"
url = \"{}\"
pool = {pool}
[[database]]
name = \"cache\"
url = \"{}\"
[[namespace]]
name = \"\"
presence = true
[[route]]
path = \"/php\"
handler = \"app\"
app = \"chat\"
[[route]]
path = \"/plain/*\"
handler = \"app\"
app = \"chat\"
[[route]]
path = \"/lua\"
handler = \"lua\"
script = \"app.lua\"
",
        database.url("test", ""),
        cache.url("0", ""),
    );
    let lua = "local veche = require 'veche'
        local db = veche.mysql.connect('shop')
        return { request = function() return tostring(db:value('select count(*) from goods')) end }";
    let server = Server::serving(setup, &config, &[("app.php", &program), ("app.lua", lua)]);
    World {
        database,
        _cache: cache,
        server,
    }
}

#[test]
fn handlers_call_databases_and_servers_by_name() {
    if !has_php() {
        return;
    }
    on_all(|setup| {
        let world = serve(setup, 10);
        let mut socket = Socket::open(world.server.public, "/php");
        let mut ask = |text: &str| {
            socket.say(text);
            let answer = socket.text();
            let word = text.split(' ').next().unwrap_or_default();
            answer
                .strip_prefix(&format!("{word} "))
                .unwrap_or(&answer)
                .to_owned()
        };
        assert_eq!(
            ask("rows 2"),
            r#"[{"id":1,"name":"tea","price":2.5},{"id":2,"name":"bread","price":null}]"#
        );
        assert_eq!(ask("none"), "[null,null]");
        assert_eq!(ask("bytes"), "00ff80");
        assert_eq!(ask("add milk"), r#"{"affected":1,"lastId":3}"#);
        let wrong = ask("wrong");
        assert!(wrong.contains("nowhere"), "{wrong}");
        assert!(wrong.starts_with("Caller 1146 never mysql: "), "{wrong}");
        let clash = ask("clash");
        assert!(clash.starts_with("Server 1213 again mysql: "), "{clash}");
        let nameless = ask("nameless");
        assert!(
            nameless.contains("no MySQL [[database]] named \"other\""),
            "{nameless}"
        );
        assert_eq!(ask("set v\u{f6}lva"), "OK");
        assert_eq!(ask("get"), "v\u{f6}lva");
        let push = ask("push");
        assert!(push.starts_with("Caller WRONGTYPE never redis: "), "{push}");
        assert_eq!(ask("list"), "[\"v\\u00f6lva\",null]");
        let switch = ask("switch");
        assert!(switch.contains("SELECT is not allowed"), "{switch}");
        let url = format!("http://{}/lua", world.server.public);
        assert_eq!(ask(&format!("fetch {url}")), "[200,\"3\"]");
        assert_eq!(ask("presence room"), "[]");
    });
}

/// One process waits for a hundred statements at once, each of which lasts a second.
#[test]
fn one_process_waits_for_many_statements_at_once() {
    if !has_php() {
        return;
    }
    let world = serve(USUAL, 100);
    let public = world.server.public;
    // The first round opens the connections of the pool, so that the second one measures only the statements.
    let ask_all = || {
        let started = now();
        std::thread::scope(|scope| {
            let ask = || {
                let mut http = Http::connect(public);
                http.request("GET", "/plain/a", "", b"")
                    .map(|answer| answer.status)
            };
            let all: Vec<_> = (0..100).map(|_| scope.spawn(ask)).collect();
            for one in all {
                assert_eq!(one.join().expect("it ends").ok(), Some(200));
            }
        });
        started.elapsed()
    };
    ask_all();
    // One after another, the statements would take 100 seconds. bench/results measures how close
    // the time is to one second.
    let took = ask_all();
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_database_that_is_gone_is_an_error_of_the_call() {
    if !has_php() {
        return;
    }
    let mut world = serve(USUAL, 10);
    let mut socket = Socket::open(world.server.public, "/php");
    let mut other = Socket::open(world.server.public, "/php");
    socket.say("slow 60");
    other.say("nap 0.5");
    assert_eq!(other.text(), "nap ");
    world.database.crash();
    let lost = socket.text();
    assert!(lost.starts_with("slow Network 0 never mysql: "), "{lost}");
    other.say("slow 0");
    let refused = other.text();
    assert!(
        refused.starts_with("slow Network 0 again mysql: "),
        "{refused}"
    );
    world.database.start();
    other.say("slow 0");
    assert_eq!(other.text(), "slow 0");
}
