<?php

declare(strict_types=1);

namespace Veche\Tests\Server;

use Veche\Exception\ClosedException;
use Veche\Tests\Support\Server;
use Veche\WebSocket\Client as Socket;

/**
 * An application in one worker process of a real server, with several suspended handlers at once.
 */
final class WorkerAppTest extends ServerTestCase
{
    private const APP = <<<'PHP'
        $app = Veche\App::create(concurrency: 100);
        $app->open(function (Veche\Connection $conn): void {
            $conn->identify($conn->request->query('user') ?? 'ann');
            $conn->subscribe('room:' . $conn->request->query('user'));
        });
        $app->message(function (Veche\Connection $conn, string $data) use ($app): void {
            [$word, $rest] = explode(' ', $data, 2) + [1 => ''];
            $api = $app->client();
            $answer = match ($word) {
                'sleep' => Veche\sleep((float) $rest),
                'publish' => $api->publish("room:$conn->user", $rest)->position?->offset,
                'history' => count($api->history("room:$conn->user", limit: 10)->publications),
                'presence' => count($api->presence("room:$conn->user")),
                'connections' => count($api->connectionsOfUser($rest)),
                'own' => count($app->connectionsOf($rest)),
                'online' => $api->userStatus($rest)->online,
                'fetch' => $app->http()->get($rest)->status,
                'unknown' => $app->mysql('shop')->value('SELECT 1'),
            };
            $conn->send("$word $answer");
        });
        $app->run();
        PHP;

    public static function setUpBeforeClass(): void
    {
        $sdk = var_export(dirname(__DIR__, 2) . '/veche.php', true);
        self::$server = new Server(
            static::config(),
            ['app.php' => "<?php require $sdk;\n" . self::APP],
        );
    }

    protected static function config(): string
    {
        return <<<'TOML'
            [server]
            workers = 1
            [[listen]]
            address = "127.0.0.1:{port}"
            [[listen]]
            address = "127.0.0.1:{internal_port}"
            role = "internal"
            [api]
            keys = ["key"]
            [[app]]
            name = "chat"
            runtime = "php"
            command = ["php", "app.php"]
            workers = 1
            event_timeout = "4s"
            [[namespace]]
            name = "room"
            presence = true
            history_size = 10
            history_ttl = "1m"
            [[route]]
            path = "/ws"
            handler = "app"
            app = "chat"
            TOML;
    }

    public function testCallsDuringAHandler(): void
    {
        $health = self::$server->api() . '/health';
        $socket = self::open('/ws?user=bob');
        foreach (
            [
                'history' => 'history 0',
                'presence' => 'presence 1',
                'connections bob' => 'connections 1',
                'own bob' => 'own 1',
                'online bob' => 'online 1',
                'online nobody' => 'online ',
                "fetch $health" => 'fetch 200',
            ] as $message => $answer
        ) {
            $socket->send($message);
            self::assertSame($answer, $socket->receive(5)->data, $message);
        }
        $socket->send('publish hello');
        $heard = [$socket->receive(5)->data, $socket->receive(5)->data];
        sort($heard);
        self::assertSame(['hello', 'publish 1'], $heard);
        $socket->send('history');
        self::assertSame('history 1', $socket->receive(5)->data);
        $socket->close();
    }

    public function testOneProcessHandlesAHundredEventsAtOnce(): void
    {
        $sockets = array_map(static fn (int $i): Socket => self::open("/ws?user=u$i"), range(0, 99));
        $started = microtime(true);
        foreach ($sockets as $socket) {
            $socket->send('sleep 1');
        }
        foreach ($sockets as $socket) {
            self::assertSame('sleep ', $socket->receive(30)->data);
        }
        // One after the other, the hundred handlers would take 100 seconds.
        self::assertLessThan(20, microtime(true) - $started);
        foreach ($sockets as $socket) {
            $socket->close();
        }
    }

    public function testMessagesOfOneConnectionStayInOrderWhileOthersGoOn(): void
    {
        [$first, $second] = [self::open('/ws?user=ann'), self::open('/ws?user=cid')];
        $first->send('sleep 2');
        for ($i = 0; $i < 20; $i++) {
            $first->send('history');
            $first->send('own ann');
        }
        $started = microtime(true);
        $second->send('presence');
        self::assertSame('presence 1', $second->receive(5)->data);
        self::assertLessThan(1.9, microtime(true) - $started, 'it does not wait for the first one');
        self::assertSame('sleep ', $first->receive(10)->data);
        for ($i = 0; $i < 20; $i++) {
            self::assertSame(['history 0', 'own 1'], [$first->receive(5)->data, $first->receive(5)->data]);
        }
        $first->close();
        $second->close();
    }

    public function testAKilledProcessEndsAllOfItsEventsAndNoOtherConnection(): void
    {
        [$late, $idle] = [self::open('/ws?user=late'), self::open('/ws?user=idle')];
        $others = array_map(static fn (int $i): Socket => self::open("/ws?user=o$i"), range(0, 2));
        $late->send('sleep 60');
        $idle->send('sleep 1');
        self::assertSame('sleep ', $idle->receive(5)->data);
        foreach ($others as $socket) {
            $socket->send('sleep 60');
        }
        foreach ([$late, ...$others] as $socket) {
            self::assertSame(1011, self::closeCode($socket));
        }
        $log = static fn (): string => (string) file_get_contents(self::$server->folder . '/log');
        $why = 'the event message took longer than 4s';
        for ($i = 0; $i < 500 && substr_count($log(), $why) < 4; $i++) {
            usleep(20000);
        }
        self::assertGreaterThanOrEqual(4, substr_count($log(), $why));
        $idle->send('sleep 0');
        self::assertSame('sleep ', $idle->receive(15)->data);
        $idle->close();
    }

    public function testAnUnknownPoolFailsTheCallAndItsEvent(): void
    {
        $socket = self::open('/ws?user=dan');
        $socket->send('unknown');
        self::assertSame(1011, self::closeCode($socket));
    }

    private static function closeCode(Socket $socket): int
    {
        try {
            $socket->receive(15);
        } catch (ClosedException $error) {
            return $error->getCode();
        }
        self::fail('the connection is open');
    }
}
