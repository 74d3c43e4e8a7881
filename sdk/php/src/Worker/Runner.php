<?php

declare(strict_types=1);

namespace Veche\Worker;

use Veche\Exception\NetworkException;

/**
 * Carries bytes between an {@see Engine} and Veche's descriptor.
 *
 * @internal
 */
final class Runner
{
    private const READ_BYTES = 262144;

    /**
     * @param resource $stream
     */
    public function __construct(private $stream, private readonly Engine $engine)
    {
        stream_set_blocking($stream, false);
        stream_set_read_buffer($stream, 0);
        stream_set_write_buffer($stream, 0);
    }

    /**
     * Runs until Veche has the worker stop, or is gone.
     */
    public function run(): void
    {
        while (true) {
            $this->write($this->engine->takeOutput());
            if ($this->engine->isOver()) {
                return;
            }
            $wakesAt = $this->engine->wakesAt();
            if ($this->await($wakesAt)) {
                $bytes = fread($this->stream, self::READ_BYTES);
                if (($bytes === '' || $bytes === false) && feof($this->stream)) {
                    return;
                }
                $this->engine->receive((string) $bytes);
            }
            if ($wakesAt !== null) {
                $this->engine->wake(self::now());
            }
        }
    }

    public static function now(): float
    {
        return hrtime(true) / 1e9;
    }

    private function await(?float $until): bool
    {
        $left = $until === null ? null : max(0.0, $until - self::now());
        $seconds = $left === null ? null : (int) $left;
        $read = [$this->stream];
        $write = $except = [];
        $microseconds = $left === null ? null : (int) ceil(($left - (int) $left) * 1e6);
        return @stream_select($read, $write, $except, $seconds, $microseconds) === 1;
    }

    private function write(string $bytes): void
    {
        while ($bytes !== '') {
            $written = @fwrite($this->stream, $bytes);
            if ($written === false) {
                throw new NetworkException('Veche is gone', 0, true);
            }
            if ($written === 0) {
                $read = $except = [];
                $write = [$this->stream];
                @stream_select($read, $write, $except, 1);
            }
            $bytes = substr($bytes, $written);
        }
    }
}
