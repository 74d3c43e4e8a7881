<?php

declare(strict_types=1);

namespace Veche\Tests\Unit;

use Closure;
use PHPUnit\Framework\TestCase;
use Veche\Exception\NetworkException;
use Veche\Exception\ServerException;
use Veche\Exception\TimeoutException;
use Veche\Exception\VecheException;
use Veche\Http\CurlTransport;
use Veche\Http\StreamTransport;
use Veche\Http\Transport;
use Veche\Tests\Support\Ports;
use Veche\Tests\Support\Script;

/**
 * Tests StreamTransport and CurlTransport with well-behaved and misbehaving servers.
 */
final class TransportTest extends TestCase
{
    private const OK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

    private const CHUNKED = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

    private ?Script $script = null;

    protected function tearDown(): void
    {
        $this->script?->stop();
        $this->script = null;
    }

    /**
     * @return iterable<string, array{class-string<Transport>}>
     */
    public static function transports(): iterable
    {
        yield 'streams' => [StreamTransport::class];
        if (extension_loaded('curl')) {
            yield 'curl' => [CurlTransport::class];
        }
    }

    /**
     * @dataProvider transports
     * @param class-string<Transport> $class
     */
    public function testKeepsItsConnection(string $class): void
    {
        $transport = $this->serve($class, static function ($peer, Closure $note, int $number): void {
            while (($request = Script::request($peer)) !== '') {
                $note("$number " . strtok($request, "\r\n") . ' ' . substr($request, -4));
                fwrite($peer, self::OK);
            }
        });
        $response = $transport->post('/a', ['X-Key' => 'k'], 'one1', 5);
        self::assertSame([200, 'ok'], [$response->status, $response->body]);
        $transport->post('/b', [], 'two2', 5);
        self::assertSame(['1 POST /a HTTP/1.1 one1', '1 POST /b HTTP/1.1 two2'], $this->script?->journal());
    }

    /**
     * @dataProvider transports
     * @param class-string<Transport> $class
     */
    public function testOpensAnotherConnectionWhereTheKeptOneWasClosed(string $class): void
    {
        $transport = $this->serve($class, static function ($peer, Closure $note, int $number): void {
            $note("$number " . strlen(Script::request($peer)));
            fwrite($peer, self::OK);
        });
        for ($i = 0; $i < 3; $i++) {
            self::assertSame('ok', $transport->post('/', [], 'body', 5)->body);
            usleep(50000);
        }
        self::assertCount(3, $this->script?->journal() ?? []);
    }

    /**
     * If a kept connection breaks after it has accepted a request, curl repeats the request unless
     * its body can't be rewound.
     *
     * @dataProvider transports
     * @param class-string<Transport> $class
     */
    public function testNeverSendsTwiceWhatAKeptConnectionHasTaken(string $class): void
    {
        $transport = $this->serve($class, static function ($peer, Closure $note, int $number): void {
            for ($i = 1; ($request = Script::request($peer)) !== ''; $i++) {
                $note("$number $i");
                if ($i === 2) {
                    return;
                }
                fwrite($peer, self::OK);
            }
        });
        $transport->post('/', [], 'first', 5);
        try {
            $transport->post('/', [], 'second', 5);
            self::fail('the connection was closed without an answer');
        } catch (NetworkException $error) {
            self::assertTrue($error->mayHaveRun);
        }
        self::assertSame(['1 1', '1 2'], $this->script?->journal());
        self::assertSame('ok', $transport->post('/', [], 'third', 5)->body, 'and the transport goes on');
    }

    /**
     * @dataProvider transports
     * @param class-string<Transport> $class
     */
    public function testARefusedConnectionMeansThatNothingWasSent(string $class): void
    {
        [$port] = Ports::free(1);
        try {
            (new $class("http://127.0.0.1:$port"))->post('/', [], 'x', 1);
            self::fail('nobody listens');
        } catch (NetworkException $error) {
            self::assertFalse($error->mayHaveRun);
            self::assertStringContainsString((string) $port, $error->getMessage());
        }
    }

    /**
     * @dataProvider transports
     * @param class-string<Transport> $class
     */
    public function testAnUnknownHostMeansThatNothingWasSent(string $class): void
    {
        $this->expectException(NetworkException::class);
        (new $class('http://no-such-host.invalid:1'))->post('/', [], 'x', 1);
    }

    /**
     * @dataProvider transports
     * @param class-string<Transport> $class
     */
    public function testASlowServerIsLeftAtTheDeadline(string $class): void
    {
        $transport = $this->serve($class, static function ($peer): void {
            Script::request($peer);
            fwrite($peer, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n");
            for ($i = 0; $i < 50; $i++) {
                fwrite($peer, '.');
                usleep(100000);
            }
        });
        $started = microtime(true);
        try {
            $transport->post('/', [], 'x', 0.3);
            self::fail('it is slower than that');
        } catch (TimeoutException $error) {
            self::assertTrue($error->mayHaveRun);
        }
        $took = microtime(true) - $started;
        self::assertTrue($took > 0.25 && $took < 2, "left after $took s");
    }

    /**
     * @return iterable<string, array{class-string<Transport>, string, string}>
     */
    public static function answers(): iterable
    {
        $answers = [
            'chunks' => [
                self::CHUNKED . "3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: x\r\n\r\n",
                'abc0123456789',
            ],
            'until the end' => ["HTTP/1.1 200 OK\r\n\r\nall of it", 'all of it'],
            'HTTP/1.0' => ["HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 'x'],
            'nothing' => ["HTTP/1.1 204 No Content\r\n\r\n", ''],
            'continue first' => ["HTTP/1.1 100 Continue\r\n\r\n" . self::OK, 'ok'],
        ];
        foreach (self::transports() as $name => [$class]) {
            foreach ($answers as $what => [$bytes, $body]) {
                yield "$name: $what" => [$class, $bytes, $body];
            }
        }
    }

    /**
     * @dataProvider answers
     * @param class-string<Transport> $class
     */
    public function testAnswersAreReadWhateverTheirForm(string $class, string $bytes, string $body): void
    {
        $isKept = preg_match('/^HTTP.1.1.*(?:Length|chunked|204)/s', $bytes) === 1;
        $transport = $this->serve($class, static function ($peer) use ($bytes, $isKept): void {
            do {
                $request = Script::request($peer);
                foreach ($request === '' ? [] : str_split($bytes, 7) as $part) {
                    fwrite($peer, $part);
                    usleep(1000);
                }
            } while ($isKept && $request !== '');
        });
        self::assertSame($body, $transport->post('/', [], 'x', 5)->body);
        self::assertSame($body, $transport->post('/', [], 'x', 5)->body);
    }

    /**
     * @return iterable<string, array{class-string<Transport>, string, class-string<VecheException>}>
     */
    public static function rubbish(): iterable
    {
        $answers = [
            'another protocol' => ["SSH-2.0-OpenSSH_9.2\r\n\r\n", ServerException::class],
            'nothing' => ['', NetworkException::class],
            'no end of heads' => [str_repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 50), VecheException::class],
            'half a head' => ["HTTP/1.1 200 OK\r\nConte", NetworkException::class],
            'half a body' => ["HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", NetworkException::class],
            'half a chunk' => [self::CHUNKED . "9\r\nhalf", NetworkException::class],
            'too long' => [
                "HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" . str_repeat('x', 2000),
                ServerException::class,
            ],
        ];
        foreach (self::transports() as $name => [$class]) {
            foreach ($answers as $what => [$bytes, $exception]) {
                yield "$name: $what" => [$class, $bytes, $exception];
            }
        }
    }

    /**
     * @dataProvider rubbish
     * @param class-string<Transport> $class
     * @param class-string<VecheException> $exception
     */
    public function testRubbishIsRefused(string $class, string $bytes, string $exception): void
    {
        $transport = $this->serve($class, static function ($peer) use ($bytes): void {
            Script::request($peer);
            @fwrite($peer, $bytes);
        });
        try {
            $transport->post('/', [], 'x', 5);
            self::fail('that is no answer');
        } catch (VecheException $error) {
            self::assertInstanceOf($exception, $error);
            self::assertTrue($error->mayHaveRun);
        }
    }

    /**
     * @param class-string<Transport> $class
     */
    private function serve(string $class, Closure $serve): Transport
    {
        $this->script = new Script($serve);
        return new $class("http://127.0.0.1:{$this->script->port}", bodyBytesMax: 1000);
    }
}
