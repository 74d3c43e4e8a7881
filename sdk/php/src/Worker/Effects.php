<?php

declare(strict_types=1);

namespace Veche\Worker;

use Closure;
use Veche\Binary;
use Veche\Exception\CallerException;
use Veche\Json;

/**
 * The effects that a handler requests, in order, and their data.
 *
 * @internal
 */
class Effects
{
    /** Maximum number of effects in one frame. */
    private const EFFECTS_MAX = 4096;

    /** @var list<array<string, mixed>|string> Effects as arrays, or as JSON. */
    private array $heads = [];
    /** @var list<string> */
    private array $parts = [];
    private int $bytes = 0;

    /**
     * @param int $id The id of the event.
     * @param Closure(self): void $flush Sends the effects so far; is called when a frame has no room for more.
     */
    public function __construct(
        public int $id,
        protected Closure $flush,
        protected int $bytesMax,
    ) {
    }

    /**
     * @param array<string, mixed>|string $head An effect, or its JSON. The caller has passed its data to
     *     {@see keep()}.
     */
    public function add(array|string $head): void
    {
        $this->heads[] = $head;
        if (count($this->heads) === self::EFFECTS_MAX) {
            ($this->flush)($this);
        }
    }

    /**
     * Adds data and returns the number of the part that contains the data. Data equal to the last part are not
     * added again, so that a message to many connections is transferred once.
     */
    public function keep(string $data): int
    {
        $count = count($this->parts);
        if ($count > 0 && $this->parts[$count - 1] === $data) {
            return $count - 1;
        }
        $length = strlen($data);
        if ($this->heads !== [] && $this->bytes + $length > $this->bytesMax) {
            ($this->flush)($this);
        }
        $this->parts[] = $data;
        $this->bytes += $length;
        return count($this->parts) - 1;
    }

    /**
     * Adds the data of a publication: text, bytes, or anything else as JSON. Returns the members of an effect that
     * refer to the data.
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
     * Returns the members `effects` and `parts` of a frame's head as JSON, each with a comma before it, and the
     * parts. Then removes all effects.
     *
     * @return array{string, list<string>}
     * @throws CallerException if JSON can't express an effect
     */
    public function take(): array
    {
        $heads = $this->heads;
        $parts = $this->parts;
        $this->heads = [];
        $this->parts = [];
        $this->bytes = 0;
        if (count($heads) === 1 && is_string($heads[0]) && count($parts) <= 1) {
            return [",\"effects\":[$heads[0]]", $parts];
        }
        $json = '';
        foreach ($heads as $head) {
            $json .= ($json === '' ? ',"effects":[' : ',') . (is_string($head) ? $head : Json::encode($head));
        }
        if ($json !== '') {
            $json .= ']';
        }
        if (count($parts) > 1) {
            $json .= ',"parts":[' . implode(',', array_map(strlen(...), $parts)) . ']';
        }
        return [$json, $parts];
    }
}
