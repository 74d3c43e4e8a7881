<?php

declare(strict_types=1);

namespace Veche\Worker;

use Fiber;

/**
 * One event that a handler works on.
 *
 * @internal
 */
final class Handling
{
    public readonly Effects $effects;
    /** @var Fiber<mixed, mixed, mixed, mixed>|null */
    public ?Fiber $fiber = null;

    public function __construct(public readonly int $id, public readonly string $event, public readonly Frame $frame)
    {
        $this->effects = new Effects();
    }

    /**
     * Returns the connection or client whose events stay in order; null: the event has none.
     */
    public function subject(): ?string
    {
        $head = $this->frame->head;
        return $head['connection'] ?? $head['client']['id'] ?? null;
    }
}
