<?php

declare(strict_types=1);

namespace Veche\Result;

use Veche\Position;

/**
 * Outcome of a publication.
 */
final class Published
{
    /**
     * @param int|null $handed Connections whose outbox accepted the message. Null if no response was requested, or if
     *     the server does not know the number, as with the engine on Redis. A client may not have read the message yet.
     * @param Position|null $position Position in the channel's history, if the channel has one.
     * @param bool $taken False for a repeated idempotency key and for a version that is not newer.
     * @param string|null $note Explains why no connection was reached.
     * @param int|null $nodes With the engine on Redis: nodes with subscribers of the channel. Null with the engine in
     *     memory, and if the number is unknown, as for several users or channels in one call.
     */
    public function __construct(
        public readonly ?int $handed,
        public readonly ?Position $position = null,
        public readonly bool $taken = true,
        public readonly ?string $note = null,
        public readonly ?int $nodes = null,
    ) {
    }

    /**
     * @internal
     */
    public static function from(Fields $fields): self
    {
        $position = $fields->has('offset') ? new Position($fields->int('offset'), $fields->string('epoch')) : null;
        return new self(
            $fields->optionalInt('handed'),
            $position,
            $fields->bool('taken', true),
            $fields->optionalString('note'),
            $fields->optionalInt('nodes'),
        );
    }
}
