<?php

declare(strict_types=1);

namespace Veche\WebSocket;

/**
 * The kind of a frame (RFC 6455, section 5.2).
 *
 * @internal
 */
enum Opcode: int
{
    case Continuation = 0;
    case Text = 1;
    case Binary = 2;
    case Close = 8;
    case Ping = 9;
    case Pong = 10;

    public function isControl(): bool
    {
        return $this->value >= self::Close->value;
    }
}
