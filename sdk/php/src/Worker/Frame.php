<?php

declare(strict_types=1);

namespace Veche\Worker;

use JsonException;
use Veche\Exception\CallerException;
use Veche\Exception\ServerException;
use Veche\Json;

/**
 * A frame between Veche and a worker: a head in JSON and a payload of bytes, which consists of parts.
 *
 * @internal
 */
final class Frame
{
    /** Bytes before the head: its length and the payload's, the least significant byte first. */
    public const PREFIX_BYTES = 8;

    /**
     * @param array<string, mixed> $head
     */
    public function __construct(public readonly array $head, public readonly string $payload = '')
    {
    }

    /**
     * Writes the bytes of a frame. Parts are numbered from 0; their lengths are in the head where they are several.
     *
     * @param array<string, mixed> $head
     * @param list<string> $parts
     * @throws CallerException if the head or the payload is longer than Veche takes
     */
    public static function encode(array $head, array $parts, int $headBytesMax, int $payloadBytesMax): string
    {
        if (count($parts) > 1) {
            $head['parts'] = array_map(strlen(...), $parts);
        }
        $json = Json::encode($head);
        $payload = count($parts) === 1 ? $parts[0] : implode('', $parts);
        if (strlen($json) > $headBytesMax || strlen($payload) > $payloadBytesMax) {
            throw new CallerException('more effects, or more data, than Veche takes at once');
        }
        return pack('VV', strlen($json), strlen($payload)) . $json . $payload;
    }

    /**
     * @throws ServerException if the head is no JSON object
     */
    public static function read(string $head, string $payload): self
    {
        try {
            $values = json_decode($head, true, 64, JSON_THROW_ON_ERROR | JSON_BIGINT_AS_STRING);
        } catch (JsonException $error) {
            throw new ServerException("a head that is no JSON: {$error->getMessage()}", 0, false, $error);
        }
        if (!is_array($values) || !is_string($values['type'] ?? null)) {
            throw new ServerException('a head without a type');
        }
        return new self($values, $payload);
    }

    /**
     * Returns the part with that number, or null where the head names none.
     *
     * @throws ServerException if there is no such part
     */
    public function part(?int $number): ?string
    {
        $lengths = $this->head['parts'] ?? [];
        if ($number === null || ($lengths === [] && $number === 0)) {
            return $number === null ? null : $this->payload;
        }
        if (!isset($lengths[$number]) || array_sum($lengths) !== strlen($this->payload)) {
            throw new ServerException("no part $number");
        }
        return substr($this->payload, array_sum(array_slice($lengths, 0, $number)), $lengths[$number]);
    }
}
