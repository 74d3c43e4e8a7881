<?php

declare(strict_types=1);

namespace Veche\Exception;

use Veche\Fault;

/**
 * The call is wrong: an argument out of range, an unknown channel, a feature that the namespace does not have.
 *
 * Nothing was done. The code is one of {@see \Veche\ErrorCode}, or 0 if the call was refused before it was sent.
 */
class CallerException extends VecheException
{
    public function fault(): Fault
    {
        return Fault::Caller;
    }
}
