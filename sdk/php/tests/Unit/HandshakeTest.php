<?php

declare(strict_types=1);

namespace Veche\Tests\Unit;

use PHPUnit\Framework\TestCase;
use Veche\Exception\CallerException;
use Veche\Exception\ProtocolException;
use Veche\Exception\RateLimitException;
use Veche\Exception\UnavailableException;
use Veche\Exception\VecheException;
use Veche\Net\Address;
use Veche\WebSocket\Handshake;

final class HandshakeTest extends TestCase
{
    // The example of RFC 6455, section 1.3.
    private const KEY = 'dGhlIHNhbXBsZSBub25jZQ==';
    private const GOOD = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        . "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";

    public function testRequest(): void
    {
        $handshake = self::handshake(['X-API-Key' => 'k'], ['chat', 'echo'], 'ws://example.org/chat?user=ann');
        self::assertSame(
            "GET /chat?user=ann HTTP/1.1\r\nHost: example.org\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                . 'Sec-WebSocket-Key: ' . self::KEY . "\r\nSec-WebSocket-Version: 13\r\n"
                . "Sec-WebSocket-Protocol: chat, echo\r\nX-API-Key: k\r\n\r\n",
            $handshake->request(),
        );
    }

    public function testTakesAGoodResponseInAnyParts(): void
    {
        $response = self::GOOD . "Sec-WebSocket-Protocol: echo\r\n\r\n\x81\x01x";
        self::assertSame(['echo', "\x81\x01x"], self::handshake([], ['chat', 'echo'])->take($response));
        $handshake = self::handshake([], ['echo']);
        $taken = array_filter(array_map($handshake->take(...), str_split(substr($response, 0, -3))));
        self::assertSame([['echo', '']], array_values($taken));
        self::assertSame(['', ''], self::handshake()->take(self::GOOD . "\r\n"));
    }

    /**
     * @return iterable<array{string, class-string<VecheException>, int}>
     */
    public static function refusals(): iterable
    {
        yield ["HTTP/1.1 401 Unauthorized\r\n\r\nno token", CallerException::class, 401];
        yield ["HTTP/1.1 404 Not Found\r\n\r\n", CallerException::class, 404];
        yield ["HTTP/1.1 200 OK\r\n\r\n", CallerException::class, 200];
        yield ["HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\n\r\n", RateLimitException::class, 429];
        yield ["HTTP/1.1 503 Service Unavailable\r\n\r\n", UnavailableException::class, 503];
        yield ["SSH-2.0\r\n\r\n", ProtocolException::class, 1002];
        yield [str_repeat('x', 70000), ProtocolException::class, 1002];
        yield [str_replace('s3p', 'x3p', self::GOOD) . "\r\n", ProtocolException::class, 1002];
        yield [str_replace('Upgrade: websocket', 'Upgrade: h2c', self::GOOD) . "\r\n", ProtocolException::class, 1002];
        yield [
            str_replace('Connection: Upgrade', 'Connection: close', self::GOOD) . "\r\n",
            ProtocolException::class,
            1002,
        ];
        yield [self::GOOD . "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n", ProtocolException::class, 1002];
        yield [self::GOOD . "Sec-WebSocket-Protocol: other\r\n\r\n", ProtocolException::class, 1002];
    }

    /**
     * @dataProvider refusals
     * @param class-string<VecheException> $class
     */
    public function testRefusals(string $response, string $class, int $code): void
    {
        try {
            self::handshake()->take($response);
            self::fail('taken');
        } catch (VecheException $error) {
            self::assertSame([$class, $code], [$error::class, $error->getCode()]);
        }
    }

    public function testARefusalHasTheServersWordsAndItsPause(): void
    {
        try {
            self::handshake()->take("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\n\r\nslower, please");
            self::fail('taken');
        } catch (RateLimitException $error) {
            self::assertSame(3.0, $error->retryAfter);
            self::assertStringContainsString('slower, please', $error->getMessage());
        }
    }

    /**
     * @return iterable<array{array<string, string>, list<string>}>
     */
    public static function mistakes(): iterable
    {
        yield [["X\r\nY" => 'v'], []];
        yield [['X' => "v\r\nY: w"], []];
        yield [['Host' => 'other'], []];
        yield [['Sec-WebSocket-Protocol' => 'x'], []];
        yield [[], ['a b']];
        yield [[], ['']];
    }

    /**
     * @dataProvider mistakes
     * @param array<string, string> $headers
     * @param list<string> $protocols
     */
    public function testMistakesAreFoundBeforeAnythingIsSent(array $headers, array $protocols): void
    {
        $this->expectException(CallerException::class);
        self::handshake($headers, $protocols);
    }

    /**
     * @param array<string, string> $headers
     * @param list<string> $protocols
     */
    private static function handshake(
        array $headers = [],
        array $protocols = [],
        string $url = 'ws://example.org:8080',
    ): Handshake {
        return new Handshake(Address::parse($url, ['ws', 'wss']), $headers, $protocols, self::KEY);
    }
}
