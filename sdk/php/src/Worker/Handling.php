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
    /** The connection or client whose events stay in order; null: the event has none. */
    public readonly ?string $subject;
    /** @var Fiber<mixed, mixed, mixed, mixed>|null */
    public ?Fiber $fiber = null;

    public function __construct(
        public readonly int $id,
        public readonly string $event,
        public readonly Frame $frame,
        public readonly Effects $effects,
    ) {
        $this->subject = $frame->head['connection'] ?? $frame->head['client']['id'] ?? null;
    }
}
