<?php

declare(strict_types=1);

namespace Veche\Tests\Unit;

use PHPUnit\Framework\TestCase;
use Psr\Log\AbstractLogger;
use Veche\Client;
use Veche\Command;
use Veche\Exception\AuthenticationException;
use Veche\Exception\CallerException;
use Veche\Exception\NetworkException;
use Veche\Exception\RateLimitException;
use Veche\Exception\ServerException;
use Veche\Exception\TimeoutException;
use Veche\Exception\UnavailableException;
use Veche\Exception\VecheException;
use Veche\Fault;
use Veche\Http\Response;
use Veche\PublishOptions;
use Veche\Tests\Support\RecordingTransport;

final class ClientTest extends TestCase
{
    public function testSendsKeyAndBodyToThePathOfTheMethod(): void
    {
        $transport = new RecordingTransport();
        $client = new Client('http://127.0.0.1:8081', 'demo', transport: $transport);
        self::assertSame(1, $client->push('ann', 'hello')->handed);
        [$sent] = $transport->sent;
        self::assertSame('/api/push', $sent['path']);
        self::assertSame('{"user":"ann","data":"hello"}', $sent['body']);
        self::assertSame('demo', $sent['headers']['X-API-Key']);
    }

    /**
     * @testWith ["http://h:1", "/api/info"]
     *           ["http://h:1/", "/api/info"]
     *           ["http://h:1/api", "/api/info"]
     *           ["http://h:1/api/", "/api/info"]
     *           ["https://h/veche/api", "/veche/api/info"]
     */
    public function testAcceptsTheAddressWithAndWithoutItsPath(string $url, string $path): void
    {
        $transport = new RecordingTransport(new Response(200, [], '{"result":{"nodes":[]}}'));
        self::assertSame([], (new Client($url, transport: $transport))->info());
        self::assertSame($path, $transport->sent[0]['path']);
        self::assertArrayNotHasKey('X-API-Key', $transport->sent[0]['headers']);
    }

    /**
     * @return iterable<array{callable(): mixed, string}>
     */
    public static function badArguments(): iterable
    {
        yield [fn () => new Client('127.0.0.1:8081'), 'expected http://HOST:PORT'];
        yield [fn () => new Client('ws://127.0.0.1:8081'), 'expected http://HOST:PORT'];
        yield [fn () => new Client('http://ann:secret@127.0.0.1'), 'not allowed'];
        yield [fn () => new Client("http://127.0.0.1/\r\nX: y"), 'control character'];
        yield [fn () => new Client('http://h', "k\r\nX: y"), 'an API key must consist of'];
        yield [fn () => new Client('http://h', ''), 'an API key must consist of'];
        yield [fn () => new Client('http://h', timeout: 0.0), 'timeouts must be positive'];
        yield [fn () => new Client('http://h', retries: -1), 'retries must be at least 0'];
    }

    /**
     * @dataProvider badArguments
     */
    public function testBadArgumentsAreNamed(callable $make, string $message): void
    {
        $this->expectException(CallerException::class);
        $this->expectExceptionMessage($message);
        $make();
    }

    /**
     * @return iterable<string, array{int, string, class-string<VecheException>, int, Fault, bool}>
     */
    public static function refusals(): iterable
    {
        $error = static fn (int $code): string => "{\"error\":{\"code\":$code,\"message\":\"why\"}}";
        yield 'bad request' => [200, $error(107), CallerException::class, 107, Fault::Caller, false];
        yield 'no history' => [200, $error(108), CallerException::class, 108, Fault::Caller, false];
        yield 'internal' => [200, $error(100), ServerException::class, 100, Fault::Server, true];
        yield 'wrong key' => [401, $error(101), AuthenticationException::class, 101, Fault::Caller, false];
        yield 'too fast' => [429, $error(111), RateLimitException::class, 111, Fault::Caller, false];
        yield 'stopping' => [503, $error(106), UnavailableException::class, 106, Fault::Server, false];
        yield 'too large' => [413, '', CallerException::class, 413, Fault::Caller, false];
        yield 'another server' => [404, '<html>', CallerException::class, 404, Fault::Caller, false];
        yield 'bad gateway' => [502, '<html>', ServerException::class, 502, Fault::Server, true];
        yield 'no JSON' => [200, 'hello', ServerException::class, 200, Fault::Server, true];
        yield 'no object' => [200, '7', ServerException::class, 200, Fault::Server, true];
        yield 'no result' => [200, '{}', ServerException::class, 0, Fault::Server, true];
        yield 'redirect' => [301, '', ServerException::class, 301, Fault::Server, true];
    }

    /**
     * @dataProvider refusals
     * @param class-string<VecheException> $class
     */
    public function testRefusalsSayWhoseFaultTheyAre(
        int $status,
        string $body,
        string $class,
        int $code,
        Fault $fault,
        bool $mayHaveRun,
    ): void {
        $transport = new RecordingTransport(new Response($status, [], $body));
        $client = new Client('http://h', retries: 0, transport: $transport);
        try {
            $client->publish('c', 1);
            self::fail('not refused');
        } catch (VecheException $error) {
            self::assertSame($class, $error::class);
            self::assertSame([$code, $fault, $mayHaveRun], [$error->getCode(), $error->fault(), $error->mayHaveRun]);
        }
    }

    /**
     * @return iterable<string, array{VecheException|Response, Command, int}>
     */
    public static function repetitions(): iterable
    {
        $publish = Command::publish('c', 1);
        $keyed = Command::publish('c', 1, new PublishOptions('k'));
        $stopping = new Response(503, [], '{"error":{"code":106,"message":"short of memory"}}');
        $slow = new Response(429, ['retry-after' => '0'], '{"error":{"code":111,"message":"too fast"}}');
        $bad = new Response(200, [], '{"error":{"code":107,"message":"bad"}}');
        yield 'not sent' => [new NetworkException('refused'), $publish, 2];
        yield 'maybe done' => [new NetworkException('broke', 0, true), $publish, 1];
        yield 'maybe done, but by its key' => [new NetworkException('broke', 0, true), $keyed, 2];
        yield 'maybe done, but a question' => [new TimeoutException('late', 0, true), Command::history('c'), 2];
        yield 'maybe done, and it closes' => [new NetworkException('broke', 0, true), Command::disconnect('a'), 1];
        yield 'not done: stopping' => [$stopping, $publish, 2];
        yield 'not done: too fast' => [$slow, $publish, 2];
        yield 'wrong' => [$bad, $keyed, 1];
        yield 'failed' => [new Response(500, [], ''), $keyed, 1];
        yield 'later than there is time' => [new Response(503, ['retry-after' => '60'], ''), $publish, 1];
    }

    /**
     * @dataProvider repetitions
     */
    public function testRepeatsOnlyWhereThatIsSafe(VecheException|Response $first, Command $command, int $times): void
    {
        $transport = new RecordingTransport($first, new Response(200, [], match ($command->method) {
            'history' => '{"result":{"publications":[],"offset":0,"epoch":"e"}}',
            default => '{"result":{"handed":1}}',
        }));
        $failed = false;
        try {
            (new Client('http://h', transport: $transport))->run($command);
        } catch (VecheException) {
            $failed = true;
        }
        self::assertCount($times, $transport->sent);
        self::assertSame($times === 1, $failed);
    }

    public function testGivesUpAfterSoManyRetriesAndReportsEach(): void
    {
        $refused = array_fill(0, 9, new NetworkException('refused'));
        $transport = new RecordingTransport(...$refused);
        $logger = new class extends AbstractLogger {
            /** @var list<string> */
            public array $lines = [];

            /**
             * @param mixed $level
             * @param string|\Stringable $message
             * @param mixed[] $context
             */
            public function log($level, $message, array $context = []): void
            {
                $this->lines[] = "$level {$context['method']} {$context['error']}";
            }
        };
        $client = new Client('http://h', retries: 3, logger: $logger, transport: $transport);
        try {
            $client->publish('c', 1);
            self::fail('it can\'t succeed');
        } catch (NetworkException $error) {
            self::assertSame('refused', $error->getMessage());
        }
        self::assertCount(4, $transport->sent);
        self::assertSame(array_fill(0, 3, 'warning publish refused'), $logger->lines);
    }

    public function testGeneratedKeysMakePublicationsRepeatable(): void
    {
        $transport = new RecordingTransport(new NetworkException('broke', 0, true));
        $client = new Client('http://h', generateKeys: true, transport: $transport);
        $client->publish('c', 1);
        $client->publish('c', 1);
        $client->publish('c', 1, new PublishOptions('mine'));
        $keys = array_map(
            static fn (array $sent): string => json_decode($sent['body'])->idempotency_key,
            $transport->sent,
        );
        self::assertSame($keys[0], $keys[1], 'a repetition has the same key');
        self::assertNotSame($keys[1], $keys[2], 'another publication has another one');
        self::assertSame('mine', $keys[3]);
    }
}
