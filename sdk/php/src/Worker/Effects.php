<?php

declare(strict_types=1);

namespace Veche\Worker;

use Closure;
use Veche\Binary;
use Veche\Json;

/**
 * What a handler wants done, in order, and the data of it.
 *
 * @internal
 */
final class Effects
{
    /** Most effects of one frame. */
    private const EFFECTS_MAX = 4096;

    /** @var list<array<string, mixed>> */
    private array $heads = [];
    /** @var list<string> */
    private array $parts = [];
    private int $bytes = 0;

    /**
     * @param Closure(int, self): void $flush Sends the effects so far; is called when a frame has no room for more.
     * @param int $event Id of the event.
     */
    public function __construct(
        private readonly Closure $flush,
        private readonly int $event,
        private readonly int $bytesMax,
    ) {
    }

    /**
     * @param array<string, mixed> $head An effect. Its data, if it has any, were kept just before.
     */
    public function add(array $head): void
    {
        $this->heads[] = $head;
        if (count($this->heads) === self::EFFECTS_MAX) {
            ($this->flush)($this->event, $this);
        }
    }

    /**
     * Keeps data and returns the number of its part. What was kept last is not kept twice, so a message to many
     * connections travels once.
     */
    public function keep(string $data): int
    {
        $last = count($this->parts) - 1;
        if ($last >= 0 && $this->parts[$last] === $data) {
            return $last;
        }
        $length = strlen($data);
        if ($this->heads !== [] && $this->bytes + $length > $this->bytesMax) {
            ($this->flush)($this->event, $this);
        }
        $this->parts[] = $data;
        $this->bytes += $length;
        return count($this->parts) - 1;
    }

    /**
     * Keeps data of a publication: text, bytes, or anything else as JSON. Returns what an effect says of them.
     *
     * @return array{data: int, data_kind?: string}
     */
    public function data(mixed $data): array
    {
        return match (true) {
            is_string($data) => ['data' => $this->keep($data)],
            $data instanceof Binary => ['data_kind' => 'binary', 'data' => $this->keep($data->bytes)],
            default => ['data_kind' => 'json', 'data' => $this->keep(Json::encode($data))],
        };
    }

    public function isEmpty(): bool
    {
        return $this->heads === [];
    }

    /**
     * Returns the members of a head and the parts, and begins again.
     *
     * @return array{array<string, mixed>, list<string>}
     */
    public function take(): array
    {
        $taken = [$this->heads === [] ? [] : ['effects' => $this->heads], $this->parts];
        $this->heads = [];
        $this->parts = [];
        $this->bytes = 0;
        return $taken;
    }
}
