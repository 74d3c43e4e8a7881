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

/**
 * A worker's side of the runtime protocol: bytes in, handlers in Fibers, bytes out. It does no I/O and reads no clock.
 *
 * Events of one connection are handled in order, one at a time; of different connections at most `concurrency` at once.
 *
 * @internal
 */
final class Engine
{
    private const VERSION = 1;

    private static ?self $current = null;

    /** @var array<string, true>|null */
    private readonly ?array $events;
    /** @var Closure(int, Effects): void */
    private readonly Closure $flush;
    private FrameDecoder $decoder;
    private string $output = '';
    /** @var array<int, Handling> Begun, by id. */
    private array $running = [];
    /** @var list<Handling> Not begun, in the order of their arrival. */
    private array $waiting = [];
    /** @var array<string, true> Connections whose event is being handled. */
    private array $busy = [];
    /** @var array<int, Handling> Handlers that wait for the result of a call, by the call's id. */
    private array $calls = [];
    /** @var list<array{float, Handling}> */
    private array $timers = [];
    /** @var list<Fiber<mixed, mixed, mixed, mixed>> */
    private array $idle = [];
    private ?Handling $active = null;
    private int $lastCall = 0;
    private bool $isStopped = false;
    private int $headBytesMax = 1 << 20;
    private int $payloadBytesMax = 16 << 20;
    /** @var array<string, mixed> */
    private array $welcome = [];

    /**
     * @param list<string>|null $events Names of the events that are handled; null: all, and there is no hello.
     * @param Closure(Handling): array<string, mixed> $handle Returns further members of the answer's head; data
     *     that they refer to are kept in the handling's effects.
     * @param bool $canCall Whether results of calls can come.
     */
    public function __construct(
        ?array $events,
        private readonly int $concurrency,
        private readonly Closure $handle,
        public readonly bool $canCall = true,
    ) {
        $this->decoder = new FrameDecoder();
        $this->events = $events === null ? null : array_fill_keys($events, true);
        $this->flush = function (int $event, Effects $effects): void {
            [$head, $parts] = $effects->take();
            $this->write(['type' => 'effects', 'id' => $event] + $head, $parts);
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
     * Returns the engine that runs the handler that is calling.
     *
     * @throws CallerException outside of handlers
     */
    public static function current(): self
    {
        return self::$current ?? throw new CallerException('this is possible in a handler of a worker only');
    }

    /**
     * Takes bytes of Veche, and runs handlers as far as they go.
     *
     * @throws VecheException if Veche refuses the worker, or this is not Veche
     */
    public function receive(string $bytes): void
    {
        $this->decoder->feed($bytes);
        while (($frame = $this->decoder->next()) !== null) {
            $this->take($frame);
            if ($this->waiting !== []) {
                $this->begin();
            }
        }
    }

    /**
     * Returns what is to be written, and forgets it.
     */
    public function takeOutput(): string
    {
        [$output, $this->output] = [$this->output, ''];
        return $output;
    }

    /**
     * Returns when the next handler that sleeps is due; null: none sleeps.
     */
    public function wakesAt(): ?float
    {
        return $this->timers === [] ? null : min(array_column($this->timers, 0));
    }

    /**
     * Goes on with handlers whose sleep is over.
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
     * Returns whether the worker is to end: it was told to stop, and nothing is left in hand.
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
     * Returns the effects of the handler that is calling.
     */
    public function effects(): Effects
    {
        return $this->active()->effects;
    }

    /**
     * Suspends the handler that is calling until that time.
     */
    public function sleepUntil(float $time): void
    {
        $handling = $this->active();
        $this->timers[] = [$time, $handling];
        Fiber::suspend();
    }

    /**
     * Makes a call and suspends the handler that is calling until its result has come.
     *
     * @param array<string, mixed> $head Members of the call; null leaves one out.
     * @throws VecheException if it fails
     */
    public function call(string $call, array $head, ?string $data = null): Frame
    {
        if (!$this->canCall) {
            $why = match ($call) {
                'mysql', 'redis', 'http' => 'pools need runtime = "php", use a PHP extension here',
                'api' => '[[app]] needs api_url and api_key_file',
                default => 'it needs the socket of a worker, runtime = "php"',
            };
            throw new CallerException("$call: not possible under FastCGI: $why");
        }
        $handling = $this->active();
        $id = ++$this->lastCall;
        // What the handler wanted before comes first.
        if (!$handling->effects->isEmpty()) {
            ($this->flush)($handling->id, $handling->effects);
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
     * Writes the answers of handlers that an end of the process interrupts.
     */
    public function fail(string $why): void
    {
        foreach ($this->running as $handling) {
            $this->answer($handling, ['failed' => $why]);
        }
    }

    private function active(): Handling
    {
        return $this->active ?? throw new CallerException('this is possible in a handler of a worker only');
    }

    private function take(Frame $frame): void
    {
        $head = $frame->head;
        switch ($head['type']) {
            case 'welcome':
                $this->welcome = $head;
                $this->headBytesMax = $head['head_bytes_max'] ?? $this->headBytesMax;
                $this->payloadBytesMax = $head['payload_bytes_max'] ?? $this->payloadBytesMax;
                return;
            case 'refuse':
                throw new CallerException('Veche refuses this worker: ' . ($head['message'] ?? 'it does not say why'));
            case 'event':
                $effects = new Effects($this->flush, $head['id'], $this->payloadBytesMax);
                $handling = new Handling($head['id'], $head['event'], $frame, $effects);
                $this->isStopped = $this->isStopped || $handling->event === 'stop';
                $this->accept($handling);
                return;
            case 'result':
                $waiting = $this->calls[$head['id']] ?? null;
                unset($this->calls[$head['id']]);
                if ($waiting !== null) {
                    $this->resume($waiting, $frame);
                }
                return;
            case 'cancel':
                // Its answer is still expected; what nobody wants any more need not begin.
                return;
            default:
                throw new ServerException("a frame of the unknown type \"{$head['type']}\"");
        }
    }

    private function accept(Handling $handling): void
    {
        $isFree = $this->waiting === [] && count($this->running) < $this->concurrency;
        if ($isFree && ($handling->subject === null || !isset($this->busy[$handling->subject]))) {
            $this->run($handling);
        } else {
            $this->waiting[] = $handling;
        }
    }

    /**
     * Begins events that may begin.
     */
    private function begin(): void
    {
        $later = [];
        while ($this->waiting !== [] && count($this->running) < $this->concurrency) {
            $handling = array_shift($this->waiting);
            $subject = $handling->subject;
            if ($subject !== null && (isset($this->busy[$subject]) || isset($later[$subject]))) {
                $later[$subject][] = $handling;
            } else {
                $this->run($handling);
            }
        }
        if ($later !== []) {
            // Ids rise with the arrival.
            $left = array_merge($this->waiting, ...array_values($later));
            usort($left, static fn (Handling $a, Handling $b): int => $a->id <=> $b->id);
            $this->waiting = $left;
        }
    }

    private function run(Handling $handling): void
    {
        $this->running[$handling->id] = $handling;
        if ($handling->subject !== null) {
            $this->busy[$handling->subject] = true;
        }
        $handling->fiber = array_pop($this->idle);
        $handling->fiber ??= new Fiber($this->work(...));
        $this->resume($handling, $handling);
    }

    /**
     * Handles one event after the other. A Fiber costs more than most handlers, so it is used again.
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
            $this->idle[] = $handling->fiber;
            $handling->fiber = null;
            $handling = Fiber::suspend();
        }
    }

    private function resume(Handling $handling, Handling|Frame|null $with): void
    {
        $before = $this->active;
        $outer = self::$current;
        $this->active = $handling;
        self::$current = $this;
        try {
            $fiber = $handling->fiber;
            $fiber->isStarted() ? $fiber->resume($with) : $fiber->start($with);
        } finally {
            $this->active = $before;
            self::$current = $outer;
        }
    }

    /**
     * @param array<string, mixed> $members
     */
    private function answer(Handling $handling, array $members): void
    {
        [$head, $parts] = $handling->effects->take();
        $answer = ['type' => 'answer', 'id' => $handling->id];
        try {
            $this->write($answer + $head + $members, $parts);
        } catch (CallerException $error) {
            // Too long, or not to be expressed: nothing of it is carried out.
            $this->write($answer + ['failed' => $error->getMessage()]);
        }
        unset($this->running[$handling->id]);
        if ($handling->subject !== null) {
            unset($this->busy[$handling->subject]);
        }
    }

    /**
     * @param array<string, mixed> $head
     * @param list<string> $parts
     */
    private function write(array $head, array $parts = []): void
    {
        $this->output .= Frame::encode($head, $parts, $this->headBytesMax, $this->payloadBytesMax);
    }

    /**
     * @param array<string, mixed> $error
     */
    private static function fault(string $call, array $error): VecheException
    {
        $message = "$call: " . ($error['message'] ?? 'it has failed');
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
     * Returns an error with its place and its trace, for the log.
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
