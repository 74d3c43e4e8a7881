<?php

declare(strict_types=1);

namespace Veche\Tests\Unit;

use PHPUnit\Framework\TestCase;
use Veche\Worker\Frame;
use Veche\Worker\FrameDecoder;

/**
 * A worker in a separate process; the test is the server at the other end of its descriptor 3.
 */
final class WorkerProcessTest extends TestCase
{
    private const APP = <<<'PHP'
        $app = Veche\App::create(100);
        $app->start(function () { echo "started\n"; });
        $app->message(function (Veche\Connection $conn, string $data) use ($app) {
            echo "noise on standard output\n";
            if ($data === 'sleep') { Veche\sleep(0.3); }
            if ($data === 'fatal') { str_repeat('x', 1 << 30); }
            if ($data === 'exit') { exit(3); }
            if ($data === 'options') { $data = json_encode($app->options()); }
            $conn->send($data);
        });
        $app->run();
        PHP;

    /** @var resource */
    private $socket;
    /** @var resource */
    private $process;
    private FrameDecoder $decoder;
    private string $log;

    protected function setUp(): void
    {
        [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $this->log = (string) tempnam(sys_get_temp_dir(), 'veche-php-');
        $log = ['file', $this->log, 'a'];
        $code = 'require ' . var_export(dirname(__DIR__) . '/bootstrap.php', true) . ';' . self::APP;
        $this->process = proc_open(
            [
                PHP_BINARY, '-d', 'memory_limit=32M', '-d', 'display_errors=stderr', '-d', 'default_socket_timeout=1',
                '-r', $code,
            ],
            [0 => ['file', '/dev/null', 'r'], 1 => $log, 2 => $log, 3 => $theirs],
            $pipes,
            null,
            ['VECHE_FD' => '3', 'VECHE_SDK' => (string) getenv('VECHE_SDK')] + getenv(),
        );
        fclose($theirs);
        stream_set_timeout($ours, 10);
        $this->socket = $ours;
        $this->decoder = new FrameDecoder();
        self::assertSame('hello', $this->next()->head['type']);
        $this->give([
            'type' => 'welcome', 'version' => 1, 'codec' => 'json', 'options' => ['site' => 'example.com'],
        ]);
        $this->event(1, 'start');
        self::assertSame(1, $this->next()->head['id']);
    }

    protected function tearDown(): void
    {
        proc_terminate($this->process, SIGKILL);
        proc_close($this->process);
        unlink($this->log);
    }

    public function testEchoesAndStops(): void
    {
        for ($id = 2; $id < 100; $id++) {
            $this->event($id, 'message', str_repeat((string) $id, $id * 100));
            $answer = $this->next();
            self::assertSame([$id, str_repeat((string) $id, $id * 100)], [$answer->head['id'], $answer->part(0)]);
        }
        $this->event(100, 'stop');
        self::assertSame(100, $this->next()->head['id']);
        self::assertSame('', $this->read());
        self::assertSame(0, $this->exitCode());
        self::assertStringContainsString("started\nnoise on standard output\n", (string) file_get_contents($this->log));
    }

    public function testAnIdleWorkerStaysForLongerThanPhpsTimeoutOfSockets(): void
    {
        usleep(1_500_000);
        $this->event(2, 'message', 'hello');
        self::assertSame('hello', $this->next()->part(0));
    }

    public function testOneProcessSleepsForAHundredConnectionsAtOnce(): void
    {
        $started = microtime(true);
        for ($id = 2; $id < 102; $id++) {
            $this->event($id, 'message', 'sleep', "0.$id.1");
        }
        $answered = [];
        while (count($answered) < 100) {
            $answered[] = $this->next()->head['id'];
        }
        self::assertLessThan(1.5, microtime(true) - $started);
        self::assertSame(range(2, 101), $answered);
    }

    public function testAFatalErrorIsSaidBeforeTheEnd(): void
    {
        $this->event(2, 'message', 'fatal');
        $failed = $this->next();
        self::assertSame(2, $failed->head['id']);
        self::assertStringContainsString('Allowed memory size', $failed->head['failed']);
        self::assertSame('', $this->read());
        self::assertSame(255, $this->exitCode());
        self::assertStringContainsString('Allowed memory size', (string) file_get_contents($this->log));
    }

    public function testAnExitInAHandlerIsSaidToo(): void
    {
        $this->event(2, 'message', 'sleep', '0.2.1');
        $this->event(3, 'message', 'exit');
        $failed = [$this->next()->head, $this->next()->head];
        self::assertSame([2, 3], array_column($failed, 'id'));
        self::assertSame([true, true], array_column($failed, 'last'));
        self::assertStringContainsString('by exit or die', $failed[1]['failed']);
        self::assertSame('', $this->read());
        self::assertSame(3, $this->exitCode());
    }

    public function testOptionsAreThoseOfTheConfiguration(): void
    {
        $this->event(2, 'message', 'options');
        self::assertSame('{"site":"example.com"}', $this->next()->part(0));
    }

    public function testEndsWithVeche(): void
    {
        // The worker has inherited this end too, so closing it here would not end the connection.
        stream_socket_shutdown($this->socket, STREAM_SHUT_RDWR);
        self::assertSame(0, $this->exitCode());
    }

    private function event(int $id, string $event, ?string $data = null, string $connection = '0.1.1'): void
    {
        $head = ['type' => 'event', 'id' => $id, 'event' => $event];
        $more = ['connection' => $connection, 'data_kind' => 'text', 'data' => 0];
        $this->give($data === null ? $head : $head + $more, (string) $data);
    }

    /**
     * @param array<string, mixed> $head
     */
    private function give(array $head, string $payload = ''): void
    {
        fwrite($this->socket, Frame::encode($head, [$payload], 1 << 20, 16 << 20));
    }

    private function next(): Frame
    {
        while (($frame = $this->decoder->next()) === null) {
            $bytes = $this->read();
            self::assertNotSame('', $bytes, 'the worker has ended, or is silent: ' . file_get_contents($this->log));
            $this->decoder->feed($bytes);
        }
        return $frame;
    }

    private function read(): string
    {
        return (string) fread($this->socket, 65536);
    }

    private function exitCode(): int
    {
        for ($i = 0; $i < 500; $i++) {
            $status = proc_get_status($this->process);
            if (!$status['running']) {
                return $status['exitcode'];
            }
            usleep(10000);
        }
        self::fail('it does not end');
    }
}
