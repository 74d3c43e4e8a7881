<?php

declare(strict_types=1);

namespace Veche\Pool;

use Veche\Exception\VecheException;
use Veche\Worker\Engine;
use Veche\Worker\Values;

/**
 * A Redis database over Veche's connections. It needs no extension, and other handlers of the
 * worker run during a command.
 *
 * ```php
 * $cache = $app->redis('cache');
 * $app->message(fn (Veche\Connection $conn) => $conn->send((string) $cache->call('INCR', 'messages')));
 * ```
 */
final class Redis
{
    /**
     * @internal {@see \Veche\App::redis()} makes one.
     */
    public function __construct(private readonly string $database)
    {
    }

    /**
     * Executes a command and returns its result: null, a boolean, a number, a string, or an array
     * of these.
     *
     * Commands that would change a shared connection, such as `SELECT`, `MULTI` and `SUBSCRIBE`, are refused; a script
     * (`EVAL`) is atomic.
     *
     * @throws VecheException
     */
    public function call(string $command, string|int|float ...$arguments): mixed
    {
        $words = Values::encode([$command, ...$arguments]);
        $result = Engine::current()->call('redis', ['database' => $this->database], $words);
        return Values::decode((string) $result->part(0))[0] ?? null;
    }
}
