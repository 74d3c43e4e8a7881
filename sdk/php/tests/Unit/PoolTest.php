<?php

declare(strict_types=1);

namespace Veche\Tests\Unit;

use PHPUnit\Framework\TestCase;
use Veche\App;
use Veche\Binary;
use Veche\Connection;
use Veche\Exception\CallerException;
use Veche\Exception\ServerException;
use Veche\Pool\Changes;
use Veche\Pool\HttpResponse;
use Veche\Testing\AppTester;
use Veche\Tests\Support\RuntimeVectors;
use Veche\Worker\Values;

/**
 * Tests calls to other servers: the calls must equal the frames of the test vectors, and work in `AppTester`.
 */
final class PoolTest extends TestCase
{
    /**
     * @return iterable<string, array{callable(App): mixed, string, string, mixed}>
     */
    public static function calls(): iterable
    {
        $sql = 'SELECT id, name, photo FROM users WHERE id < ? AND name <> ?';
        yield 'rows' => [fn (App $app) => $app->mysql('shop')->rows($sql, 3, 'Zoë'), 'mysql', 'mysql, rows', [
            ['id' => 1, 'name' => 'Ann', 'photo' => "\x89PNG\0\xff"],
            ['id' => 2, 'name' => 'Bob', 'photo' => null],
        ]];
        yield 'redis' => [fn (App $app) => $app->redis('cache')->call('HGETALL', 'user:1'), 'redis', 'redis', [
            'tags' => ['a', 7, true, null],
        ]];
        yield 'http' => [
            function (App $app): array {
                $response = $app->http()->request(
                    'POST',
                    'https://example.com/orders',
                    '{"a":1}',
                    ['content-type' => 'application/json'],
                    2.5,
                );
                return [$response->status, $response->body, $response->header('Set-Cookie'), $response->url];
            },
            'http',
            'http',
            [201, 'done', 'a=1', 'https://example.com/orders'],
        ];
    }

    /**
     * @dataProvider calls
     */
    public function testCallsAreThoseOfTheVectors(callable $ask, string $call, string $result, mixed $expected): void
    {
        $vectors = RuntimeVectors::read('calls');
        $found = null;
        $app = App::create();
        $app->message(function () use ($app, $ask, &$found): void {
            $found = $ask($app);
        });
        $engine = $app->engine();
        $engine->takeOutput();
        $engine->receive(RuntimeVectors::wire(RuntimeVectors::read('events')['message']));
        $written = $engine->takeOutput();
        // The worker numbers its calls itself, so the id in the vector is replaced.
        $number = $vectors[$call]['head']['id'];
        $wire = str_replace("\"id\":$number,\"event\":4", '"id":1,"event":4', RuntimeVectors::wire($vectors[$call]));
        self::assertSame(substr($wire, 8), substr($written, 8));
        $wire = RuntimeVectors::wire($vectors["the result of $result"]);
        $engine->receive(str_replace("\"id\":$number", '"id":' . str_pad('1', strlen("$number")), $wire));
        self::assertSame($expected, $found);
        self::assertStringContainsString('answer', $engine->takeOutput());
    }

    public function testValues(): void
    {
        $values = [null, false, true, 0, -1, 1.5, 1 << 53, '', "\0\xff", [1, ['a' => null]], ['k' => [], 'l' => 2]];
        self::assertSame($values, Values::decode(Values::encode($values)));
        $beyond = Values::decode(Values::encode([PHP_INT_MAX, new Binary('bytes')]));
        self::assertSame(['9223372036854775807', 'bytes'], $beyond);
        $error = Values::decode("\7\2\0\0\0no")[0];
        self::assertInstanceOf(CallerException::class, $error);
        foreach (["\3\0", "\4\5\0\0\0abc", "\5\1\0\0\0", "\x09"] as $broken) {
            try {
                Values::decode($broken);
                self::fail('not found: ' . bin2hex($broken));
            } catch (ServerException) {
            }
        }
        $this->expectException(CallerException::class);
        Values::encode([new \stdClass()]);
    }

    public function testAnApplicationIsTestedWithoutServers(): void
    {
        $app = App::create();
        $app->message(function (Connection $conn, string $data) use ($app): void {
            $db = $app->mysql('shop');
            $conn->send(json_encode(match ($data) {
                'rows' => $db->rows('SELECT * FROM users WHERE id > ?', 1),
                'row' => $db->row('SELECT 1 AS one'),
                'no row' => $db->row('SELECT nothing'),
                'value' => $db->value('SELECT 1.5'),
                'execute' => $db->execute('DELETE FROM users')->affected,
                'redis' => $app->redis('cache')->call('get', 'a', 1),
                'http' => $app->http()->post('http://localhost/', ['a' => 1])->json(),
            }));
        });
        $tester = new AppTester($app);
        $tester->mysql = fn (string $database, string $sql, array $values): mixed => match ($sql) {
            'SELECT * FROM users WHERE id > ?' => [['id' => $values[0] + 1, 'at' => $database]],
            'SELECT 1 AS one' => ['one' => 1],
            'SELECT nothing' => null,
            'SELECT 1.5' => 1.5,
            'DELETE FROM users' => new Changes(7),
        };
        $tester->redis = fn (string $database, array $words): array => [$database => $words];
        $tester->http = fn (string $method, string $url, string $body) => new HttpResponse(200, "[\"$method\",$body]");
        $ann = $tester->open();
        foreach (['rows', 'row', 'no row', 'value', 'execute', 'redis', 'http'] as $what) {
            $ann->say($what);
        }
        self::assertSame(
            ['[{"id":2,"at":"shop"}]', '{"one":1}', 'null', '1.5', '7', '{"cache":["get","a",1]}', '["POST",{"a":1}]'],
            $ann->received(),
        );
        $tester->http = null;
        $ann->say('http');
        self::assertSame(1011, $ann->closeCode);
        self::assertStringContainsString('the test must set $tester->http', $tester->log[0]);
    }
}
