<?php

declare(strict_types=1);

namespace Veche\Tests\Unit;

use PHPUnit\Framework\TestCase;
use RuntimeException;
use Veche\App;
use Veche\Binary;
use Veche\Connection;
use Veche\Exception\CallerException;
use Veche\Exception\VecheException;
use Veche\Hook\Disconnection;
use Veche\Hook\Event;
use Veche\Hook\Grant;
use Veche\Hook\Refusal;
use Veche\Request;
use Veche\Response;
use Veche\Testing\AppTester;
use Veche\Tests\Support\RuntimeVectors;
use Veche\Worker\Engine;

/**
 * Applications answer the events of the test vectors with exactly the bytes in the vectors.
 */
final class AppTest extends TestCase
{
    /**
     * @return iterable<string, array{callable(App): mixed, string, string}>
     */
    public static function answers(): iterable
    {
        yield 'nothing' => [fn (App $app) => $app->message(fn () => 7), 'message', 'nothing to do'];
        yield 'echo' => [
            fn (App $app) => $app->message(fn (Connection $conn, string $data) => $conn->send('hello')),
            'message',
            'an echo',
        ];
        yield 'binary echo' => [
            fn (App $app) => $app->message(function (Connection $conn, string $data, bool $isBinary): void {
                self::assertSame(["\0\xff\x80", true], [$data, $isBinary]);
                $conn->sendBinary("\0\xff");
            }),
            'message, binary',
            'an echo, binary',
        ];
        yield 'several' => [
            fn (App $app) => $app->message(function () use ($app): void {
                $app->connection('0.3.1')->send('news');
                $app->connection('1.8.2')->send('news');
            }),
            'message',
            'one part to several connections',
        ];
        yield 'parts' => [
            fn (App $app) => $app->message(function (Connection $conn) use ($app): void {
                $conn->send('hello');
                $app->pushTo('bob', '');
                $app->publishTo('room:1', ['a' => 1]);
            }),
            'message',
            'parts of their own',
        ];
        yield 'subscriptions' => [
            fn (App $app) => $app->message(function (Connection $conn) use ($app): void {
                $conn->subscribe('room:1');
                $conn->unsubscribe('room:2');
                $app->connection('0.8.1')->unsubscribe('room:2');
            }),
            'message',
            'subscriptions',
        ];
        yield 'failure' => [
            fn (App $app) => $app->open(fn () => new Response(403, 'no', ['Content-Type' => 'text/plain'])),
            'open',
            'open, refused',
        ];
        yield 'accepted' => [fn (App $app) => $app->open(fn () => null), 'open', 'open, accepted'];
        yield 'accepted with more' => [
            fn (App $app) => $app->open(function (Connection $conn): void {
                self::assertSame('a b', $conn->request?->query('token'));
                self::assertSame('2', $conn->request->cookie('b'));
                self::assertSame('example.com', $conn->request->header('Host'));
                $conn->subscribe('room:' . $conn->request->parameter('room'));
                $conn->set('room', 7);
                $conn->identify('ann');
                $conn->chooseProtocol('chat.v1');
            }),
            'open',
            'open, accepted with a user, a subprotocol and a subscription',
        ];
        yield 'response' => [
            fn (App $app) => $app->request(function (Request $request): Response {
                self::assertSame(['POST', '/orders'], [$request->method, $request->path]);
                self::assertSame('{"a":[1,2]}', $request->body);
                $headers = ['Content-Type' => 'application/json', 'Set-Cookie' => ['a=1', 'b=2']];
                return new Response(201, '{"id":1}', $headers);
            }),
            'request',
            'a response',
        ];
        yield 'response without a body' => [
            fn (App $app) => $app->request(fn () => new Response(204)),
            'request',
            'a response without a body',
        ];
        yield 'refresh' => [
            fn (App $app) => $app->refresh(function (Event $event): Grant {
                self::assertSame(['plan' => 'gold'], $event->client->meta);
                self::assertSame('ann', $event->client->user);
                return new Grant(isExpired: true);
            }),
            'refresh, with what the application keeps',
            'refresh, expired',
        ];
        yield 'subscribe' => [fn (App $app) => $app->subscribe(fn () => null), 'subscribe', 'subscribe, granted'];
        yield 'sub_refresh' => [
            fn (App $app) => $app->subRefresh(fn () => new Grant(expireAt: 1800000000)),
            'sub_refresh',
            'sub_refresh, granted',
        ];
        yield 'rpc' => [
            fn (App $app) => $app->rpc(function (Event $event): Refusal {
                self::assertSame(['sum', [1, 2]], [$event->method, $event->data]);
                return new Refusal(404, 'no such method');
            }),
            'rpc',
            'rpc, an error',
        ];
        yield 'rpc, later' => [
            fn (App $app) => $app->rpc(fn () => new Refusal(1000, 'later', true)),
            'rpc',
            'rpc, an error that passes',
        ];
        yield 'disconnect' => [
            fn (App $app) => $app->subscribe(fn () => new Disconnection(4500, 'not you')),
            'subscribe',
            'subscribe, disconnect',
        ];
        yield 'heard' => [
            fn (App $app) => $app->clientMessage(fn (Event $event) => self::assertSame('typing', $event->data)),
            'client_message, text',
            'client_message, heard',
        ];
        yield 'gone' => [
            fn (App $app) => $app->disconnect(function (Event $event) use ($app): void {
                self::assertSame([3000, 'connection closed'], [$event->code, $event->reason]);
                $app->publishTo('room:1', 'ann is gone');
            }),
            'disconnect',
            'disconnect, heard',
        ];
    }

    /**
     * @dataProvider answers
     */
    public function testAnswersAreThoseOfTheVectors(callable $register, string $event, string $answer): void
    {
        $app = App::create();
        $register($app);
        $engine = $app->engine();
        $engine->takeOutput();
        $engine->receive(RuntimeVectors::wire(RuntimeVectors::read('events')[$event]));
        self::assertSame(RuntimeVectors::read('answers')[$answer]['wire'], bin2hex($engine->takeOutput()));
    }

    public function testTheHelloNamesWhatIsHandled(): void
    {
        $app = App::create(4)->start(fn () => null)->stop(fn () => null)->open(fn () => null);
        $app->message(fn () => null)->close(fn () => null)->request(fn () => '');
        $hello = substr($app->engine()->takeOutput(), 8);
        self::assertSame(
            ['start', 'stop', 'open', 'message', 'close', 'request'],
            json_decode($hello, true, 512, JSON_THROW_ON_ERROR)['events'],
        );
        self::assertStringContainsString('"concurrency":4', $hello);
    }

    public function testARefusedWorkerSaysWhy(): void
    {
        $engine = App::create()->engine();
        $this->expectException(CallerException::class);
        $this->expectExceptionMessage('no version in common');
        $engine->receive(RuntimeVectors::wire(RuntimeVectors::read('hello')['refuse']));
    }

    public function testACallSuspendsItsHandlerAndWhatWasWantedBeforeGoesFirst(): void
    {
        $app = App::create(2);
        $app->message(function (Connection $conn) use ($app): void {
            $conn->send('asking');
            $conn->send((string) $app->client()->presenceStats('room:1')->clients);
        });
        $engine = self::engine($app);
        $engine->receive(self::message(4, '0.3.1', 'x'));
        $asked = self::frames($engine->takeOutput());
        self::assertSame(['effects', 'call'], array_column($asked, 'type'));
        self::assertSame([4, 'api', 'presence_stats'], [$asked[1]['event'], $asked[1]['call'], $asked[1]['method']]);
        $result = ['type' => 'result', 'id' => $asked[1]['id'], 'data' => 0];
        $engine->receive(self::frame($result, '{"result":{"num_clients":3,"num_users":2}}'));
        [$answer] = self::frames($engine->takeOutput());
        self::assertSame(['answer', 4], [$answer['type'], $answer['id']]);
        self::assertSame('send', $answer['effects'][0]['effect']);
    }

    public function testAFailedCallIsAnException(): void
    {
        $app = App::create();
        $app->message(function (Connection $conn) use ($app): void {
            try {
                $app->client()->presenceStats('room:1');
            } catch (CallerException $error) {
                $conn->send($error->getMessage());
            }
        });
        foreach (
            [
                ['error' => ['kind' => 'refused', 'message' => 'why']],
                ['data' => 0],
            ] as $number => $outcome
        ) {
            $engine = self::engine($app);
            $engine->receive(self::message(4, '0.3.1', 'x'));
            [$call] = self::frames($engine->takeOutput());
            $body = '{"error":{"code":108,"message":"why"}}';
            $engine->receive(self::frame(['type' => 'result', 'id' => $call['id']] + $outcome, $body));
            self::assertStringContainsString('why', $engine->takeOutput(), "outcome $number");
        }
    }

    public function testEventsOfOneConnectionAreHandledOneAfterTheOther(): void
    {
        $app = App::create(3);
        $order = [];
        $app->message(function (Connection $conn, string $data) use (&$order): void {
            $order[] = "+$conn->id $data";
            \Veche\sleep(1);
            $order[] = "-$conn->id $data";
        });
        $engine = self::engine($app);
        $all = [['a', '1'], ['a', '2'], ['b', '1'], ['c', '1'], ['d', '1'], ['a', '3']];
        foreach ($all as $id => [$connection, $data]) {
            $engine->receive(self::message($id + 1, $connection, $data));
        }
        self::assertSame(['+a 1', '+b 1', '+c 1'], $order, 'three at once, and of each connection the first');
        while (($wakesAt = $engine->wakesAt()) !== null) {
            $engine->wake($wakesAt);
        }
        self::assertCount(12, $order);
        $ofA = array_values(array_filter($order, fn (string $one): bool => $one[1] === 'a'));
        self::assertSame(['+a 1', '-a 1', '+a 2', '-a 2', '+a 3', '-a 3'], $ofA);
        $answered = array_column(self::frames($engine->takeOutput()), 'id');
        sort($answered);
        self::assertSame(range(1, 6), $answered);
    }

    public function testAtMostAsManyAreInHandAsTheApplicationTakes(): void
    {
        $begun = [];
        $app = App::create(2)->message(function (Connection $conn) use (&$begun): void {
            $begun[] = $conn->id;
            \Veche\sleep(1);
        });
        $engine = self::engine($app);
        foreach (['a', 'b', 'c'] as $id => $connection) {
            $engine->receive(self::message($id + 1, $connection, 'x'));
        }
        self::assertSame(['a', 'b'], $begun);
        $engine->wake((float) $engine->wakesAt());
        self::assertSame(['a', 'b', 'c'], $begun);
    }

    public function testDataOfCommandsAreArrays(): void
    {
        $app = App::create()->publish(fn (Event $event) => new Grant(data: $event->data['a']['b'], info: ['i' => 1]));
        $reply = (new AppTester($app))->command('publish', ['channel' => 'c'], ['a' => ['b' => 7]]);
        self::assertSame(['result' => ['info' => ['i' => 1], 'data' => 7]], $reply);
        $app = App::create()->publish(fn (Event $event) => new Grant(data: new Binary("\xff")));
        $reply = (new AppTester($app))->command('publish', ['channel' => 'c'], null);
        self::assertSame(['result' => ['data' => "\xff", 'data_kind' => 'binary']], $reply);
    }

    public function testStopComesAfterWhatIsInHand(): void
    {
        $app = App::create(2)->message(fn () => \Veche\sleep(1));
        $engine = self::engine($app);
        $engine->receive(self::message(1, 'a', 'x') . self::frame(['type' => 'event', 'id' => 2, 'event' => 'stop']));
        self::assertFalse($engine->isOver());
        $engine->wake((float) $engine->wakesAt());
        self::assertTrue($engine->isOver());
    }

    public function testAFailedHandlerKeepsTheWorker(): void
    {
        $app = App::create();
        $app->message(function (Connection $conn, string $data): void {
            $conn->send('before');
            throw new RuntimeException("bad $data");
        });
        $tester = new AppTester($app);
        $ann = $tester->open();
        $ann->say('message');
        self::assertSame(1011, $ann->closeCode);
        self::assertSame(['before'], $ann->received());
        self::assertStringContainsString('RuntimeException: bad message in ' . __FILE__, $tester->log[0]);
        $tester->open()->say('again');
        self::assertCount(2, $tester->log);
    }

    public function testAnAnswerThatIsTooLongFailsAlone(): void
    {
        $app = App::create()->message(fn (Connection $conn) => $conn->send(str_repeat('x', (16 << 20) + 1)));
        $tester = new AppTester($app);
        $ann = $tester->open();
        $ann->say('x');
        self::assertSame([1011, []], [$ann->closeCode, $ann->received()]);
        self::assertStringContainsString('effects or data', $tester->log[0]);
    }

    public function testMoreEffectsThanAFrameHasComeInSeveral(): void
    {
        $app = App::create()->message(function (Connection $conn): void {
            for ($i = 0; $i < 10000; $i++) {
                $conn->send((string) $i);
            }
        });
        $engine = self::engine($app);
        $engine->receive(self::message(4, '0.3.1', 'x'));
        $frames = self::frames($engine->takeOutput());
        self::assertSame(['effects', 'effects', 'answer'], array_column($frames, 'type'));
        self::assertSame([4096, 4096, 1808], array_map(fn (array $one): int => count($one['effects']), $frames));

        $app = App::create()->message(function (Connection $conn): void {
            for ($i = 0; $i < 3; $i++) {
                $conn->send(str_repeat((string) $i, 7 << 20));
            }
        });
        $ann = (new AppTester($app))->open();
        $ann->say('x');
        self::assertNull($ann->closeCode);
        self::assertSame(['0', '1', '2'], array_map(fn (string $one): string => $one[0], $ann->received()));
    }

    public function testCallsOfConnections(): void
    {
        $app = App::create();
        $app->message(function (Connection $conn, string $data) use ($app): void {
            if (str_starts_with($data, 'token ')) {
                $conn->send((string) $conn->renew(substr($data, 6)));
                return;
            }
            $joined = $conn->join('orders', 'e:1');
            $conn->send(json_encode([$joined->position, $joined->recovered, $conn->isOpen()]));
            foreach ($app->connectionsOf('ann') as $id) {
                $app->connection($id)->send("to $id");
            }
            $app->log('done', 'debug');
        });
        $tester = new AppTester($app);
        $tester->tokens = ['good' => 60];
        $first = $tester->open(user: 'ann');
        $second = $tester->open(user: 'ann');
        $tester->open(user: 'bob');
        $first->say('x');
        self::assertSame(['["fake:0",false,true]', "to $first->id"], $first->received());
        self::assertSame(["to $second->id"], $second->received());
        self::assertSame(['orders' => true], $first->channels);
        self::assertSame(['done'], $tester->log);
        $first->say('token good');
        self::assertSame(['60'], $first->received());
        $first->say('token bad');
        self::assertSame(1011, $first->closeCode);
        self::assertStringContainsString('the token is not valid', $tester->log[1]);
    }

    public function testResponsesInPartsAndFiles(): void
    {
        $app = App::create()->request(function (Request $request): Response {
            $parts = (function () use ($request): \Generator {
                yield 'a,';
                yield '';
                yield 'b';
                if ($request->path === '/fails') {
                    throw new RuntimeException('no more');
                }
            })();
            return Response::stream($parts, 201, ['Content-Type' => 'text/csv']);
        });
        $tester = new AppTester($app);
        $response = $tester->request('GET', '/');
        self::assertSame([201, 'a,b'], [$response->status, $response->body]);
        self::assertSame(['Content-Type' => 'text/csv'], $response->headers);
        self::assertSame('a,b', $tester->request('GET', '/fails')->body);
        self::assertStringContainsString('no more', $tester->log[0]);

        $engine = self::engine(App::create()->request(fn () => Response::file('pages/a.html')));
        $engine->receive(RuntimeVectors::wire(RuntimeVectors::read('events')['request']));
        [$answer] = self::frames($engine->takeOutput());
        self::assertSame(['status' => 200, 'file' => 'pages/a.html'], $answer['reply']);
    }

    public function testAStreamIsSentAsTheVectorsHaveIt(): void
    {
        $app = App::create()->request(fn () => Response::stream(["x"], headers: ['Content-Type' => 'text/csv']));
        $engine = self::engine($app);
        $engine->receive(RuntimeVectors::wire(RuntimeVectors::read('events')['request']));
        [$begin, $part] = self::frames($engine->takeOutput());
        self::assertSame(['type' => 'effects', 'id' => 9, 'effects' => [
            ['effect' => 'begin', 'status' => 200, 'headers' => [['Content-Type', 'text/csv']]],
        ]], $begin);
        $call = ['id' => $part['id']] + RuntimeVectors::read('calls')['part']['head'];
        self::assertEquals($call, $part);
        $engine->receive(self::frame(['type' => 'result', 'id' => $part['id']]));
        [$answer] = self::frames($engine->takeOutput());
        self::assertSame(['type' => 'answer', 'id' => 9, 'effects' => [['effect' => 'end']]], $answer);
    }

    public function testOneEventWithoutAWorker(): void
    {
        $app = App::create();
        $app->message(function (Connection $conn, string $data): void {
            \Veche\sleep(0.01);
            $conn->send($data);
            try {
                $conn->isOpen();
            } catch (CallerException $error) {
                $conn->send($error->getMessage());
            }
        });
        $frames = self::frames($app->handle(self::message(4, '0.3.1', 'x')));
        self::assertSame('answer', end($frames)['type']);
        self::assertSame(2, array_sum(array_map(fn (array $one): int => count($one['effects'] ?? []), $frames)));
    }

    /**
     * @testWith ["timeout", "Network", true]
     *           ["connection_lost", "Network", true]
     *           ["unreachable", "Network", false]
     *           ["pool_full", "Server", false]
     *           ["broken", "Server", true]
     *           ["invalid", "Caller", false]
     *           ["something new", "Caller", false]
     */
    public function testFailedCallsSayWhoseFaultTheyAre(string $kind, string $fault, bool $mayHaveRun): void
    {
        $app = App::create()->message(function (Connection $conn): void {
            try {
                $conn->isOpen();
            } catch (VecheException $error) {
                $conn->send($error->fault()->name . ($error->mayHaveRun ? ' maybe' : ' no'));
            }
        });
        $engine = self::engine($app);
        $engine->receive(self::message(4, '0.3.1', 'x'));
        [$call] = self::frames($engine->takeOutput());
        $error = ['kind' => $kind, 'message' => 'why'];
        $engine->receive(self::frame(['type' => 'result', 'id' => $call['id'], 'error' => $error]));
        self::assertStringEndsWith($fault . ($mayHaveRun ? ' maybe' : ' no'), $engine->takeOutput());
    }

    /**
     * @testWith ["refused", 1213, true, "Server 1213  again"]
     *           ["refused", 1062, false, "Caller 1062  never"]
     *           ["refused", "LOADING", true, "Server 0 LOADING again"]
     *           ["refused", "WRONGTYPE", false, "Caller 0 WRONGTYPE never"]
     *           ["connection_lost", 1927, false, "Network 1927  never"]
     *           ["unreachable", null, true, "Network 0  again"]
     *           ["pool_full", null, true, "Server 0  again"]
     *           ["timeout", null, false, "Network 0  never"]
     */
    public function testFailedCallsHaveTheCodeAndSayWhetherToTryAgain(
        string $kind,
        int|string|null $code,
        bool $retryable,
        string $expected,
    ): void {
        $app = App::create()->message(function (Connection $conn): void {
            try {
                $conn->isOpen();
            } catch (VecheException $error) {
                $advice = $error->retryable() ? 'again' : 'never';
                $conn->send("{$error->fault()->name} {$error->getCode()} $error->codeName $advice");
            }
        });
        $engine = self::engine($app);
        $engine->receive(self::message(4, '0.3.1', 'x'));
        [$call] = self::frames($engine->takeOutput());
        $error = ['kind' => $kind, 'message' => 'why', 'code' => $code, 'retryable' => $retryable];
        $engine->receive(self::frame(['type' => 'result', 'id' => $call['id'], 'error' => $error]));
        self::assertStringEndsWith($expected, $engine->takeOutput());
    }

    public function testTheTesterPlaysAChat(): void
    {
        $app = App::create();
        $app->open(function (Connection $conn): ?bool {
            if ($conn->request?->query('user') === null) {
                return false;
            }
            $conn->identify($conn->request->query('user'));
            $conn->subscribe('room:' . $conn->request->parameter('room'));
            return null;
        });
        $app->message(function (Connection $conn, string $data) use ($app): void {
            if ($data === 'bye') {
                $conn->close(4001, 'bye');
                return;
            }
            \Veche\sleep(5);
            $conn->set('said', ($conn->get('said') ?? 0) + 1);
            $app->publishTo('room:7', "$conn->user: $data");
            $app->pushTo('eve', new Binary("\xff"));
            $app->client()->push('bob', ['said' => $conn->get('said')]);
        });
        $app->close(fn (Connection $conn) => $app->publishTo('room:7', "$conn->user left"));
        $app->request(fn (Request $request) => 'path ' . $request->path . ' ' . ($request->user ?? 'nobody'));
        $tester = new AppTester($app);
        self::assertSame(403, $tester->open('/chat/7', parameters: ['room' => '7'])->refusedWith);
        $ann = $tester->open('/chat/7?user=ann', parameters: ['room' => '7']);
        $eve = $tester->open('/chat/7?user=eve', parameters: ['room' => '7']);
        $ann->say('hello');
        $ann->say('again');
        self::assertSame(['ann: hello', 'ann: again'], $ann->received());
        self::assertSame(['ann: hello', "\xff", 'ann: again', "\xff"], $eve->received());
        self::assertSame(['said' => 2], $ann->attributes);
        self::assertSame([['said' => 1], ['said' => 2]], $tester->client->pushedTo('bob'));
        $eve->hangUp();
        self::assertSame(['eve left'], $ann->received());
        $ann->say('bye');
        self::assertSame([4001, 'bye'], [$ann->closeCode, $ann->closeReason]);
        self::assertSame('path /x nobody', $tester->request('GET', '/x')->body);
        self::assertSame('path /x ann', $tester->request('GET', '/x', user: 'ann')->body);
        $tester->stop();
        self::assertSame([], $tester->log);
    }

    public function testAConnectionThatClosesIsNoneOfItsUsersAnyMore(): void
    {
        $app = App::create();
        $app->close(function (Connection $conn) use ($app): void {
            $conn->send('too late');
            $app->publishTo('room:1', (string) count($app->connectionsOf('ann')));
        });
        $app->message(fn (Connection $conn) => $conn->subscribe('room:1'));
        $tester = new AppTester($app);
        [$first, $second, $bob] = [$tester->open(user: 'ann'), $tester->open(user: 'ann'), $tester->open(user: 'bob')];
        $bob->say('subscribe me');
        $first->hangUp(4000);
        $second->hangUp();
        self::assertSame(['1', '0'], $bob->received());
        self::assertSame([4000, []], [$first->closeCode, $first->received()]);
        $this->expectExceptionMessage('the connection is closed');
        $first->say('hello?');
    }

    public function testAProgramThatRunsNoApplicationIsNotLoaded(): void
    {
        $this->expectExceptionMessage('runs no application');
        AppTester::load(dirname(__DIR__, 2) . '/build/output.php');
    }

    public function testMistakesAreNamed(): void
    {
        $mistakes = [
            '"message" already has a handler' => fn () => App::create()->message(fn () => 1)->message(fn () => 1),
            'at least 1' => fn () => App::create(0),
            'only possible in a handler of a worker' => fn () => \Veche\sleep(1),
            'only Veche can start this program' => fn () => App::create()->run(),
            'between 200 and 599' => fn () => new Response(99),
            'between 3000 and 4999' => fn () => new Disconnection(1000),
            'must be at least 1' => fn () => new Refusal(0),
        ];
        foreach ($mistakes as $message => $mistake) {
            try {
                $mistake();
                self::fail("not found: $message");
            } catch (CallerException $error) {
                self::assertStringContainsString($message, $error->getMessage());
            }
        }
    }

    private static function engine(App $app): Engine
    {
        $engine = $app->engine();
        $engine->takeOutput();
        $engine->receive(RuntimeVectors::wire(RuntimeVectors::read('hello')['welcome']));
        return $engine;
    }

    private static function message(int $id, string $connection, string $data): string
    {
        $head = ['type' => 'event', 'id' => $id, 'event' => 'message', 'connection' => $connection];
        return self::frame($head + ['data_kind' => 'text', 'data' => 0], $data);
    }

    /**
     * @param array<string, mixed> $head
     */
    private static function frame(array $head, string $payload = ''): string
    {
        return \Veche\Worker\Frame::encode($head, [$payload], 1 << 20, 16 << 20);
    }

    /**
     * @return list<array<string, mixed>> The heads of the frames.
     */
    private static function frames(string $bytes): array
    {
        $decoder = new \Veche\Worker\FrameDecoder();
        $decoder->feed($bytes);
        $heads = [];
        while (($frame = $decoder->next()) !== null) {
            $heads[] = $frame->head;
        }
        return $heads;
    }
}
