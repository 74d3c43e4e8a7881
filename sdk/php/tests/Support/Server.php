<?php

declare(strict_types=1);

namespace Veche\Tests\Support;

use RuntimeException;

/**
 * A real Veche with a configuration in a scratch folder and on free ports.
 *
 * The binary is $VECHE_BIN, or the newest of the builds in the target folder.
 */
final class Server
{
    public readonly int $port;
    public readonly int $internalPort;
    public readonly int $pushPort;
    public readonly int $extraPort;
    public readonly string $folder;
    private ?Process $process = null;

    /**
     * @param string $config TOML, in which {port}, {internal_port}, {push_port} and {extra_port} are replaced.
     * @param array<string, string> $files Further files of the folder.
     */
    public function __construct(string $config, array $files = [])
    {
        [$this->port, $this->internalPort, $this->pushPort, $this->extraPort] = Ports::free(4);
        $this->folder = sys_get_temp_dir() . '/veche-php-' . getmypid() . '-' . bin2hex(random_bytes(4));
        mkdir($this->folder);
        $config = strtr($config, [
            '{port}' => (string) $this->port,
            '{internal_port}' => (string) $this->internalPort,
            '{push_port}' => (string) $this->pushPort,
            '{extra_port}' => (string) $this->extraPort,
        ]);
        foreach (['veche.toml' => $config] + $files as $name => $text) {
            file_put_contents("$this->folder/$name", $text);
        }
        $this->start();
    }

    /**
     * Starts the process after a pause, and returns at once.
     */
    public function begin(float $pause = 0.0): void
    {
        $command = ['sh', '-c', 'sleep "$1"; exec "$0" serve -c veche.toml', self::binary(), (string) $pause];
        $this->process = new Process($command, $this->folder, "$this->folder/log");
    }

    /**
     * Starts the server and waits until it answers.
     */
    public function start(): void
    {
        $this->begin();
        $end = microtime(true) + 10;
        while (microtime(true) < $end && $this->process->isRunning()) {
            $answer = @file_get_contents("http://127.0.0.1:$this->internalPort/health");
            if (is_string($answer)) {
                return;
            }
            usleep(20000);
        }
        $log = $this->process->log();
        $this->stop();
        throw new RuntimeException("veche did not start:\n$log");
    }

    /**
     * Stops the server but keeps its folder, so that it can be started again.
     */
    public function halt(): void
    {
        $this->process?->stop();
        $this->process = null;
        // With io_uring the kernel closes sockets some time after the end of the process.
        $end = microtime(true) + 3;
        while (microtime(true) < $end && ($socket = @stream_socket_client("tcp://127.0.0.1:$this->internalPort"))) {
            fclose($socket);
            usleep(20000);
        }
    }

    public function stop(): void
    {
        $this->halt();
        foreach (glob("$this->folder/*") ?: [] as $file) {
            is_dir($file) || unlink($file);
        }
        @rmdir($this->folder);
    }

    public function api(): string
    {
        return "http://127.0.0.1:$this->internalPort";
    }

    public function lines(): string
    {
        return "127.0.0.1:$this->pushPort";
    }

    public function url(string $path): string
    {
        return "ws://127.0.0.1:$this->port$path";
    }

    public static function binary(): string
    {
        $given = getenv('VECHE_BIN');
        if (is_string($given) && $given !== '') {
            return $given;
        }
        $root = dirname(__DIR__, 4);
        $target = getenv('CARGO_TARGET_DIR') ?: "$root/target";
        $built = array_filter(["$target/release/veche", "$target/debug/veche"], is_file(...));
        usort($built, static fn (string $a, string $b): int => filemtime($b) <=> filemtime($a));
        return $built[0] ?? throw new RuntimeException('no veche binary: make build, or set VECHE_BIN');
    }
}
