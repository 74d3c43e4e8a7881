<?php

declare(strict_types=1);

namespace Veche\Exception;

use Veche\Fault;

/**
 * The server could not be reached, or the connection broke.
 *
 * `mayHaveRun` is true if the server may have executed the call.
 */
class NetworkException extends VecheException
{
    public function fault(): Fault
    {
        return Fault::Network;
    }

    public function retryable(): bool
    {
        return !$this->mayHaveRun;
    }
}
