<?php

declare(strict_types=1);

namespace Veche\Exception;

use RuntimeException;
use Throwable;
use Veche\Fault;

/**
 * Base class of all exceptions that this package throws.
 *
 * `getCode()` is the error code of Veche's API or of MySQL, the HTTP status where there is no such code, or 0.
 */
abstract class VecheException extends RuntimeException
{
    /**
     * @param bool $mayHaveRun Whether the server may have executed the call, for example because the
     *     connection broke before the answer came. If false, nothing of the call was done.
     * @param string|null $codeName The server's error code if it is a name, such as `WRONGTYPE` of
     *     Redis.
     */
    public function __construct(
        string $message,
        int $code = 0,
        public readonly bool $mayHaveRun = false,
        ?Throwable $previous = null,
        public readonly ?string $codeName = null,
    ) {
        parent::__construct($message, $code, $previous);
    }

    /**
     * Returns which side has to change something.
     */
    abstract public function fault(): Fault;

    /**
     * Returns whether nothing of the call was done and the same call may succeed later, so that trying again is safe.
     */
    public function retryable(): bool
    {
        return false;
    }
}
