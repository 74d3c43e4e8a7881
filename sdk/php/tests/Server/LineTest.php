<?php

declare(strict_types=1);

namespace Veche\Tests\Server;

use Psr\Log\AbstractLogger;
use Veche\Binary;
use Veche\Client;
use Veche\ErrorCode;
use Veche\Exception\CallerException;
use Veche\LineClient;
use Veche\PublishOptions;

final class LineTest extends ServerTestCase
{
    protected static function config(): string
    {
        return <<<'TOML'
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
            channels = ["news", "chat:*"]
            [[namespace]]
            name = ""
            subscribe = "client"
            [[namespace]]
            name = "#"
            history_size = 10
            [[namespace]]
            name = "chat"
            history_size = 10
            [limits]
            unknown_namespace = "error"
            TOML;
    }

    public function testPushesAndReturnsWhatBecameOfIt(): void
    {
        $veche = new LineClient(self::$server->lines());
        $ann = self::open('/push?user=ann&channel=news');
        self::assertSame(1, $veche->push('ann', "two\nlines")->handed);
        self::assertSame("two\nlines", $ann->receive(5)->data);
        self::assertSame(1, $veche->publish('news', new Binary("\n\xff"))->handed);
        self::assertSame("\n\xff", $ann->receive(5)->data);
        self::assertSame(1, $veche->broadcast(['news', 'sport'], 'b')->handed);
        self::assertSame('b', $ann->receive(5)->data);
        $published = $veche->publish('chat:1', 'x', new PublishOptions('k'));
        self::assertSame(1, $published->position?->offset);
        self::assertFalse($veche->publish('chat:1', 'x', new PublishOptions('k'))->taken);
        self::assertSame('the user has no connection', $veche->push('eve', 'x')->note);
        $ann->close();
    }

    public function testARefusedLineDoesNotDisturbTheNextOnes(): void
    {
        $veche = new LineClient(self::$server->lines());
        try {
            $veche->publish('unknown:1', 'x');
            self::fail('not refused');
        } catch (CallerException $error) {
            self::assertSame(ErrorCode::UNKNOWN_CHANNEL, $error->getCode());
        }
        self::assertSame(0, $veche->push('nobody', 'x')->handed);
    }

    public function testWithoutAcknowledgementsRefusalsComeWithAFlush(): void
    {
        $veche = new LineClient(self::$server->lines(), acknowledge: false);
        $ann = self::open('/push?user=flo');
        for ($i = 0; $i < 100; $i++) {
            self::assertNull($veche->push('flo', (string) $i)->handed);
        }
        $veche->flush();
        for ($i = 0; $i < 100; $i++) {
            self::assertSame((string) $i, $ann->receive(5)->data);
        }
        $http = new Client(self::$server->api());
        self::assertSame(100, $http->history('#flo')->position->offset);
        self::assertSame(0, $http->history('#veche-php-flush')->position->offset, 'a flush leaves nothing behind');
        $ann->close();
        $veche->publish('unknown:1', 'x');
        $this->expectException(CallerException::class);
        $this->expectExceptionMessage('unknown channel');
        $veche->flush();
    }

    public function testALoggerIsToldOfRefusals(): void
    {
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
                $this->lines[] = "$level {$context['error']}";
            }
        };
        $veche = new LineClient(self::$server->lines(), acknowledge: false, logger: $logger);
        $veche->publish('unknown:1', 'x');
        $veche->flush();
        self::assertCount(1, $logger->lines);
        self::assertStringStartsWith('error ', $logger->lines[0]);
        self::assertStringContainsString('unknown channel', $logger->lines[0]);
    }
}
