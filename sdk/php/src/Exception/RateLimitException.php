<?php

declare(strict_types=1);

namespace Veche\Exception;

use Throwable;

/**
 * The key publishes more than `publish_rate` allows, or too many wrong keys have come from the caller's address.
 * Nothing was done.
 */
class RateLimitException extends CallerException
{
    /**
     * @param float|null $retryAfter Seconds after which the server accepts such calls again, if known.
     */
    public function __construct(
        string $message,
        int $code = 0,
        public readonly ?float $retryAfter = null,
        ?Throwable $previous = null,
    ) {
        parent::__construct($message, $code, false, $previous);
    }

    public function retryable(): bool
    {
        return true;
    }
}
