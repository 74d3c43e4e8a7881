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
        // A read returns what there is. Veche never stops reading, so a write may block.
        stream_set_blocking($stream, true);
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
            if ($wakesAt === null || $this->await($wakesAt)) {
                $bytes = fread($this->stream, self::READ_BYTES);
                if ($bytes === '' || $bytes === false) {
                    return;
                }
                $this->engine->receive($bytes);
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

    private function await(float $until): bool
    {
        $left = max(0.0, $until - self::now());
        $seconds = (int) $left;
        $read = [$this->stream];
        $write = $except = [];
        return @stream_select($read, $write, $except, $seconds, (int) ceil(($left - $seconds) * 1e6)) === 1;
    }

    private function write(string $bytes): void
    {
        while ($bytes !== '') {
            $written = @fwrite($this->stream, $bytes);
            if ($written === false || $written === 0) {
                throw new NetworkException('Veche is gone', 0, true);
            }
            $bytes = substr($bytes, $written);
        }
    }
}
