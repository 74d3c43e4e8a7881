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
     * @param int|null $handed Connections whose outbox accepted the message; null if no response was requested. A
     *     client may not have read it yet.
     * @param Position|null $position Position in the channel's history, if the channel has one.
     * @param bool $taken False for a repeated idempotency key and for a version that is not newer.
     * @param string|null $note Explains why no connection was reached.
     */
    public function __construct(
        public readonly ?int $handed,
        public readonly ?Position $position = null,
        public readonly bool $taken = true,
        public readonly ?string $note = null,
    ) {
    }

    /**
     * @internal
     */
    public static function from(Fields $fields): self
    {
        $position = $fields->has('offset') ? new Position($fields->int('offset'), $fields->string('epoch')) : null;
        return new self(
            $fields->int('handed'),
            $position,
            $fields->bool('taken', true),
            $fields->optionalString('note'),
        );
    }
}
