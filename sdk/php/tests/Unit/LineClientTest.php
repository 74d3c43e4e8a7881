<?php

declare(strict_types=1);

namespace Veche\Tests\Unit;

use Closure;
use PHPUnit\Framework\TestCase;
use Veche\Exception\CallerException;
use Veche\Exception\NetworkException;
use Veche\Exception\ServerException;
use Veche\Exception\TimeoutException;
use Veche\LineClient;
use Veche\Tests\Support\Ports;
use Veche\Tests\Support\Script;

final class LineClientTest extends TestCase
{
    private ?Script $script = null;

    protected function tearDown(): void
    {
        $this->script?->stop();
        $this->script = null;
    }

    public function testWritesALineAndWaitsForItsAnswer(): void
    {
        $veche = $this->serve(static function ($peer, Closure $note, int $number): void {
            while (($line = fgets($peer)) !== false) {
                $note("$number $line");
                $id = json_decode($line)->id;
                fwrite($peer, "{\"id\":$id,\"result\":{\"handed\":$id}}\n");
            }
        });
        self::assertSame(1, $veche->push('ann', "two\nlines")->handed);
        self::assertSame(2, $veche->publish('c', ['a' => 1])->handed);
        self::assertSame(3, $veche->broadcast(['c', 'd'], 1)->handed);
        self::assertSame([
            '1 {"user":"ann","data":"two\nlines","id":1}',
            '1 {"channel":"c","data":{"a":1},"id":2}',
            '1 {"channels":["c","d"],"data":1,"id":3}',
        ], $this->script?->journal());
    }

    public function testAnAnswerMayHaveNoNumberOfReceivers(): void
    {
        $veche = $this->serve(static function ($peer): void {
            while (($line = fgets($peer)) !== false) {
                $request = json_decode($line);
                $result = isset($request->channel) ? '{"nodes":2}' : '{}';
                fwrite($peer, "{\"id\":$request->id,\"result\":$result}\n");
            }
        });
        $one = $veche->publish('c', 1);
        self::assertSame([null, 2], [$one->handed, $one->nodes]);
        foreach ([$veche->push(['ann', 'bob'], 1), $veche->broadcast(['c', 'd'], 1)] as $several) {
            self::assertSame([null, null, true], [$several->handed, $several->nodes, $several->taken]);
        }
        $veche->flush();
    }

    public function testConnectsAgainAfterTheServerHasClosed(): void
    {
        $veche = $this->serve(static function ($peer, Closure $note, int $number): void {
            $id = json_decode((string) fgets($peer))->id;
            $note("$number $id");
            fwrite($peer, "{\"id\":$id,\"result\":{\"handed\":0}}\n");
        });
        for ($i = 0; $i < 3; $i++) {
            $veche->push('ann', 'x');
            usleep(50000);
        }
        self::assertSame(['1 1', '2 2', '3 3'], $this->script?->journal());
    }

    public function testAnAnswerThatDoesNotComeIsATimeout(): void
    {
        $veche = $this->serve(static function ($peer): void {
            fgets($peer);
            sleep(30);
        }, timeout: 0.2);
        $this->expectException(TimeoutException::class);
        $veche->push('ann', 'x');
    }

    public function testAnswersToOtherLinesDoNotHoldTheCallForEver(): void
    {
        $veche = $this->serve(static function ($peer): void {
            fgets($peer);
            while (@fwrite($peer, str_repeat("{\"id\":99,\"result\":{\"handed\":0}}\n", 1000))) {
                continue;
            }
        }, timeout: 0.3);
        $this->expectException(TimeoutException::class);
        $veche->push('ann', 'x');
    }

    public function testAnEndBeforeTheAnswerMayHaveRun(): void
    {
        $veche = $this->serve(static function ($peer): void {
            fgets($peer);
        });
        try {
            $veche->push('ann', 'x');
            self::fail('there was no answer');
        } catch (NetworkException $error) {
            self::assertTrue($error->mayHaveRun);
        }
    }

    public function testNoServerMeansThatNothingWasSent(): void
    {
        [$port] = Ports::free(1);
        try {
            (new LineClient("127.0.0.1:$port"))->push('ann', 'x');
            self::fail('nobody listens');
        } catch (NetworkException $error) {
            self::assertFalse($error->mayHaveRun);
        }
    }

    public function testAnotherProtocolIsNamed(): void
    {
        $veche = $this->serve(static function ($peer): void {
            fgets($peer);
            fwrite($peer, "HTTP/1.1 400 Bad Request\r\n\r\n");
        });
        $this->expectException(ServerException::class);
        $this->expectExceptionMessage('is this a push listener?');
        $veche->push('ann', 'x');
    }

    /**
     * @testWith ["1234"]
     *           ["127.0.0.1"]
     *           ["http://127.0.0.1:1234"]
     */
    public function testBadAddressesAreNamed(string $address): void
    {
        $this->expectException(CallerException::class);
        $this->expectExceptionMessage('bad address');
        new LineClient($address);
    }

    public function testALineThatIsTooLongIsNotSent(): void
    {
        [$port] = Ports::free(1);
        $this->expectException(CallerException::class);
        (new LineClient("127.0.0.1:$port"))->push('ann', str_repeat('x', 1 << 20));
    }

    private function serve(Closure $serve, float $timeout = 5.0): LineClient
    {
        $this->script = new Script($serve);
        return new LineClient("127.0.0.1:{$this->script->port}", timeout: $timeout);
    }
}
