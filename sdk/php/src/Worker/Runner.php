<?php

declare(strict_types=1);

namespace Veche\Worker;

use Veche\Exception\NetworkException;

/**
 * Transfers bytes between an {@see Engine} and Veche's descriptor.
 *
 * @internal
 */
final class Runner
{
    private const READ_BYTES = 262144;
    private const FATAL = E_ERROR | E_CORE_ERROR | E_COMPILE_ERROR | E_USER_ERROR | E_RECOVERABLE_ERROR;

    /** The runner of this process while it runs. */
    private static ?self $current = null;
    private static bool $isWatching = false;

    /**
     * @param resource $stream
     */
    public function __construct(private $stream, private readonly Engine $engine)
    {
        // A blocking read returns as soon as bytes arrive. A write may block, since Veche never
        // stops reading.
        stream_set_blocking($stream, true);
        // With PHP's default_socket_timeout a read would end early, which an idle worker would take
        // for the end of the stream.
        stream_set_timeout($stream, -1);
        stream_set_read_buffer($stream, 0);
        stream_set_write_buffer($stream, 0);
    }

    /**
     * Runs until Veche stops the worker or ends. If a handler ends the process, its event is
     * answered first.
     */
    public function run(): void
    {
        self::watchEnd();
        self::$current = $this;
        $this->loop();
        self::$current = null;
    }

    /**
     * Makes the runner answer the current events if the process ends during a handler. PHP calls shutdown functions in
     * the order in which they were registered, so this is called before the application registers its own.
     */
    public static function watchEnd(): void
    {
        if (!self::$isWatching) {
            self::$isWatching = true;
            register_shutdown_function(static fn () => self::$current?->interrupted());
        }
    }

    private function loop(): void
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

    /**
     * Returns the reason why the process ends during a handler.
     */
    public static function endOfProcess(): string
    {
        $last = error_get_last();
        return $last !== null && ($last['type'] & self::FATAL) !== 0
            ? "{$last['message']} in {$last['file']}:{$last['line']}"
            : 'a handler has ended the process by exit or die';
    }

    private function interrupted(): void
    {
        $this->engine->fail(self::endOfProcess());
        @fwrite($this->stream, $this->engine->takeOutput());
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
                throw new NetworkException('Veche closed the connection to this worker', 0, true);
            }
            $bytes = substr($bytes, $written);
        }
    }
}
