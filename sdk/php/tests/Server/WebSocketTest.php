<?php

declare(strict_types=1);

namespace Veche\Tests\Server;

use Closure;
use Veche\Exception\CallerException;
use Veche\Exception\ClosedException;
use Veche\Exception\NetworkException;
use Veche\Exception\ProtocolException;
use Veche\Exception\TimeoutException;
use Veche\Exception\VecheException;
use Veche\Fault;
use Veche\Tests\Support\Ports;
use Veche\Tests\Support\Script;
use Veche\WebSocket\Client;

final class WebSocketTest extends ServerTestCase
{
    private ?Script $script = null;

    protected static function config(): string
    {
        return <<<'TOML'
            [[listen]]
            address = "127.0.0.1:{port}"
            [[listen]]
            address = "127.0.0.1:{internal_port}"
            role = "internal"
            [[route]]
            path = "/echo"
            handler = "echo"
            compression = true
            message_bytes_max = "32MiB"
            [[route]]
            path = "/small"
            handler = "echo"
            message_bytes_max = "1KiB"
            [[route]]
            path = "/named"
            handler = "push"
            identity = "header:X-User"
            [limits]
            outbox_bytes = "64MiB"
            TOML;
    }

    protected function tearDown(): void
    {
        $this->script?->stop();
        $this->script = null;
    }

    public function testEchoesMessagesOfAllSizes(): void
    {
        $socket = Client::connect(self::$server->url('/echo'), messageBytesMax: 32 << 20);
        foreach ([0, 1, 125, 126, 65535, 65536, 1 << 20, 17 << 20] as $length) {
            $bytes = str_repeat("\xff\0", intdiv($length, 2)) . ($length % 2 === 1 ? "\x80" : '');
            $socket->sendBinary($bytes);
            $message = $socket->receive(20);
            self::assertTrue($message->isBinary && $message->data === $bytes, "$length bytes");
        }
        $socket->send('вече 🔔');
        $message = $socket->receive(5);
        self::assertSame(['вече 🔔', false], [$message->data, $message->isBinary]);
        $socket->close();
    }

    public function testMessagesKeepTheirOrder(): void
    {
        $socket = self::open('/echo');
        for ($i = 0; $i < 1000; $i++) {
            $socket->send((string) $i);
        }
        for ($i = 0; $i < 1000; $i++) {
            self::assertSame((string) $i, $socket->receive(5)->data);
        }
        $socket->close(4001, 'done');
        $socket->close();
    }

    public function testClosesWithTheCodesThatAnApplicationHas(): void
    {
        foreach ([1000, 3000, 4999] as $code) {
            $socket = self::open('/echo');
            $socket->close($code, str_repeat('x', 123));
            try {
                $socket->tryReceive();
                self::fail('it is closed');
            } catch (ClosedException $closed) {
                self::assertSame(1006, $closed->getCode());
            }
        }
    }

    public function testATimeoutLeavesTheConnectionAsItIs(): void
    {
        $socket = self::open('/echo');
        self::assertNull($socket->tryReceive());
        $started = microtime(true);
        try {
            $socket->receive(0.2);
            self::fail('nothing was sent');
        } catch (TimeoutException) {
            $took = microtime(true) - $started;
            self::assertTrue($took > 0.15 && $took < 2, "left after $took s");
        }
        $socket->ping('are you there?');
        $socket->send('x');
        self::assertSame('x', $socket->receive(5)->data);
        $socket->close();
    }

    public function testTheServersCloseIsAnException(): void
    {
        $socket = self::open('/small');
        $socket->send(str_repeat('x', 2000));
        try {
            $socket->receive(5);
            self::fail('it was too big');
        } catch (ClosedException $closed) {
            self::assertSame([1009, 'message too big', Fault::Caller], [
                $closed->getCode(),
                $closed->reason,
                $closed->fault(),
            ]);
        }
        $this->expectException(ClosedException::class);
        $socket->send('after the end');
    }

    public function testMistakesAreFoundBeforeAnythingIsSent(): void
    {
        $socket = self::open('/echo');
        $mistakes = [
            fn () => $socket->send("\xff"),
            fn () => $socket->ping(str_repeat('x', 126)),
            fn () => $socket->close(1005),
            fn () => $socket->close(1000, str_repeat('x', 124)),
            fn () => $socket->close(1000, "\xff"),
            fn () => Client::connect('http://127.0.0.1:1'),
            fn () => Client::connect('ws://'),
        ];
        foreach ($mistakes as $number => $mistake) {
            try {
                $mistake();
                self::fail("mistake $number was not found");
            } catch (CallerException) {
                $socket->send('still here');
                self::assertSame('still here', $socket->receive(5)->data);
            }
        }
        $socket->close();
    }

    public function testHeadersAndRefusals(): void
    {
        $named = Client::connect(self::$server->url('/named'), ['X-User' => 'ann']);
        self::assertNull($named->tryReceive(0.05));
        $named->close();
        foreach (['/named' => 401, '/nothing' => 404] as $path => $status) {
            try {
                self::open($path);
                self::fail("$path let us in");
            } catch (CallerException $error) {
                self::assertSame($status, $error->getCode());
            }
        }
    }

    public function testNoServer(): void
    {
        [$port] = Ports::free(1);
        try {
            Client::connect("ws://127.0.0.1:$port/");
            self::fail('nobody listens');
        } catch (NetworkException $error) {
            self::assertFalse($error->mayHaveRun);
        }
    }

    public function testAServerThatDoesNotAnswerTheHandshake(): void
    {
        $script = $this->script = new Script(static fn () => sleep(30));
        $this->expectException(TimeoutException::class);
        Client::connect("ws://127.0.0.1:$script->port/", timeout: 0.2);
    }

    public function testAServerThatNeverStopsSendingHoldsNoCallForEver(): void
    {
        foreach (["\x89\x01x", "\x81\x01x"] as $frame) {
            $script = new Script(static function ($peer) use ($frame): void {
                self::upgrade($peer);
                stream_set_blocking($peer, false);
                while (!feof($peer)) {
                    @fwrite($peer, str_repeat($frame, 1000));
                    // Input is read, so that the server is not blocked by a full buffer.
                    @fread($peer, 65536);
                }
            });
            try {
                $socket = Client::connect("ws://127.0.0.1:$script->port/");
                $started = microtime(true);
                $message = $socket->tryReceive(0.2);
                self::assertSame($frame[0] === "\x81" ? 'x' : null, $message?->data);
                $socket->close();
                self::assertLessThan(5, microtime(true) - $started);
            } finally {
                $script->stop();
            }
        }
    }

    /**
     * @return iterable<string, array{string, class-string<VecheException>, int, string}>
     */
    public static function faults(): iterable
    {
        yield 'masked' => ["\x81\x81abcdx", ProtocolException::class, 1002, "88\n03ea"];
        yield 'bad text' => ["\x81\x01\xff", ProtocolException::class, 1007, "88\n03ef"];
        yield 'too big' => ["\x82\x7f\0\0\0\0\x7f\0\0\0", ProtocolException::class, 1009, "88\n03f1"];
        yield 'an end without a Close' => ["\x81", ClosedException::class, 1006, ''];
        yield 'a Close' => ["\x88\x02\x0f\xa1", ClosedException::class, 4001, "88\n0fa1"];
        yield 'a ping, then a Close' => ["\x89\x01x\x88\x00", ClosedException::class, 1005, "8a\n78\n88"];
    }

    /**
     * @dataProvider faults
     * @param class-string<VecheException> $class
     * @param string $answer Opcodes and payloads that the client sends, in hexadecimal.
     */
    public function testFaultsOfTheServerAreAnsweredAsTheRfcSays(
        string $bytes,
        string $class,
        int $code,
        string $answer,
    ): void {
        $script = $this->script = new Script(static function ($peer, Closure $note) use ($bytes): void {
            self::upgrade($peer);
            fwrite($peer, $bytes);
            if (strlen($bytes) === 1) {
                return;
            }
            stream_set_timeout($peer, 2);
            while (strlen($head = (string) fread($peer, 2)) === 2) {
                $note(bin2hex($head[0]));
                $key = (string) fread($peer, 4);
                $length = ord($head[1]) & 0x7f;
                if ($length > 0) {
                    $note(bin2hex((string) fread($peer, $length) ^ substr(str_repeat($key, 32), 0, $length)));
                }
            }
        });
        $socket = Client::connect("ws://127.0.0.1:$script->port/", messageBytesMax: 1 << 20);
        try {
            $socket->receive(5);
            self::fail('no exception');
        } catch (VecheException $error) {
            self::assertSame([$class, $code], [$error::class, $error->getCode()]);
        }
        usleep(100000);
        self::assertSame($answer, implode("\n", $script->journal()));
    }

    /**
     * @param resource $peer
     */
    private static function upgrade($peer): void
    {
        preg_match('/^sec-websocket-key: (.*)\r$/mi', Script::request($peer), $found);
        $accept = base64_encode(sha1("$found[1]258EAFA5-E914-47DA-95CA-C5AB0DC85B11", true));
        fwrite($peer, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            . "Sec-WebSocket-Accept: $accept\r\n\r\n");
    }
}
