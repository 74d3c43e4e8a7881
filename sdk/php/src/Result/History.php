<?php

declare(strict_types=1);

namespace Veche\Result;

use Veche\Position;

/**
 * A page of a channel's history.
 */
final class History
{
    /**
     * @param list<Publication> $publications
     * @param Position $position The latest position of the channel, even if the page ends before
     *     that position.
     */
    public function __construct(public readonly array $publications, public readonly Position $position)
    {
    }

    /**
     * @internal
     */
    public static function from(Fields $fields): self
    {
        return new self(
            array_values($fields->map('publications', Publication::from(...))),
            new Position($fields->int('offset'), $fields->string('epoch')),
        );
    }
}
