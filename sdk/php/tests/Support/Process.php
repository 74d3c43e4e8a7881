<?php

declare(strict_types=1);

namespace Veche\Tests\Support;

use RuntimeException;

/**
 * A child process with a log file.
 */
final class Process
{
    /** @var resource|null */
    private $process;

    /**
     * @param list<string> $command
     */
    public function __construct(array $command, string $folder, private readonly string $log)
    {
        $streams = [0 => ['file', '/dev/null', 'r'], 1 => ['file', $log, 'a'], 2 => ['file', $log, 'a']];
        $process = proc_open($command, $streams, $pipes, $folder);
        $this->process = is_resource($process) ? $process : throw new RuntimeException("cannot start $command[0]");
    }

    public function isRunning(): bool
    {
        return $this->process !== null && proc_get_status($this->process)['running'];
    }

    public function log(): string
    {
        return (string) file_get_contents($this->log);
    }

    public function signal(int $signal): void
    {
        if ($this->process !== null) {
            proc_terminate($this->process, $signal);
        }
    }

    /**
     * Ends the process: with TERM, then with a second TERM, which makes Veche stop without waiting
     * for clients, and at last with KILL.
     */
    public function stop(): void
    {
        foreach ([[SIGTERM, 0.2], [SIGTERM, 5.0], [SIGKILL, 5.0]] as [$signal, $seconds]) {
            $end = microtime(true) + $seconds;
            if ($this->isRunning()) {
                $this->signal($signal);
            }
            while ($this->isRunning() && microtime(true) < $end) {
                usleep(10000);
            }
        }
        if ($this->process !== null) {
            proc_close($this->process);
            $this->process = null;
        }
    }
}
