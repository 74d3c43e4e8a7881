<?php

declare(strict_types=1);

namespace Veche\Exception;

use Veche\Fault;

/**
 * The server failed, or answered with something that this package does not understand.
 */
class ServerException extends VecheException
{
    public function fault(): Fault
    {
        return Fault::Server;
    }
}
