<?php

declare(strict_types=1);

namespace Veche\Tests\Unit;

use PHPUnit\Framework\TestCase;
use Veche\Binary;
use Veche\ClientInterface;
use Veche\Command;
use Veche\Exception\CallerException;
use Veche\Exception\NetworkException;
use Veche\Position;
use Veche\Result\UserStatus;
use Veche\Testing\FakeClient;

final class FakeClientTest extends TestCase
{
    public function testRecordsWhatIsPushed(): void
    {
        $veche = new FakeClient();
        $veche->connect('ann', 2);
        $veche->connect('bob');
        $veche->addSubscribers('news', 5);
        self::assertSame(2, $veche->push('ann', 'hello')->handed);
        self::assertSame(3, $veche->push(['ann', 'bob', 'eve'], ['order' => 1])->handed);
        self::assertSame(5, $veche->publish('news', new Binary("\xff"))->handed);
        self::assertSame([5, 0], array_column($veche->broadcast(['news', 'sport'], 'x'), 'handed'));
        self::assertSame(['hello', ['order' => 1]], $veche->pushedTo('ann'));
        self::assertSame([['order' => 1]], $veche->pushedTo('eve'));
        self::assertEquals([new Binary("\xff"), 'x'], $veche->publishedTo('news'));
        self::assertSame([], $veche->publishedTo('ann'));
        self::assertCount(2, $veche->commands('push'));
        $veche->reset();
        self::assertSame([], $veche->commands());
    }

    public function testEndsConnections(): void
    {
        $veche = new FakeClient();
        $veche->connect('ann', 2);
        self::assertTrue($veche->userStatus('ann')->online);
        self::assertSame(2, $veche->disconnect('ann'));
        self::assertFalse($veche->userStatus('ann')->online);
        self::assertSame(0, $veche->blockUser('ann'));
        self::assertNull($veche->disconnect('ann', client: 'x'));
    }

    public function testRefusesWhatTheClientRefuses(): void
    {
        $this->expectException(CallerException::class);
        (new FakeClient())->push('', 'x');
    }

    public function testEachMethodReturnsItsType(): void
    {
        $veche = new FakeClient();
        $arguments = ['string' => 'a', 'array' => ['a'], 'mixed' => 1, 'array|string' => 'a'];
        foreach ((new \ReflectionClass(ClientInterface::class))->getMethods() as $method) {
            $given = array_map(
                static fn (\ReflectionParameter $one): mixed => $arguments[(string) $one->getType()],
                array_filter($method->getParameters(), static fn ($one): bool => !$one->isOptional()),
            );
            if ($method->name === 'batch') {
                $given = [Command::info()];
            }
            // The declared types of the results are checked by PHP.
            $veche->{$method->name}(...$given);
        }
        self::assertGreaterThanOrEqual(20, count($veche->commands()));
    }

    public function testFailuresAndAnswersComeInTheirOrder(): void
    {
        $veche = new FakeClient();
        $veche->failNext(new NetworkException('no server'));
        $veche->answerNext('user_status', new UserStatus(true, 7));
        try {
            $veche->push('ann', 'x');
            self::fail('it was to fail');
        } catch (NetworkException $error) {
            self::assertSame('no server', $error->getMessage());
        }
        self::assertSame([], $veche->commands());
        self::assertSame(7, $veche->userStatus('ann')->connections);
        self::assertSame(0, $veche->userStatus('ann')->connections);
        self::assertSame('fake:0', (string) $veche->history('c')->position);
    }

    public function testABatchIsRecordedCommandByCommand(): void
    {
        $veche = new FakeClient();
        $veche->addSubscribers('room:1');
        [$subscribed, $published] = $veche->batch(
            Command::subscribe('ann', 'room:1', recoverSince: new Position(1, 'e')),
            Command::publish('room:1', 'hi'),
        );
        self::assertNull($subscribed->get());
        self::assertSame(1, $published->get()->handed);
        self::assertSame(['hi'], $veche->publishedTo('room:1'));
        self::assertCount(1, $veche->commands('subscribe'));
    }
}
