<?php

declare(strict_types=1);

namespace Veche\Worker;

use Closure;
use Fiber;

/**
 * An event that a handler processes, and the effects that the handler requests.
 *
 * @internal
 */
final class Handling extends Effects
{
    public readonly string $event;
    /** The connection or client whose events stay in order; null: the event has none. */
    public readonly ?string $subject;
    /** @var Fiber<mixed, mixed, mixed, mixed>|null */
    public ?Fiber $fiber = null;

    /**
     * @param Closure(Effects): void $flush
     */
    public function __construct(public readonly Frame $frame, Closure $flush, int $bytesMax)
    {
        $head = $frame->head;
        parent::__construct($head['id'], $flush, $bytesMax);
        $this->event = $head['event'];
        $this->subject = $head['connection'] ?? $head['client']['id'] ?? null;
    }
}
