<?php

declare(strict_types=1);

namespace Veche\Worker;

use Closure;
use Fiber;
use Throwable;
use Veche\Exception\CallerException;
use Veche\Exception\NetworkException;
use Veche\Exception\ServerException;
use Veche\Exception\TimeoutException;
use Veche\Exception\UnavailableException;
use Veche\Exception\VecheException;
use Veche\Json;

/**
 * A worker's side of the runtime protocol: bytes in, handlers in Fibers, bytes out. It does no I/O and reads no clock.
 *
 * Events of one connection are handled in order, one at a time. At most `concurrency` events are handled at once.
 *
 * @internal
 */
final class Engine
{
    private const VERSION = 1;

    private static ?self $current = null;

    /** @var array<string, true>|null Names of the events that are handled; null: all. */
    private readonly ?array $events;
    /** @var Closure(Effects): void Writes the effects of a running handler. */
    private readonly Closure $flush;
    private FrameDecoder $decoder;
    /** @var list<string> Pieces of output, joined only when taken, so that payloads are copied once. */
    private array $output = [];
    /** @var array<int, Handling> Events that have begun, by id. */
    private array $running = [];
    /**
     * @var array<int, Handling> Events that have not begun, by id, in the order of their arrival.
     */
    private array $waiting = [];
    /** @var array<string, true> Connections whose event is being handled. */
    private array $busy = [];
    /** @var array<int, Handling> Handlers that wait for the result of a call, by the call's id. */
    private array $calls = [];
    /** @var list<array{float, Handling}> Sleeping handlers, each with the time at which it continues. */
    private array $timers = [];
    /** @var list<Fiber<mixed, mixed, mixed, mixed>> Fibers without an event, for reuse. */
    private array $idle = [];
    private ?Handling $active = null;
    /** Number of nested Fibers, each resumed by the previous one. */
    private int $depth = 0;
    private int $lastCall = 0;
    private bool $isStopped = false;
    private int $headBytesMax = 1 << 20;
    private int $payloadBytesMax = 16 << 20;
    /** @var array<string, mixed> The members of Veche's welcome. */
    private array $welcome = [];

    /**
     * @param list<string>|null $events Names of the events that are handled; null: all events, and no hello is sent.
     * @param Closure(Handling): array<string, mixed> $handle Returns further members of the answer's head. The
     *     `Handling` keeps the data to which these members refer.
     * @param bool $canCall Whether handlers can make calls, because results can arrive.
     */
    public function __construct(
        ?array $events,
        private readonly int $concurrency,
        private readonly Closure $handle,
        public readonly bool $canCall = true,
    ) {
        $this->decoder = new FrameDecoder();
        $this->events = $events === null ? null : array_fill_keys($events, true);
        $this->flush = function (Effects $effects): void {
            [$members, $parts] = $effects->take();
            $this->join('{"type":"effects","id":' . $effects->id . $members . '}', $parts);
        };
        if ($events === null) {
            return;
        }
        $this->write(array_filter([
            'type' => 'hello',
            'versions' => [self::VERSION],
            'sdk' => 'veche-php/0.1.0',
            'pid' => getmypid() ?: null,
            'events' => $events,
            'concurrency' => $concurrency > 1 ? $concurrency : null,
        ], static fn (mixed $one): bool => $one !== null));
    }

    /**
     * Returns the engine of the current handler.
     *
     * @throws CallerException outside of handlers
     */
    public static function current(): self
    {
        return self::$current ?? throw new CallerException('this call is only possible in a handler of a worker');
    }

    /**
     * Accepts bytes from Veche, and runs handlers as far as possible.
     *
     * @throws VecheException if Veche refuses the worker, or if the peer is not Veche
     */
    public function receive(string $bytes): void
    {
        $this->decoder->feed($bytes);
        $this->begin();
    }

    /**
     * Returns the bytes to be written, and removes them from the engine.
     */
    public function takeOutput(): string
    {
        $output = implode('', $this->output);
        $this->output = [];
        return $output;
    }

    /**
     * Returns the time at which the next sleeping handler is due; null if none sleeps.
     */
    public function wakesAt(): ?float
    {
        return $this->timers === [] ? null : min(array_column($this->timers, 0));
    }

    /**
     * Continues handlers whose sleep is over.
     */
    public function wake(float $now): void
    {
        $due = array_filter($this->timers, static fn (array $timer): bool => $timer[0] <= $now);
        usort($due, static fn (array $a, array $b): int => $a[0] <=> $b[0]);
        $this->timers = array_values(array_filter($this->timers, static fn (array $timer): bool => $timer[0] > $now));
        foreach ($due as [, $handling]) {
            $this->resume($handling, null);
        }
        $this->begin();
    }

    /**
     * Returns whether the worker has to end: it was requested to stop, and no event is being handled.
     */
    public function isOver(): bool
    {
        return $this->isStopped && $this->running === [] && $this->waiting === [];
    }

    /**
     * Returns the members of Veche's welcome, such as `app`, `instance` and `options`.
     *
     * @return array<string, mixed>
     */
    public function welcome(): array
    {
        return $this->welcome;
    }

    /**
     * Returns the effects of the current handler.
     */
    public function effects(): Effects
    {
        return $this->active();
    }

    /**
     * Suspends the current handler until `$time`, in seconds.
     */
    public function sleepUntil(float $time): void
    {
        $handling = $this->active();
        $this->timers[] = [$time, $handling];
        Fiber::suspend();
    }

    /**
     * Makes a call and suspends the current handler until the result arrives.
     *
     * @param array<string, mixed> $head Members of the call's frame; members that are null are left out.
     * @throws VecheException if it fails
     */
    public function call(string $call, array $head, ?string $data = null): Frame
    {
        if (!$this->canCall) {
            $why = match ($call) {
                'mysql', 'redis', 'http' => 'the pools of Veche need runtime = "php"; use a PHP extension instead',
                'api' => '[[app]] needs api_url and api_key_file',
                default => 'this call needs runtime = "php"',
            };
            throw new CallerException("$call: not possible under FastCGI: $why");
        }
        $handling = $this->active();
        $id = ++$this->lastCall;
        // Effects that the handler requested earlier are sent before the call.
        if (!$handling->isEmpty()) {
            ($this->flush)($handling);
        }
        $members = ['type' => 'call', 'id' => $id, 'event' => $handling->id, 'call' => $call] + $head;
        $members += ['data' => $data === null ? null : 0];
        $this->write(
            array_filter($members, static fn (mixed $one): bool => $one !== null),
            $data === null ? [] : [$data],
        );
        $this->calls[$id] = $handling;
        $result = Fiber::suspend();
        $error = $result->head['error'] ?? null;
        if ($error !== null) {
            throw self::fault($call, $error);
        }
        return $result;
    }

    /**
     * Writes the answers of handlers that are interrupted by the end of the process. The answers also announce that the
     * process accepts no further events.
     */
    public function fail(string $why): void
    {
        foreach ($this->running as $handling) {
            $this->answer($handling, ['failed' => $why, 'last' => true]);
        }
    }

    private function active(): Handling
    {
        return $this->active ?? throw new CallerException('this call is only possible in a handler of a worker');
    }

    /**
     * Accepts a frame. Returns the event in it, if there is one.
     */
    private function take(Frame $frame): ?Handling
    {
        $head = $frame->head;
        switch ($head['type']) {
            case 'event':
                $handling = new Handling($frame, $this->flush, $this->payloadBytesMax);
                if ($handling->event === 'stop') {
                    $this->isStopped = true;
                }
                return $handling;
            case 'welcome':
                $this->welcome = $head;
                $this->headBytesMax = $head['head_bytes_max'] ?? $this->headBytesMax;
                $this->payloadBytesMax = $head['payload_bytes_max'] ?? $this->payloadBytesMax;
                return null;
            case 'refuse':
                throw new CallerException('Veche refuses this worker: ' . ($head['message'] ?? 'Veche gave no reason'));
            case 'result':
                $waiting = $this->calls[$head['id']] ?? null;
                unset($this->calls[$head['id']]);
                if ($waiting !== null) {
                    $this->resume($waiting, $frame);
                }
                return null;
            case 'cancel':
                // A cancellation is ignored, since the server expects an answer to a cancelled event too.
                return null;
            default:
                throw new ServerException("Veche sent a frame of the unknown type \"{$head['type']}\"");
        }
    }

    /**
     * Starts the handlers of all events that {@see next()} returns.
     */
    private function begin(): void
    {
        while (($handling = $this->next()) !== null) {
            $this->enter($handling);
            $handling->fiber = array_pop($this->idle) ?? new Fiber($this->work(...));
            $this->resume($handling, $handling);
        }
    }

    /**
     * Returns the next event whose handler may start now. Decodes frames until there is such an event.
     */
    private function next(): ?Handling
    {
        while (true) {
            if ($this->waiting !== [] && count($this->running) < $this->concurrency) {
                foreach ($this->waiting as $place => $handling) {
                    if ($handling->subject === null || !isset($this->busy[$handling->subject])) {
                        unset($this->waiting[$place]);
                        return $handling;
                    }
                }
            }
            $frame = $this->decoder->next();
            if ($frame === null) {
                return null;
            }
            $handling = $this->take($frame);
            if ($handling === null) {
                continue;
            }
            if ($this->waiting === [] && count($this->running) < $this->concurrency) {
                if ($handling->subject === null || !isset($this->busy[$handling->subject])) {
                    return $handling;
                }
            }
            // Ids increase in the order of arrival.
            $this->waiting[$handling->id] = $handling;
        }
    }

    private function enter(Handling $handling): void
    {
        $this->running[$handling->id] = $handling;
        // With a concurrency of 1, a connection never has two events at once.
        if ($this->concurrency > 1 && $handling->subject !== null) {
            $this->busy[$handling->subject] = true;
        }
    }

    /**
     * Handles events one after the other. A switch of Fibers costs more than most handlers, so a Fiber continues with
     * the next event itself; if a handler suspends it, another Fiber takes over. A Fiber that another Fiber has
     * resumed returns to that Fiber.
     */
    private function work(Handling $handling): never
    {
        while (true) {
            try {
                $isHandled = $this->events === null || isset($this->events[$handling->event]);
                $this->answer($handling, $isHandled ? ($this->handle)($handling) : []);
            } catch (Throwable $error) {
                $this->answer($handling, ['failed' => self::described($error)]);
            }
            $fiber = $handling->fiber;
            $handling->fiber = null;
            $next = $this->depth === 1 ? $this->next() : null;
            if ($next === null) {
                $this->idle[] = $fiber;
                $handling = Fiber::suspend();
                continue;
            }
            $this->enter($next);
            $next->fiber = $fiber;
            $this->active = $next;
            $handling = $next;
        }
    }

    private function resume(Handling $handling, Handling|Frame|null $with): void
    {
        $before = $this->active;
        $outer = self::$current;
        $this->active = $handling;
        self::$current = $this;
        $this->depth++;
        try {
            $fiber = $handling->fiber;
            $fiber->isStarted() ? $fiber->resume($with) : $fiber->start($with);
        } finally {
            $this->depth--;
            $this->active = $before;
            self::$current = $outer;
        }
    }

    /**
     * @param array<string, mixed> $members
     */
    private function answer(Handling $handling, array $members): void
    {
        $head = '{"type":"answer","id":' . $handling->id;
        try {
            [$effects, $parts] = $handling->take();
            $rest = $members === [] ? '' : ',' . substr(Json::encode($members), 1, -1);
            $this->join("$head$effects$rest}", $parts);
        } catch (CallerException $error) {
            // The answer is too long or can't be expressed in JSON, so none of it is carried out.
            $last = array_intersect_key($members, ['last' => true]);
            $this->write(['type' => 'answer', 'id' => $handling->id, 'failed' => $error->getMessage()] + $last);
        }
        unset($this->running[$handling->id]);
        if ($this->concurrency > 1 && $handling->subject !== null) {
            unset($this->busy[$handling->subject]);
        }
    }

    /**
     * @param array<string, mixed> $head
     * @param list<string> $parts
     */
    private function write(array $head, array $parts = []): void
    {
        $this->output[] = Frame::encode($head, $parts, $this->headBytesMax, $this->payloadBytesMax);
    }

    /**
     * @param list<string> $parts
     */
    private function join(string $head, array $parts): void
    {
        $payload = count($parts) === 1 ? $parts[0] : implode('', $parts);
        $this->output[] = Frame::prefix($head, $payload, $this->headBytesMax, $this->payloadBytesMax) . $head;
        $this->output[] = $payload;
    }

    /**
     * @param array<string, mixed> $error
     */
    private static function fault(string $call, array $error): VecheException
    {
        $message = "$call: " . ($error['message'] ?? 'the call failed');
        $code = $error['code'] ?? 0;
        $name = is_string($code) ? $code : null;
        $number = is_int($code) ? $code : 0;
        return match ($error['kind'] ?? '') {
            'timeout' => new TimeoutException($message, $number, true, null, $name),
            'unreachable' => new NetworkException($message, $number, false, null, $name),
            'connection_lost' => new NetworkException($message, $number, true, null, $name),
            'pool_full' => new UnavailableException($message, $number, null, null, $name),
            'broken' => new ServerException($message, $number, true, null, $name),
            default => ($error['retryable'] ?? false)
                ? new UnavailableException($message, $number, null, null, $name)
                : new CallerException($message, $number, false, null, $name),
        };
    }

    /**
     * Returns an error with its location and its trace, for the log.
     */
    public static function described(Throwable $error): string
    {
        return sprintf(
            "%s: %s in %s:%d\n%s",
            $error::class,
            $error->getMessage(),
            $error->getFile(),
            $error->getLine(),
            $error->getTraceAsString(),
        );
    }
}
