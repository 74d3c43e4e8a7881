<?php

declare(strict_types=1);

namespace Veche\Exception;

use Throwable;

/**
 * The server is starting, stopping, or short of memory, or a database refuses a call that may succeed later, such as
 * after a deadlock. Nothing was done, so the call can be made again.
 */
class UnavailableException extends ServerException
{
    /**
     * @param float|null $retryAfter Seconds after which to try again, if known.
     */
    public function __construct(
        string $message,
        int $code = 0,
        public readonly ?float $retryAfter = null,
        ?Throwable $previous = null,
        ?string $codeName = null,
    ) {
        parent::__construct($message, $code, false, $previous, $codeName);
    }

    public function retryable(): bool
    {
        return true;
    }
}
