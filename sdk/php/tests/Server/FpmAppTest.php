<?php

declare(strict_types=1);

namespace Veche\Tests\Server;

use PHPUnit\Framework\TestCase;
use Veche\Exception\ClosedException;
use Veche\Exception\UnavailableException;
use Veche\Exception\VecheException;
use Veche\Tests\Support\Fpm;
use Veche\Tests\Support\Server;
use Veche\WebSocket\Client as Socket;

/**
 * An application that php-fpm runs for a real server: one request for each event, two processes.
 */
final class FpmAppTest extends TestCase
{
    private const APP = <<<'PHP'
        $app = Veche\App::create();
        $app->open(function (Veche\Connection $conn) {
            $user = $conn->request->query('user');
            if ($user === null) {
                return new Veche\Response(401, "who are you?\n");
            }
            $conn->identify($user);
            $conn->set('said', 0);
            $conn->subscribe('room');
        });
        $app->message(function (Veche\Connection $conn, string $data, bool $isBinary) use ($app) {
            $conn->set('said', $conn->get('said') + 1);
            [$word, $rest] = explode(' ', $data, 2) + [1 => ''];
            match ($word) {
                'count' => $conn->send("$conn->user has said {$conn->get('said')}"),
                'say' => $app->publishTo('room', $rest),
                'sleep' => usleep((int) $rest * 1000),
                'throw' => throw new RuntimeException('as asked'),
                'exit' => exit,
                'die' => exec('kill -9 ' . getmypid()),
                'leave' => $conn->close(4000, 'as you wish'),
                'greet' => $conn->send($app->options()['greeting']),
                'presence' => $conn->send((string) $app->client()->presenceStats('room')->clients),
                default => $isBinary ? $conn->sendBinary($data) : $conn->send($data),
            };
            if ($word === 'sleep') {
                $conn->send("slept $rest");
            }
        });
        $app->close(fn (Veche\Connection $conn, int $code) => $app->publishTo('room', "$conn->user left with $code"));
        $app->request(fn (Veche\Request $request) => $request->path === '/plain/throw'
            ? throw new RuntimeException('as asked')
            : new Veche\Response(201, "$request->method $request->body", ['X-Path' => $request->path]));
        $app->run();
        PHP;

    private const CONFIG = <<<'TOML'
        [server]
        workers = 2
        [[listen]]
        address = "127.0.0.1:{port}"
        [[listen]]
        address = "127.0.0.1:{internal_port}"
        role = "internal"
        [api]
        keys = ["key"]
        [[app]]
        name = "chat"
        runtime = "fastcgi"
        address = "unix:{fpm}/fpm.sock"
        script = "{fpm}/app.php"
        workers = 2
        queue_timeout = "300ms"
        event_timeout = "1s"
        api_url = "http://127.0.0.1:{internal_port}"
        api_key_file = "api.key"
        options = { greeting = "hello" }
        [[namespace]]
        name = ""
        presence = true
        [[route]]
        path = "/ws"
        handler = "app"
        app = "chat"
        [[route]]
        path = "/plain/*"
        handler = "app"
        app = "chat"
        [[route]]
        path = "/echo"
        handler = "echo"
        TOML;

    private static ?Fpm $fpm;
    private static ?Server $server = null;

    public static function setUpBeforeClass(): void
    {
        self::$fpm = Fpm::start();
        if (self::$fpm === null) {
            return;
        }
        $sdk = dirname(__DIR__, 2) . '/veche.php';
        file_put_contents(self::$fpm->folder . '/app.php', "<?php require '$sdk';\n" . self::APP);
        $config = strtr(self::CONFIG, ['{fpm}' => self::$fpm->folder]);
        self::$server = new Server($config, ['api.key' => "key\n"]);
    }

    public static function tearDownAfterClass(): void
    {
        self::$server?->stop();
        self::$fpm?->stop();
    }

    protected function setUp(): void
    {
        if (self::$server === null) {
            self::markTestSkipped('php-fpm is not installed');
        }
    }

    public function testAnswersEvents(): void
    {
        $ann = self::open('ann');
        foreach (['hello', '', 'вече 🔔', str_repeat('x', 60000)] as $text) {
            $ann->send($text);
            self::assertSame($text, $ann->receive(5)->data);
        }
        $ann->send('count');
        self::assertSame('ann has said 5', $ann->receive(5)->data);
        $ann->send('greet');
        self::assertSame('hello', $ann->receive(5)->data);
        $ann->send('presence');
        self::assertSame('1', $ann->receive(5)->data);
        $bob = self::open('bob');
        $bob->send('say to all');
        self::assertSame(['to all', 'to all'], [$ann->receive(5)->data, $bob->receive(5)->data]);
        $bob->send('leave');
        self::assertSame('bob left with 4000', $ann->receive(5)->data);
        $ann->close();
    }

    public function testAHandshakeIsRefused(): void
    {
        $this->expectException(VecheException::class);
        $this->expectExceptionMessage('401');
        Socket::connect(self::$server->url('/ws'));
    }

    public function testRequests(): void
    {
        self::assertSame([201, 'POST body'], self::request('/plain/a', 'body'));
        self::assertSame(500, self::request('/plain/throw', 'x')[0]);
    }

    /**
     * @testWith ["throw", "RuntimeException: as asked in"]
     *           ["exit", "by exit or die"]
     *           ["die", "the connection ended before the response did"]
     *           ["sleep 1600", "no response within 1s"]
     */
    public function testAFailureEndsItsConnectionAndSaysWhy(string $message, string $why): void
    {
        $socket = self::open('ann');
        $socket->send($message);
        self::assertSame(1011, self::closeCode($socket));
        for ($i = 0; $i < 100 && !str_contains(self::log(), $why); $i++) {
            usleep(20000);
        }
        self::assertStringContainsString($why, self::log());
        $next = self::open('bob');
        $next->send('hello');
        // The client may first be told that the failed connection has left.
        while (($heard = $next->receive(5)->data) !== 'hello') {
            self::assertSame('ann left with 1011', $heard);
        }
        $next->close();
    }

    public function testWhereAllProcessesAreBusyEventsWaitAndThenAreRefused(): void
    {
        $busy = [self::open('busy0'), self::open('busy1')];
        [$late, $patient, $gone] = [self::open('late'), self::open('patient'), self::open('gone')];
        foreach ($busy as $socket) {
            $socket->send('sleep 800');
        }
        usleep(150000);
        $late->send('hello');
        $gone->close();
        $started = microtime(true);
        $echo = Socket::connect(self::$server->url('/echo'));
        $echo->send('hello');
        self::assertSame('hello', $echo->receive(5)->data);
        self::assertLessThan(0.3, microtime(true) - $started, 'other routes go on');
        self::assertSame(503, self::request('/plain/a', 'x')[0]);
        self::assertSame(1013, self::closeCode($late));
        // The close event of a connection is never dropped, even if the queue is full.
        $heard = [];
        while (!in_array('gone left with 1000', $heard, true)) {
            $heard[] = $patient->receive(5)->data;
        }
        $patient->send('count');
        while (!str_starts_with($said = $patient->receive(5)->data, 'patient')) {
        }
        self::assertSame('patient has said 1', $said);
    }

    public function testEventsOfOneConnectionStayInOrder(): void
    {
        $socket = self::open('ann');
        for ($i = 0; $i < 20; $i++) {
            $socket->send("say $i");
        }
        $heard = [];
        while (count($heard) < 20) {
            $data = $socket->receive(5)->data;
            if (is_numeric($data)) {
                $heard[] = $data;
            }
        }
        self::assertSame(array_map(strval(...), range(0, 19)), $heard);
        $socket->close();
    }

    private static function open(string $user): Socket
    {
        // A PHP process may still be busy with a handler of the previous test that sleeps.
        for ($attempt = 1; true; $attempt++) {
            try {
                return Socket::connect(self::$server->url("/ws?user=$user"));
            } catch (UnavailableException $error) {
                if ($attempt === 10) {
                    throw $error;
                }
            }
        }
    }

    private static function log(): string
    {
        return (string) file_get_contents(self::$server->folder . '/log');
    }

    /**
     * @return array{int, string}
     */
    private static function request(string $path, string $body): array
    {
        $context = stream_context_create(['http' => [
            'method' => 'POST', 'content' => $body, 'ignore_errors' => true, 'header' => 'Content-Type: text/plain',
        ]]);
        $answer = (string) file_get_contents('http://127.0.0.1:' . self::$server->port . $path, false, $context);
        return [(int) explode(' ', $http_response_header[0])[1], $answer];
    }

    private static function closeCode(Socket $socket): int
    {
        try {
            while (true) {
                $socket->receive(5);
            }
        } catch (ClosedException $error) {
            return $error->getCode();
        }
    }
}
