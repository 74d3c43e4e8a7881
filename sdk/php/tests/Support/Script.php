<?php

declare(strict_types=1);

namespace Veche\Tests\Support;

use Closure;
use RuntimeException;

/**
 * A peer in a separate process that behaves as the test says: a server that closes early, sends garbage or is slow.
 *
 * The script appends lines to a journal, which the test can read.
 */
final class Script
{
    public readonly int $port;
    private int $process;
    private string $journal;

    /**
     * @param Closure(resource, Closure(string): void, int): void $serve Gets each connection, a function that appends
     *     a line to the journal, and the number of the connection.
     */
    public function __construct(Closure $serve)
    {
        $listener = stream_socket_server('tcp://127.0.0.1:0');
        $this->port = Ports::of($listener);
        $this->journal = (string) tempnam(sys_get_temp_dir(), 'veche-php-');
        $process = pcntl_fork();
        if ($process === -1) {
            throw new RuntimeException('cannot fork');
        }
        if ($process === 0) {
            $note = function (string $line): void {
                file_put_contents($this->journal, "$line\n", FILE_APPEND);
            };
            for ($number = 1; ($peer = @stream_socket_accept($listener, 60)) !== false; $number++) {
                $serve($peer, $note, $number);
                @fclose($peer);
            }
            // This process is a copy of PHPUnit, whose destructors and report must not run here.
            posix_kill(posix_getpid(), SIGKILL);
        }
        fclose($listener);
        $this->process = $process;
    }

    /**
     * @return list<string>
     */
    public function journal(): array
    {
        return array_values(array_filter(explode("\n", (string) file_get_contents($this->journal))));
    }

    public function stop(): void
    {
        posix_kill($this->process, SIGKILL);
        pcntl_waitpid($this->process, $status);
        @unlink($this->journal);
    }

    /**
     * Reads one HTTP request with its body; an empty string at the end of the connection.
     *
     * @param resource $peer
     */
    public static function request($peer): string
    {
        $head = '';
        while (!str_ends_with($head, "\r\n\r\n")) {
            $line = fgets($peer);
            if ($line === false) {
                return '';
            }
            $head .= $line;
        }
        $length = preg_match('/^content-length: (\d+)/mi', $head, $found) === 1 ? (int) $found[1] : 0;
        $body = '';
        while (strlen($body) < $length && !feof($peer)) {
            $body .= fread($peer, $length - strlen($body));
        }
        return $head . $body;
    }
}
