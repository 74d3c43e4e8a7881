<?php

declare(strict_types=1);

namespace Veche\Tests\Server;

use PHPUnit\Framework\TestCase;
use Veche\Client;
use Veche\Exception\NetworkException;
use Veche\Exception\RateLimitException;
use Veche\Http\Transport;
use Veche\LineClient;
use Veche\Tests\Support\Server;

/**
 * A server that ends and returns, and one that is overloaded.
 */
final class RestartTest extends TestCase
{
    // Uses epoll, because with io_uring the kernel closes connections some time after the end of the process.
    private const CONFIG = <<<'TOML'
        [server]
        io = "epoll"
        [[listen]]
        address = "127.0.0.1:{port}"
        [[listen]]
        address = "127.0.0.1:{internal_port}"
        role = "internal"
        [[listen]]
        address = "127.0.0.1:{push_port}"
        role = "push"
        [[route]]
        path = "/push"
        handler = "push"
        identity = "query:user"
        TOML;

    private ?Server $server = null;

    protected function tearDown(): void
    {
        $this->server?->stop();
    }

    /**
     * @return iterable<string, array{class-string<Transport>}>
     */
    public static function transports(): iterable
    {
        return ApiTest::transports();
    }

    /**
     * @dataProvider transports
     * @param class-string<Transport> $transport
     */
    public function testKeptConnectionsSurviveARestartOfTheServer(string $transport): void
    {
        $server = $this->server = new Server(self::CONFIG);
        $http = new Client($server->api(), retries: 0, transport: new $transport($server->api()));
        $lines = new LineClient($server->lines());
        self::assertSame([0, 0], [$http->push('ann', 'x')->handed, $lines->push('ann', 'x')->handed]);
        $server->halt();
        foreach ([$http, $lines] as $veche) {
            try {
                $veche->push('ann', 'x');
                self::fail('the server is down');
            } catch (NetworkException $error) {
                self::assertFalse($error->mayHaveRun, $error->getMessage());
            }
        }
        $server->start();
        self::assertSame([0, 0], [$http->push('ann', 'x')->handed, $lines->push('ann', 'x')->handed]);
    }

    /**
     * @dataProvider transports
     * @param class-string<Transport> $transport
     */
    public function testAServerThatComesBackInTimeIsWaitedFor(string $transport): void
    {
        $server = $this->server = new Server(self::CONFIG);
        $server->halt();
        $server->begin(0.3);
        $veche = new Client($server->api(), timeout: 20, retries: 9, transport: new $transport($server->api()));
        self::assertSame(0, $veche->push('ann', 'x')->handed);
    }

    public function testTooMuchIsRefusedAndSaysWhenToComeBack(): void
    {
        $server = $this->server = new Server(self::CONFIG . "\n[api]\nkeys = [\"k\"]\npublish_rate = \"1/s\"\n");
        $veche = new Client($server->api(), 'k', retries: 0);
        try {
            for ($i = 0; $i < 100; $i++) {
                $veche->push('ann', 'x');
            }
            self::fail('the rate is not kept');
        } catch (RateLimitException $error) {
            self::assertSame(111, $error->getCode());
            self::assertGreaterThan(0, $error->retryAfter);
        }
        self::assertFalse($veche->userStatus('ann')->online, 'questions are not publications');
    }
}
