<?php

declare(strict_types=1);

namespace Veche\WebSocket;

/**
 * A message: text, or bytes.
 */
final class Message
{
    public function __construct(public readonly string $data, public readonly bool $isBinary = false)
    {
    }
}
