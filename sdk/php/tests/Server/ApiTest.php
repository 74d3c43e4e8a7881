<?php

declare(strict_types=1);

namespace Veche\Tests\Server;

use Veche\Binary;
use Veche\Client;
use Veche\Command;
use Veche\ErrorCode;
use Veche\Exception\AuthenticationException;
use Veche\Exception\CallerException;
use Veche\Exception\ClosedException;
use Veche\Http\CurlTransport;
use Veche\Http\StreamTransport;
use Veche\Http\Transport;
use Veche\Json;
use Veche\PublishOptions;
use Veche\WebSocket\Client as Socket;

/**
 * Tests each call of the API on a real server, with each transport.
 */
final class ApiTest extends ServerTestCase
{
    protected static function config(): string
    {
        return <<<'TOML'
            [[listen]]
            address = "127.0.0.1:{port}"
            [[listen]]
            address = "127.0.0.1:{internal_port}"
            role = "internal"
            [api]
            keys = ["the-key-of-the-suite"]
            [[route]]
            path = "/connection/*"
            handler = "centrifuge"
            identity = "query:user"
            [[route]]
            path = "/push"
            handler = "push"
            identity = "query:user"
            channels = ["news", "sport", "chat:*"]
            [[namespace]]
            name = "chat"
            history_size = 10
            presence = true
            subscribe = "client"
            [[namespace]]
            name = ""
            subscribe = "client"
            TOML;
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
     * @param class-string<Transport> $transport
     */
    public function testPushesOfAllKinds(string $transport): void
    {
        $veche = self::client($transport);
        $ann = self::open('/push?user=ann');
        $bob = self::open('/push?user=bob&channel=news');
        self::assertSame(1, $veche->push('ann', "it's \"quoted\", \\n and\ttab, вече 🔔")->handed);
        self::assertSame("it's \"quoted\", \\n and\ttab, вече 🔔", $ann->receive(5)->data);
        self::assertSame(2, $veche->push(['ann', 'bob'], ['order' => 42])->handed);
        self::assertSame(['{"order":42}', '{"order":42}'], [$ann->receive(5)->data, $bob->receive(5)->data]);
        $veche->push('ann', new Binary("\0\xff"));
        $message = $ann->receive(5);
        self::assertSame(["\0\xff", true], [$message->data, $message->isBinary]);
        $veche->push('ann', new Json('{"EUR": 1.10}'));
        self::assertSame('{"EUR":1.10}', $ann->receive(5)->data);
        self::assertSame(1, $veche->publish('news', 'n')->handed);
        self::assertSame('n', $bob->receive(5)->data);
        self::assertSame([1, 0], array_column($veche->broadcast(['news', 'sport'], 'b'), 'handed'));
        self::assertSame('b', $bob->receive(5)->data);
        $lonely = $veche->push('eve', 'x');
        self::assertSame([0, 'the user has no connection'], [$lonely->handed, $lonely->note]);
        $big = str_repeat('x', 900000);
        self::assertSame(1, $veche->push('ann', $big)->handed);
        self::assertSame($big, $ann->receive(5)->data);
        $ann->close();
        $bob->close();
    }

    public function testTheSingleFileNeedsNoExtensionAndNoPackage(): void
    {
        $ann = self::open('/push?user=ann');
        $code = 'require $argv[1];'
            . '$veche = new Veche\Client($argv[2], "the-key-of-the-suite");'
            . 'echo extension_loaded("curl") ? "curl" : "streams", $veche->push("ann", "вече")->handed;';
        // With `-n`, PHP does not read php.ini, which would load the extensions.
        $command = [PHP_BINARY, '-n', '-r', $code, dirname(__DIR__, 2) . '/veche.php', self::$server->api()];
        exec(implode(' ', array_map(escapeshellarg(...), $command)) . ' 2>&1', $output, $status);
        self::assertSame([0, ['streams1']], [$status, $output]);
        self::assertSame('вече', $ann->receive(5)->data);
        $ann->close();
    }

    /**
     * @dataProvider transports
     * @param class-string<Transport> $transport
     */
    public function testChannelsThatRemember(string $transport): void
    {
        $veche = self::client($transport);
        $channel = 'chat:' . bin2hex(random_bytes(4));
        $first = $veche->publish($channel, ['n' => 1], new PublishOptions('k', tags: ['a' => 'b']));
        self::assertSame([1, true], [$first->position?->offset, $first->taken]);
        $again = $veche->publish($channel, ['n' => 1], new PublishOptions('k'));
        self::assertSame([(string) $first->position, false], [(string) $again->position, $again->taken]);
        $veche->publish($channel, 'passing', new PublishOptions(skipHistory: true));
        $veche->publish($channel, new Binary("\xff\0"));
        $veche->publish($channel, 'text', new PublishOptions(version: 5, versionEpoch: 'v'));
        self::assertFalse($veche->publish($channel, 'old', new PublishOptions(version: 4, versionEpoch: 'v'))->taken);

        $position = $veche->history($channel);
        self::assertSame([[], 3], [$position->publications, $position->position->offset]);
        $all = $veche->history($channel, -1)->publications;
        self::assertEquals([['n' => 1], new Binary("\xff\0"), 'text'], array_column($all, 'data'));
        self::assertSame(['a' => 'b'], $all[0]->tags);
        self::assertEqualsWithDelta(microtime(true) * 1000, $all[0]->time, 10000);
        $since = $veche->history($channel, 10, $first->position)->publications;
        self::assertSame([2, 3], array_column($since, 'offset'));
        $latest = $veche->history($channel, 1, reverse: true)->publications;
        self::assertSame(['text'], array_column($latest, 'data'));
        $veche->historyRemove($channel);
        $empty = $veche->history($channel, -1);
        self::assertSame([[], 3], [$empty->publications, $empty->position->offset]);
    }

    /**
     * @dataProvider transports
     * @param class-string<Transport> $transport
     */
    public function testPeople(string $transport): void
    {
        $veche = self::client($transport);
        $user = 'u' . bin2hex(random_bytes(4));
        $channel = "chat:$user";
        [$socket, $client] = self::centrifuge("?user=$user");
        $veche->subscribe($user, $channel, info: ['x' => 2], data: ['hello' => 1]);
        self::assertSame(['hello' => 1], self::next($socket)['push']['subscribe']['data']);
        $presence = $veche->presence($channel);
        self::assertSame([$client], array_keys($presence));
        self::assertSame([$user, ['x' => 2]], [$presence[$client]->user, $presence[$client]->channelInfo]);
        $stats = $veche->presenceStats($channel);
        self::assertSame([1, 1], [$stats->clients, $stats->users]);
        self::assertSame([$channel => 1], $veche->channels("$channel*"));
        self::assertArrayHasKey($channel, $veche->channels());
        $mine = $veche->connectionsOfUser($user, 'suite')[$client];
        self::assertSame(
            [$user, 'centrifuge', 'websocket', 'json', 'suite', '1.0'],
            [$mine->user, $mine->handler, $mine->transport, $mine->protocol, $mine->appName, $mine->appVersion],
        );
        self::assertEqualsCanonicalizing(["#$user", $channel], $mine->channels);
        self::assertSame([], $veche->connectionsOfUser($user, 'other'));
        self::assertSame([$client], array_keys($veche->connectionsOfChannel($channel)));
        self::assertGreaterThanOrEqual(1, $veche->info()[0]->clients);
        $status = $veche->userStatus($user);
        self::assertSame([true, 1, false], [$status->online, $status->connections, $status->blocked]);
        $veche->unsubscribe($user, $channel);
        self::assertSame(2000, self::next($socket)['push']['unsubscribe']['code']);
        self::assertNull($veche->disconnect($user, 4100, client: 'another'));
        self::assertNull($veche->disconnect($user, 4100, except: [$client]));
        $veche->refresh($user, expired: true);
        self::assertSame([3005, 'connection expired'], self::closed($socket));
        self::assertFalse($veche->userStatus($user)->online);
        self::assertNotNull($veche->userStatus($user)->lastSeen);

        [$socket] = self::centrifuge("?user=$user");
        self::assertSame(1, $veche->disconnect($user, 4501, 'enough'));
        self::assertSame([4501, 'enough'], self::closed($socket));

        [$socket] = self::centrifuge("?user=$user");
        self::assertSame(1, $veche->blockUser($user, time() + 60));
        self::assertSame(3507, self::closed($socket)[0]);
        self::assertTrue($veche->userStatus($user)->blocked);
        $veche->unblockUser($user);
        self::assertFalse($veche->userStatus($user)->blocked);
        $veche->revokeToken('t1', time() + 60);
        $veche->invalidateUserTokens($user, time(), time() + 60);
    }

    /**
     * @dataProvider transports
     * @param class-string<Transport> $transport
     */
    public function testABatchGoesOnAfterAFailure(string $transport): void
    {
        $veche = self::client($transport);
        $channel = 'chat:' . bin2hex(random_bytes(4));
        [$published, $failed, $history, $status] = $veche->batch(
            Command::publish($channel, ['a' => 1]),
            Command::history('plain'),
            Command::history($channel, -1),
            Command::userStatus('ann'),
        );
        self::assertSame(1, $published->get()->position->offset);
        self::assertSame(ErrorCode::NOT_AVAILABLE, $failed->error?->getCode());
        self::assertSame([['a' => 1]], array_column($history->get()->publications, 'data'));
        self::assertFalse($status->get()->online);
    }

    /**
     * @dataProvider transports
     * @param class-string<Transport> $transport
     */
    public function testLongAnswersComeWhole(string $transport): void
    {
        $veche = self::client($transport);
        $channel = 'chat:' . bin2hex(random_bytes(4));
        for ($i = 0; $i < 10; $i++) {
            $veche->publish($channel, str_repeat((string) $i, 200000));
        }
        $page = $veche->history($channel, -1);
        self::assertSame(range(1, 10), array_column($page->publications, 'offset'));
        self::assertSame(str_repeat('7', 200000), $page->publications[7]->data);
    }

    /**
     * @dataProvider transports
     * @param class-string<Transport> $transport
     */
    public function testWhatTheServerRefuses(string $transport): void
    {
        $veche = self::client($transport);
        foreach (
            [
                [ErrorCode::NOT_AVAILABLE, fn () => $veche->history('plain', 1)],
                [ErrorCode::NOT_AVAILABLE, fn () => $veche->presence('plain')],
                [ErrorCode::BAD_REQUEST, fn () => $veche->subscribe('ann', '#bob')],
                [ErrorCode::BAD_REQUEST, fn () => $veche->subscribe('ann', 'chat:1', override: ['no' => true])],
                [ErrorCode::UNRECOVERABLE_POSITION, fn () => $veche->history(
                    'chat:1',
                    1,
                    new \Veche\Position(1, 'foreign'),
                )],
            ] as [$code, $call]
        ) {
            try {
                $call();
                self::fail("not refused with $code");
            } catch (CallerException $error) {
                self::assertSame($code, $error->getCode(), $error->getMessage());
            }
        }
        self::assertSame(0, $veche->push('nobody', 'x')->handed, 'and the client goes on');
    }

    /**
     * @dataProvider transports
     * @param class-string<Transport> $transport
     */
    public function testAWrongKeyAndTheWrongListener(string $transport): void
    {
        foreach ([null, 'wrong'] as $key) {
            try {
                self::client($transport, $key)->push('ann', 'x');
                self::fail('let in');
            } catch (AuthenticationException $error) {
                self::assertSame(ErrorCode::UNAUTHORIZED, $error->getCode());
            }
        }
        $public = 'http://127.0.0.1:' . self::$server->port;
        $this->expectException(CallerException::class);
        $this->expectExceptionMessage('internal listener?');
        (new Client($public, 'k', transport: new $transport($public)))->push('ann', 'x');
    }

    /**
     * @param class-string<Transport> $transport
     */
    private static function client(string $transport, ?string $key = 'the-key-of-the-suite'): Client
    {
        return new Client(self::$server->api(), $key, transport: new $transport(self::$server->api()));
    }

    /**
     * @return array{int, string}
     */
    private static function closed(Socket $socket): array
    {
        try {
            while (true) {
                $socket->receive(10);
            }
        } catch (ClosedException $closed) {
            return [$closed->getCode(), $closed->reason];
        }
    }
}
