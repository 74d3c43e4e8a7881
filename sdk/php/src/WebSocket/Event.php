<?php

declare(strict_types=1);

namespace Veche\WebSocket;

/**
 * An item found by a {@see Receiver}: a message, or a control frame.
 *
 * @internal
 */
final class Event
{
    /**
     * @param Opcode $kind Text and Binary for messages; never Continuation.
     * @param string $data Of a Close: the reason.
     * @param int $code Of a Close: its code, or 1005 if it has none.
     */
    public function __construct(
        public readonly Opcode $kind,
        public readonly string $data,
        public readonly int $code = 0,
    ) {
    }
}
