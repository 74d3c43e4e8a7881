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
    public string $event;
    /** The connection or client whose events stay in order; null: the event has none. */
    public ?string $subject;
    /** @var Fiber<mixed, mixed, mixed, mixed>|null */
    public ?Fiber $fiber = null;

    /**
     * @param Closure(Effects): void $flush
     */
    public function __construct(public Frame $frame, Closure $flush, int $bytesMax)
    {
        $head = $frame->head;
        // Not parent::__construct(): this call would take a tenth of the time of a message.
        $this->id = $head['id'];
        $this->flush = $flush;
        $this->bytesMax = $bytesMax;
        $this->event = $head['event'];
        $this->subject = $head['connection'] ?? $head['client']['id'] ?? null;
    }
}
