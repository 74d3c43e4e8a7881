<?php

declare(strict_types=1);

namespace Veche\Tests\Server;

use Veche\Client;
use Veche\Exception\NetworkException;
use Veche\Http\CurlTransport;
use Veche\Http\StreamTransport;
use Veche\Http\Transport;
use Veche\LineClient;
use Veche\Tests\Support\Certificate;
use Veche\Tests\Support\Server;
use Veche\WebSocket\Client as Socket;

final class TlsTest extends ServerTestCase
{
    private static string $caFile;

    public static function setUpBeforeClass(): void
    {
        $own = new Certificate('localhost');
        self::$server = new Server(self::config(), ['cert.pem' => $own->certificate, 'key.pem' => $own->key]);
        self::$caFile = self::$server->folder . '/cert.pem';
    }

    protected static function config(): string
    {
        return <<<'TOML'
            [[listen]]
            address = "127.0.0.1:{port}"
            tls = { certificate = "cert.pem", key = "key.pem" }
            [[listen]]
            address = "127.0.0.1:{internal_port}"
            role = "internal"
            [[listen]]
            address = "127.0.0.1:{push_port}"
            role = "push"
            tls = { certificate = "cert.pem", key = "key.pem" }
            [[listen]]
            address = "127.0.0.1:{extra_port}"
            role = "internal"
            tls = { certificate = "cert.pem", key = "key.pem" }
            [[route]]
            path = "/echo"
            handler = "echo"
            message_bytes_max = "8MiB"
            [limits]
            outbox_bytes = "32MiB"
            TOML;
    }

    public function testWebSocket(): void
    {
        $socket = Socket::connect('wss://localhost:' . self::$server->port . '/echo', caFile: self::$caFile);
        foreach ([1, 100000, 4 << 20] as $length) {
            $socket->send(str_repeat('x', $length));
            self::assertSame($length, strlen($socket->receive(10)->data));
        }
        self::assertNull($socket->tryReceive(0.05));
        $socket->close();
    }

    public function testLines(): void
    {
        $address = 'tls://localhost:' . self::$server->pushPort;
        $veche = new LineClient($address, caFile: self::$caFile);
        self::assertSame(0, $veche->push('ann', str_repeat('x', 500000))->handed);
        self::assertSame(0, $veche->push('ann', 'again')->handed);
        $this->expectException(NetworkException::class);
        $this->expectExceptionMessageMatches('/certificate/i');
        (new LineClient($address))->push('ann', 'x');
    }

    /**
     * @return iterable<array{class-string<Transport>}>
     */
    public static function transports(): iterable
    {
        return ApiTest::transports();
    }

    /**
     * @dataProvider transports
     * @param class-string<Transport> $transport
     */
    public function testApi(string $transport): void
    {
        $url = 'https://localhost:' . self::$server->extraPort;
        $veche = new Client($url, transport: new $transport($url, caFile: self::$caFile));
        self::assertSame(0, $veche->push('ann', str_repeat('x', 500000))->handed);
        self::assertSame(0, $veche->push('ann', 'again')->handed);
    }

    /**
     * @dataProvider transports
     * @param class-string<Transport> $transport
     */
    public function testACertificateThatIsNotTrustedIsRefused(string $transport): void
    {
        $url = 'https://localhost:' . self::$server->extraPort;
        $this->expectException(NetworkException::class);
        $this->expectExceptionMessageMatches('/certificate/i');
        (new Client($url, retries: 0, transport: new $transport($url)))->push('ann', 'x');
    }

    /**
     * @dataProvider transports
     * @param class-string<Transport> $transport
     */
    public function testACertificateOfAnotherNameIsRefused(string $transport): void
    {
        $url = 'https://127.0.0.1:' . self::$server->extraPort;
        $this->expectException(NetworkException::class);
        (new Client($url, retries: 0, transport: new $transport($url, caFile: self::$caFile)))->push('ann', 'x');
    }

    public function testAWebSocketOfAnotherNameIsRefused(): void
    {
        $this->expectException(NetworkException::class);
        $this->expectExceptionMessageMatches('/did not match|certificate/i');
        Socket::connect('wss://127.0.0.1:' . self::$server->port . '/echo', caFile: self::$caFile);
    }
}
