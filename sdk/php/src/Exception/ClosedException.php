<?php

declare(strict_types=1);

namespace Veche\Exception;

use Veche\Fault;

/**
 * A WebSocket connection has ended. `getCode()` is the close code, `reason` the text that the peer
 * sent with it.
 *
 * The code is 1006 where the connection ended without a Close frame, and 1005 where the frame had no code.
 */
class ClosedException extends VecheException
{
    public function __construct(int $code, public readonly string $reason = '')
    {
        $words = $reason === '' ? '' : ": $reason";
        parent::__construct("the WebSocket was closed with code $code$words", $code, true);
    }

    public function fault(): Fault
    {
        return match (true) {
            $this->code === 1006 => Fault::Network,
            in_array($this->code, [1000, 1001, 1005, 1011, 1012, 1013, 1014], true) => Fault::Server,
            default => Fault::Caller,
        };
    }
}
