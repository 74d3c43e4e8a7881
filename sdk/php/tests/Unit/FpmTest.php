<?php

declare(strict_types=1);

namespace Veche\Tests\Unit;

use PHPUnit\Framework\TestCase;
use Veche\Tests\Support\Fpm;
use Veche\Tests\Support\RuntimeVectors;
use Veche\Worker\Frame;
use Veche\Worker\FrameDecoder;

/**
 * An application under php-fpm, with requests like those of Veche: one event per request.
 */
final class FpmTest extends TestCase
{
    private const APP = <<<'PHP'
        $app = Veche\App::create();
        $app->start(fn () => $app->log('started for ' . ($app->options()['site'] ?? 'nothing')));
        $app->open(fn (Veche\Connection $conn) => $conn->identify('ann'));
        $app->message(function (Veche\Connection $conn, string $data) use ($app) {
            match ($data) {
                'print' => print("printed\n"),
                'sleep' => Veche\sleep(0.05),
                'exit' => exit('leaving'),
                'memory' => str_repeat('x', 1 << 30),
                'throw' => throw new RuntimeException('not today'),
                'call' => $conn->isOpen(),
                'mysql' => $app->mysql('shop')->value('SELECT 1'),
                'redis' => $app->redis('cache')->call('GET', 'a'),
                'http' => $app->http()->get('http://localhost/'),
                'session' => session_start(),
                'api' => $app->client()->presenceStats('room:1'),
                default => null,
            };
            $conn->send($data === 'session' ? session_id() : $data);
        });
        $app->request(fn (Veche\Request $request) => Veche\Response::stream(['a', 'b'], 201));
        $app->stop(fn () => $app->log('stopped'));
        $app->run();
        PHP;

    private static ?Fpm $fpm;

    public static function setUpBeforeClass(): void
    {
        self::$fpm = Fpm::start();
        $require = 'require ' . var_export(dirname(__DIR__) . '/bootstrap.php', true) . ';';
        $kind = 'putenv(' . var_export('VECHE_SDK=' . getenv('VECHE_SDK'), true) . ');';
        if (self::$fpm !== null) {
            file_put_contents(self::$fpm->folder . '/app.php', "<?php $kind $require\n" . self::APP);
        }
    }

    public static function tearDownAfterClass(): void
    {
        self::$fpm?->stop();
    }

    public function testAnswersAMessageBetweenStartAndStop(): void
    {
        [$status, $frames] = $this->message('hello');
        self::assertSame(200, $status);
        [$answer] = $frames;
        self::assertSame(['answer', 4], [$answer->head['type'], $answer->head['id']]);
        self::assertSame(
            [
                ['effect' => 'log', 'level' => 'info', 'text' => 'started for example.com'],
                ['effect' => 'send', 'data' => 0],
                ['effect' => 'log', 'level' => 'info', 'text' => 'stopped'],
            ],
            $answer->head['effects'],
        );
        self::assertSame('hello', $answer->part(0));
    }

    public function testBytesTravelAsTheyAre(): void
    {
        $data = random_bytes(300000);
        [, [$answer]] = $this->message($data);
        self::assertSame($data, $answer->part(0));
    }

    public function testAnOpenIsAnswered(): void
    {
        [, [$answer]] = $this->ask(RuntimeVectors::wire(RuntimeVectors::read('events')['open']));
        self::assertSame(['user' => 'ann'], $answer->head['reply']);
    }

    public function testAResponseInPartsComesAtOnce(): void
    {
        [, [$answer]] = $this->ask(RuntimeVectors::wire(RuntimeVectors::read('events')['request']));
        $effects = array_column($answer->head['effects'], 'effect');
        self::assertSame(['log', 'begin', 'part', 'part', 'end', 'log'], $effects);
        self::assertSame(['a', 'b'], [$answer->part(0), $answer->part(1)]);
    }

    public function testWhatIsPrintedGoesToTheLog(): void
    {
        [$status, [$answer], $log] = $this->message('print');
        self::assertSame([200, 'print'], [$status, $answer->part(0)]);
        self::assertStringContainsString('printed', $log);
    }

    public function testTheSessionOfTheSiteIsFound(): void
    {
        [, [$answer]] = $this->message('session', ['HTTP_COOKIE' => 'a=1; PHPSESSID=abcdef0123456789abcdef']);
        self::assertSame('abcdef0123456789abcdef', $answer->part(0));
    }

    public function testAHandlerMaySleep(): void
    {
        [, [$answer]] = $this->message('sleep');
        self::assertSame('sleep', $answer->part(0));
    }

    /**
     * @testWith ["exit", "by exit or die"]
     *           ["memory", "Allowed memory size"]
     *           ["throw", "RuntimeException: not today in "]
     *           ["call", "connection: not possible under FastCGI: this call needs runtime"]
     *           ["mysql", "mysql: not possible under FastCGI: the pools of Veche need runtime = \"php\""]
     *           ["redis", "redis: not possible under FastCGI: the pools of Veche need runtime = \"php\""]
     *           ["http", "http: not possible under FastCGI: the pools of Veche need runtime = \"php\""]
     */
    public function testAFailureIsAnAnswer(string $data, string $why): void
    {
        [$status, $frames] = $this->message($data);
        self::assertSame(200, $status);
        self::assertSame(4, $frames[0]->head['id']);
        self::assertStringContainsString($why, $frames[0]->head['failed']);
    }

    public function testCallsOfTheApiGoByHttp(): void
    {
        $listener = stream_socket_server('tcp://127.0.0.1:0');
        $address = stream_socket_get_name($listener, false);
        [, [$answer]] = $this->message('api', ['VECHE_API_URL' => "http://$address", 'VECHE_API_KEY' => 'a key']);
        self::assertStringContainsString('an API key must consist of', $answer->head['failed']);
        fclose($listener);
        [, [$answer]] = $this->message('api', ['VECHE_API_URL' => "http://$address", 'VECHE_API_KEY' => 'key']);
        self::assertStringContainsString('NetworkException', $answer->head['failed']);
        [, [$answer]] = $this->message('api');
        self::assertStringContainsString('FastCGI: [[app]] needs api_url and', $answer->head['failed']);
    }

    public function testWhatHasNoHandler(): void
    {
        $events = RuntimeVectors::read('events');
        [, [$answer]] = $this->ask(RuntimeVectors::wire($events['close']));
        self::assertArrayNotHasKey('failed', $answer->head);
        [, [$answer]] = $this->ask(RuntimeVectors::wire($events['subscribe']));
        self::assertStringContainsString('no handler of "subscribe"', $answer->head['failed']);
    }

    public function testAnotherVersionAndRubbishAreRefused(): void
    {
        self::assertSame(501, $this->ask('', ['VECHE_PROTOCOL' => '2'])[0]);
        self::assertSame(400, $this->ask(str_repeat('x', 100))[0]);
    }

    public function testARequestOfAWebServerIsNoEvent(): void
    {
        $fpm = self::$fpm ?? self::markTestSkipped('php-fpm is not installed');
        [, $body] = $fpm->ask("$fpm->folder/app.php", ['HTTP_VECHE_PROTOCOL' => '1'], '');
        self::assertStringContainsString('only Veche can start this program', $body);
    }

    /**
     * @param array<string, string> $params
     * @return array{int, list<Frame>, string}
     */
    private function message(string $data, array $params = []): array
    {
        $head = ['type' => 'event', 'id' => 4, 'event' => 'message', 'connection' => '0.3.1', 'data' => 0];
        return $this->ask(Frame::encode($head, [$data], 1 << 20, 16 << 20), $params);
    }

    /**
     * @param array<string, string> $params
     * @return array{int, list<Frame>, string}
     */
    private function ask(string $frame, array $params = []): array
    {
        $fpm = self::$fpm ?? self::markTestSkipped('php-fpm is not installed');
        $params += ['VECHE_PROTOCOL' => '1', 'VECHE_OPTIONS' => '{"site":"example.com"}'];
        [$status, $body, $log] = $fpm->ask("$fpm->folder/app.php", $params, $frame);
        $decoder = new FrameDecoder();
        $decoder->feed($status === 200 ? $body : '');
        for ($frames = []; ($one = $decoder->next()) !== null;) {
            $frames[] = $one;
        }
        self::assertFalse($decoder->isWithinFrame());
        return [$status, $frames, $log];
    }
}
