<?php

declare(strict_types=1);

namespace Veche;

/**
 * A place in the history of a channel. Offsets of different epochs can't be compared.
 *
 * As a string it is `EPOCH:OFFSET`, the form in which clients of push routes pass `since`.
 */
final class Position
{
    public function __construct(public readonly int $offset, public readonly string $epoch)
    {
    }

    public function __toString(): string
    {
        return "$this->epoch:$this->offset";
    }

    /**
     * @internal
     * @return array{offset: int, epoch: string}
     */
    public function parameters(): array
    {
        return ['offset' => $this->offset, 'epoch' => $this->epoch];
    }
}
