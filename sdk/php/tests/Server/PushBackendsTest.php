<?php

declare(strict_types=1);

namespace Veche\Tests\Server;

use PHPUnit\Framework\TestCase;
use Veche\Tests\Support\Ports;
use Veche\Tests\Support\Process;
use Veche\Tests\Support\Server;
use Veche\WebSocket\Client;

/**
 * The programs of examples/push-backends/php, against a server with that example's configuration.
 */
final class PushBackendsTest extends TestCase
{
    private const EXAMPLE = __DIR__ . '/../../../../examples/push-backends';

    private static Server $server;

    public static function setUpBeforeClass(): void
    {
        $config = strtr((string) file_get_contents(self::EXAMPLE . '/veche.toml'), [
            '127.0.0.1:8080' => '127.0.0.1:{port}',
            '127.0.0.1:8081' => '127.0.0.1:{internal_port}',
            '127.0.0.1:1234' => '127.0.0.1:{push_port}',
        ]);
        $files = [];
        foreach (['hoa.lua', 'ratchet.lua', 'swoole.lua'] as $name) {
            $files[$name] = (string) file_get_contents(self::EXAMPLE . "/$name");
        }
        self::$server = new Server($config, $files);
    }

    public static function tearDownAfterClass(): void
    {
        self::$server->stop();
    }

    /**
     * @testWith ["workerman.php", ["tester01", "test"], "handed to 1", "test"]
     *           ["hoa.php", ["tester01", "111111"], "sent", "111111"]
     *           ["ratchet.php", ["tester01", "update_data"], "sent", "New data!"]
     * @param list<string> $arguments
     */
    public function testPushesToTheUser(string $program, array $arguments, string $output, string $arrives): void
    {
        $user = Client::connect(self::$server->url('/?user=tester01'));
        self::assertSame([0, $output], self::execute($program, $arguments));
        self::assertSame($arrives, $user->receive(5)->data);
        $user->close();
    }

    public function testSwoole(): void
    {
        $user = Client::connect(self::$server->url('/swoole'));
        $user->send('tester01');
        $frame = '{"command":"update_data","user":"tester01"}';
        // The server does not confirm the user name, so the first push may arrive before the name does.
        for ($i = 0, $message = null; $i < 10 && $message === null; $i++) {
            self::assertSame([0, 'sent'], self::execute('swoole.php', ['tester01']));
            $message = $user->tryReceive(0.1);
        }
        self::assertSame($frame, $message?->data);
        $user->close();
    }

    public function testTheUsersEnd(): void
    {
        $log = self::$server->folder . '/user.log';
        $command = ['env', ...self::environment(), PHP_BINARY, 'user.php', 'tester02', '/'];
        $user = new Process($command, self::EXAMPLE . '/php', $log);
        for ($i = 0; $i < 100 && self::execute('workerman.php', ['tester02', 'hello'])[1] !== 'handed to 1'; $i++) {
            usleep(20000);
        }
        for ($i = 0; $i < 100 && $user->log() === ''; $i++) {
            usleep(20000);
        }
        $user->stop();
        self::assertSame("hello\n", $user->log());
    }

    public function testWhatIsWrongIsSaid(): void
    {
        [$status, $output] = self::execute('ratchet.php', ['tester01', 'nonsense']);
        self::assertSame(0, $status);
        self::assertStringContainsString('no such command', $output);
        self::assertSame([0, 'handed to 0'], self::execute('workerman.php', ['nobody', 'x']));
        [$status, $output] = self::execute('workerman.php', ['', 'x']);
        self::assertSame([1, 'user is empty'], [$status, $output]);
        self::assertSame(2, self::execute('hoa.php', [])[0]);
        [$port] = Ports::free(1);
        $nowhere = [
            'workerman.php' => "VECHE_PUSH=127.0.0.1:$port",
            'hoa.php' => "VECHE_INTERNAL=ws://127.0.0.1:$port",
        ];
        foreach ($nowhere as $program => $address) {
            [$status, $output] = self::execute($program, ['tester01', 'x'], [$address]);
            self::assertSame(1, $status);
            self::assertStringContainsString('cannot connect', $output);
        }
    }

    /**
     * @param list<string> $arguments
     * @param list<string> $more Variables of the environment.
     * @return array{int, string} The exit status and all of the output.
     */
    private static function execute(string $program, array $arguments, array $more = []): array
    {
        $file = self::EXAMPLE . "/php/$program";
        $command = ['env', ...self::environment(), ...$more, PHP_BINARY, $file, ...$arguments];
        exec(implode(' ', array_map(escapeshellarg(...), $command)) . ' 2>&1', $lines, $status);
        return [$status, implode("\n", $lines)];
    }

    /**
     * @return list<string>
     */
    private static function environment(): array
    {
        return [
            'VECHE_PUBLIC=ws://127.0.0.1:' . self::$server->port,
            'VECHE_INTERNAL=ws://127.0.0.1:' . self::$server->internalPort,
            'VECHE_PUSH=' . self::$server->lines(),
        ];
    }
}
