<?php

declare(strict_types=1);

namespace Veche\Exception;

use RuntimeException;
use Throwable;
use Veche\Fault;

/**
 * Base class of all exceptions that this package throws.
 *
 * `getCode()` is the error code of Veche's API, the HTTP status where there is no such code, or 0.
 */
abstract class VecheException extends RuntimeException
{
    /**
     * @param bool $mayHaveRun Whether the server may have carried out the call all the same, for example because the
     *     connection broke before the answer came. If false, nothing of the call was done.
     */
    public function __construct(
        string $message,
        int $code = 0,
        public readonly bool $mayHaveRun = false,
        ?Throwable $previous = null,
    ) {
        parent::__construct($message, $code, $previous);
    }

    /**
     * Returns which side has to change something.
     */
    abstract public function fault(): Fault;
}
