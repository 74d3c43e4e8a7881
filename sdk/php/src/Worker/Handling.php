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
    /** The connection or client whose events are handled in order; null if the event has none. */
    public ?string $subject;
    /** @var Fiber<mixed, mixed, mixed, mixed>|null */
    public ?Fiber $fiber = null;

    /**
     * @param Closure(Effects): void $flush
     */
    public function __construct(public Frame $frame, Closure $flush, int $bytesMax)
    {
        $head = $frame->head;
        // The fields are set here because a call of parent::__construct() would take a tenth of the time that a message
        // costs.
        $this->id = $head['id'];
        $this->flush = $flush;
        $this->bytesMax = $bytesMax;
        $this->event = $head['event'];
        $this->subject = $head['connection'] ?? $head['client']['id'] ?? null;
    }
}
