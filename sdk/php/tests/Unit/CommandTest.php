<?php

declare(strict_types=1);

namespace Veche\Tests\Unit;

use PHPUnit\Framework\TestCase;
use Veche\Binary;
use Veche\Command;
use Veche\ErrorCode;
use Veche\Exception\CallerException;
use Veche\Exception\ServerException;
use Veche\Exception\UnavailableException;
use Veche\Json;
use Veche\Position;
use Veche\PublishOptions;
use Veche\Result\Fields;

final class CommandTest extends TestCase
{
    /**
     * @return iterable<string, array{Command, string, string, bool}>
     */
    public static function commands(): iterable
    {
        $all = new PublishOptions('k', 7, 'e', false, true, ['a' => 'b', '1' => '2']);
        $passing = new PublishOptions(skipHistory: true);
        yield 'push text' => [Command::push('ann', 'hello'), 'push', '{"user":"ann","data":"hello"}', false];
        yield 'push to several' => [
            Command::push(['ann', 'bob'], ['order' => 42]),
            'push',
            '{"users":["ann","bob"],"data":{"order":42}}',
            false,
        ];
        yield 'binary' => [Command::push('ann', new Binary("\0\xff")), 'push', '{"user":"ann","binary":"AP8="}', false];
        yield 'null' => [Command::publish('c', null), 'publish', '{"channel":"c","data":null}', false];
        yield 'unicode and slashes' => [
            Command::publish('c', 'вече/🔔'),
            'publish',
            '{"channel":"c","data":"вече/🔔"}',
            false,
        ];
        yield 'floats stay floats' => [Command::publish('c', 1.0), 'publish', '{"channel":"c","data":1.0}', false];
        yield 'raw JSON' => [
            Command::publish('c', new Json(" {\"EUR\":\n1.10} ")),
            'publish',
            '{"channel":"c","data":{"EUR": 1.10}}',
            false,
        ];
        yield 'options' => [
            Command::publish('c', 1, $all),
            'publish',
            '{"channel":"c","data":1,"idempotency_key":"k","version":7,"version_epoch":"e","delta":true,'
                . '"tags":{"a":"b","1":"2"}}',
            true,
        ];
        yield 'broadcast' => [
            Command::broadcast(['a', 'b'], 1, $passing),
            'broadcast',
            '{"channels":["a","b"],"data":1,"skip_history":true}',
            false,
        ];
        yield 'disconnect' => [Command::disconnect('ann'), 'disconnect', '{"user":"ann"}', false];
        yield 'disconnect with all' => [
            Command::disconnect('ann', 4001, 'bye', 'c', 's', ['x']),
            'disconnect',
            '{"user":"ann","client":"c","session":"s","disconnect":{"code":4001,"reason":"bye"},"whitelist":["x"]}',
            false,
        ];
        yield 'subscribe' => [
            Command::subscribe('ann', 'c', ['i' => 1], new Binary('x'), new Position(7, 'e'), 9, ['presence' => false]),
            'subscribe',
            '{"user":"ann","channel":"c","recover_since":{"offset":7,"epoch":"e"},"expire_at":9,'
                . '"override":{"presence":{"value":false}},"info":{"i":1},"b64data":"eA=="}',
            false,
        ];
        yield 'unsubscribe' => [
            Command::unsubscribe('ann', 'c', client: 'x'),
            'unsubscribe',
            '{"user":"ann","client":"x","channel":"c"}',
            false,
        ];
        yield 'refresh' => [
            Command::refresh('ann', 0, info: 1),
            'refresh',
            '{"user":"ann","expire_at":0,"info":1}',
            true,
        ];
        yield 'expire' => [Command::refresh('ann', expired: true), 'refresh', '{"user":"ann","expired":true}', false];
        yield 'user status' => [Command::userStatus('ann'), 'user_status', '{"user":"ann"}', true];
        yield 'block' => [Command::blockUser('ann', 9), 'block_user', '{"user":"ann","expire_at":9}', true];
        yield 'unblock' => [Command::unblockUser('ann'), 'unblock_user', '{"user":"ann"}', true];
        yield 'revoke' => [Command::revokeToken('t'), 'revoke_token', '{"uid":"t"}', true];
        yield 'invalidate' => [
            Command::invalidateUserTokens('ann', 5, 9),
            'invalidate_user_tokens',
            '{"user":"ann","issued_before":5,"expire_at":9}',
            true,
        ];
        yield 'invalidate now' => [
            Command::invalidateUserTokens('ann'),
            'invalidate_user_tokens',
            '{"user":"ann"}',
            false,
        ];
        yield 'history' => [
            Command::history('c', -7, new Position(1, 'e'), true),
            'history',
            '{"channel":"c","limit":-1,"since":{"offset":1,"epoch":"e"},"reverse":true}',
            true,
        ];
        yield 'history_remove' => [Command::historyRemove('c'), 'history_remove', '{"channel":"c"}', false];
        yield 'presence' => [Command::presence('c'), 'presence', '{"channel":"c"}', true];
        yield 'presence_stats' => [Command::presenceStats('c'), 'presence_stats', '{"channel":"c"}', true];
        yield 'channels' => [Command::channels('c*'), 'channels', '{"pattern":"c*"}', true];
        yield 'all channels' => [Command::channels(), 'channels', '{}', true];
        yield 'connections of a user' => [
            Command::connectionsOfUser('ann', 'js'),
            'connections',
            '{"user":"ann","name":"js"}',
            true,
        ];
        yield 'connections of a channel' => [
            Command::connectionsOfChannel('c'),
            'connections',
            '{"channel":"c"}',
            true,
        ];
        yield 'info' => [Command::info(), 'info', '{}', true];
        yield 'batch' => [
            Command::batch(Command::userStatus('ann'), Command::publish('c', 1)),
            'batch',
            '{"commands":[{"user_status":{"user":"ann"}},{"publish":{"channel":"c","data":1}}]}',
            false,
        ];
        yield 'batch of questions' => [Command::batch(Command::info()), 'batch', '{"commands":[{"info":{}}]}', true];
    }

    /**
     * @dataProvider commands
     */
    public function testIsWrittenAsTheServerReadsIt(
        Command $command,
        string $method,
        string $body,
        bool $isRepeatable,
    ): void {
        self::assertSame($method, $command->method);
        self::assertSame($body, $command->body());
        self::assertSame($isRepeatable, $command->isRepeatable);
    }

    /**
     * @return iterable<string, array{callable(): mixed, string}>
     */
    public static function mistakes(): iterable
    {
        yield 'no user' => [fn () => Command::push('', 'x'), 'user is empty'];
        yield 'long user' => [fn () => Command::push(str_repeat('x', 255), 'x'), 'more than 254 bytes'];
        yield 'control characters' => [fn () => Command::push("a\n", 'x'), 'control characters'];
        yield 'user of bytes' => [fn () => Command::push("\xff", 'x'), 'not UTF-8'];
        yield 'no users' => [fn () => Command::push([], 'x'), '1 to 1024 users'];
        yield 'many users' => [fn () => Command::push(array_fill(0, 1025, 'a'), 'x'), '1 to 1024 users'];
        yield 'user of another type' => [fn () => Command::push([1.5], 'x'), 'user must be a string'];
        yield 'no channel' => [fn () => Command::publish('', 'x'), 'channel is empty'];
        yield 'bytes' => [fn () => Command::publish('c', "\xff"), 'Veche\Binary'];
        yield 'nested bytes' => [fn () => Command::publish('c', ["\xff"])->body(), 'Veche\Binary'];
        yield 'not a number' => [fn () => Command::publish('c', NAN)->body(), 'can\'t be encoded as JSON'];
        yield 'bad JSON' => [fn () => new Json('{'), 'bad JSON'];
        yield 'close code' => [fn () => Command::disconnect('ann', 1000), 'between 3000 and 4999'];
        yield 'reason without code' => [fn () => Command::disconnect('ann', reason: 'x'), 'needs a code'];
        yield 'long reason' => [fn () => Command::disconnect('ann', 4000, str_repeat('x', 124)), '123 bytes'];
        yield 'negative time' => [fn () => Command::refresh('ann', -1), 'negative'];
        yield 'empty batch' => [fn () => Command::batch(), '1 to 1000'];
        yield 'no uid' => [fn () => Command::revokeToken(''), 'uid is empty'];
        yield 'empty key' => [fn () => new PublishOptions(''), 'idempotencyKey must have 1 to 128 bytes'];
        yield 'long key' => [
            fn () => new PublishOptions(str_repeat('x', 129)),
            'idempotencyKey must have 1 to 128 bytes',
        ];
        yield 'negative version' => [fn () => new PublishOptions(version: -1), 'negative'];
        yield 'version of nothing' => [fn () => new PublishOptions(version: 1, skipHistory: true), 'combined'];
        yield 'epoch of no version' => [fn () => new PublishOptions(versionEpoch: 'e'), 'needs version'];
        yield 'tags' => [fn () => new PublishOptions(tags: ['a' => 1]), 'not a string'];
        yield 'many tags' => [fn () => new PublishOptions(tags: array_fill(0, 33, 'x')), '32 tags'];
    }

    /**
     * @dataProvider mistakes
     */
    public function testMistakesAreFoundBeforeAnythingIsSent(callable $make, string $message): void
    {
        $this->expectException(CallerException::class);
        $this->expectExceptionMessage($message);
        $make();
    }

    public function testLimitsIncludeTheirBounds(): void
    {
        self::assertSame(254, strlen(Command::push(str_repeat('x', 254), 1)->parameters['user']));
        self::assertCount(1024, Command::push(array_fill(0, 1024, 'a'), 1)->parameters['users']);
        self::assertSame(128, strlen((string) (new PublishOptions(str_repeat('k', 128)))->idempotencyKey));
        self::assertSame(0, (new PublishOptions(version: 0))->version);
        self::assertCount(1000, Command::batch(...array_fill(0, 1000, Command::info()))->commands);
        self::assertSame(4999, Command::disconnect('a', 4999, str_repeat('x', 123))->parameters['disconnect']['code']);
    }

    public function testUsersThatAreNumbersStayText(): void
    {
        self::assertSame('{"users":["7","8"],"data":1}', Command::push([7, '8'], 1)->body());
    }

    public function testResultsAreTyped(): void
    {
        $published = Command::publish('c', 1)->result(self::fields('{"handed":2,"offset":17,"epoch":"e"}'));
        self::assertSame([2, 'e:17', true, null], [
            $published->handed,
            (string) $published->position,
            $published->taken,
            $published->note,
        ]);
        $twice = Command::push('a', 1)->result(self::fields('{"handed":0,"taken":false,"note":"n"}'));
        self::assertSame([0, null, false, 'n'], [$twice->handed, $twice->position, $twice->taken, $twice->note]);
        self::assertSame([null, null], [$published->nodes, $twice->nodes]);

        $json = '{"publications":[{"offset":1,"time":5,"data":{"a":1},"tags":{"t":"u"},'
            . '"info":{"user":"ann","client":"x","conn_info":{"r":1}}},{"offset":2,"time":6,"base64":"AP8="}],'
            . '"offset":9,"epoch":"e"}';
        $page = Command::history('c', -1)->result(self::fields($json));
        [$first, $second] = $page->publications;
        self::assertSame([1, 5, ['a' => 1], ['t' => 'u']], [$first->offset, $first->time, $first->data, $first->tags]);
        self::assertSame(['ann', ['r' => 1]], [$first->publisher?->user, $first->publisher?->connectionInfo]);
        self::assertEquals(new Binary("\0\xff"), $second->data);
        self::assertSame('e:9', (string) $page->position);

        self::assertSame(3, Command::disconnect('a')->result(self::fields('{"disconnected":3}')));
        self::assertNull(Command::disconnect('a', client: 'x')->result(self::fields('{}')));
    }

    public function testAPublicationMayHaveNoNumberOfReceivers(): void
    {
        $results = [
            '{}' => [null, null, null, true],
            '{"nodes":2}' => [null, 2, null, true],
            '{"nodes":0}' => [null, 0, null, true],
            '{"nodes":2,"offset":17,"epoch":"e"}' => [null, 2, 'e:17', true],
            '{"offset":17,"epoch":"e"}' => [null, null, 'e:17', true],
            '{"taken":false}' => [null, null, null, false],
        ];
        foreach ($results as $json => $expected) {
            $broadcast = Command::broadcast(['c'], 1)->result(self::fields("{\"responses\":[{\"result\":$json}]}"));
            $all = [
                Command::publish('c', 1)->result(self::fields($json)),
                Command::push(['a', 'b'], 1)->result(self::fields($json)),
                ...$broadcast,
            ];
            self::assertCount(3, $all);
            foreach ($all as $one) {
                $position = $one->position === null ? null : (string) $one->position;
                self::assertSame($expected, [$one->handed, $one->nodes, $position, $one->taken], $json);
                self::assertNull($one->note);
            }
        }
    }

    /**
     * @return iterable<array{Command, string}>
     */
    public static function rubbish(): iterable
    {
        yield [Command::publish('c', 1), '{"handed":"2"}'];
        yield [Command::publish('c', 1), '{"nodes":"2"}'];
        yield [Command::publish('c', 1), '{"nodes":2.5}'];
        yield [Command::publish('c', 1), '{"nodes":2,"taken":0}'];
        yield [Command::publish('c', 1), '{"handed":2,"offset":17}'];
        yield [Command::history('c'), '{"publications":7,"offset":1,"epoch":"e"}'];
        yield [Command::history('c'), '{"publications":[7],"offset":1,"epoch":"e"}'];
        yield [Command::history('c'), '{"publications":[{"offset":1,"time":1,"base64":"*"}],"offset":1,"epoch":"e"}'];
        yield [Command::userStatus('a'), '{"online":1,"connections":1}'];
        yield [Command::info(), '{"nodes":null}'];
        yield [Command::batch(Command::info()), '{"replies":[]}'];
        yield [Command::batch(Command::info()), '{"replies":[{"other":{}}]}'];
    }

    /**
     * @dataProvider rubbish
     */
    public function testUnexpectedResultsAreTheServersFault(Command $command, string $json): void
    {
        $this->expectException(ServerException::class);
        $this->expectExceptionMessage('unexpected answer');
        $command->result(self::fields($json));
    }

    public function testRepliesOfABatchAreResultsOrErrors(): void
    {
        $batch = Command::batch(Command::publish('c', 1), Command::history('c'), Command::publish('c', 2));
        $replies = $batch->result(self::fields('{"replies":[{"publish":{"handed":1}},'
            . '{"error":{"code":106,"message":"too many"}},{"error":{"code":106,"message":"memory"}}]}'));
        self::assertSame(1, $replies[0]->get()->handed);
        self::assertSame(ErrorCode::LIMIT_EXCEEDED, $replies[1]->error?->getCode());
        self::assertInstanceOf(CallerException::class, $replies[1]->error);
        self::assertInstanceOf(UnavailableException::class, $replies[2]->error);
        $this->expectExceptionMessage('too many');
        $replies[1]->get();
    }

    private static function fields(string $json): Fields
    {
        return new Fields(json_decode($json, true, 512, JSON_THROW_ON_ERROR));
    }
}
