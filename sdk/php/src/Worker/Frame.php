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
 * Objects that are created for each event have no readonly properties, because PHP initializes such properties more
 * slowly.
 *
 * @internal
 */
final class Frame
{
    /** Length of the prefix before the head: the lengths of head and payload, little-endian. */
    public const PREFIX_BYTES = 8;

    /**
     * The parts of the head of a message's event as Veche writes it: the beginning, the text after the event's id, the
     * text before the user, and the end for a text and for a binary message.
     */
    private const EVENT = '{"type":"event","id":';
    private const CONNECTION = ',"event":"message","connection":"';
    private const USER = '","user":"';
    private const TEXT = '","data_kind":"text","data":0}';
    private const BINARY = '","data_kind":"binary","data":0}';

    /**
     * @param array<string, mixed> $head
     */
    public function __construct(public array $head, public string $payload = '')
    {
    }

    /**
     * Encodes a frame. Parts are numbered from 0; if there are several, the head has their lengths.
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
        return self::prefix($json, $payload, $headBytesMax, $payloadBytesMax) . $json . $payload;
    }

    /**
     * Returns the prefix for an encoded head and its payload.
     *
     * @throws CallerException if the head or the payload is longer than Veche takes
     */
    public static function prefix(string $head, string $payload, int $headBytesMax, int $payloadBytesMax): string
    {
        $headBytes = strlen($head);
        $payloadBytes = strlen($payload);
        if ($headBytes > $headBytesMax || $payloadBytes > $payloadBytesMax) {
            throw new CallerException('the frame has more effects or data than Veche accepts');
        }
        return pack('VV', $headBytes, $payloadBytes);
    }

    /**
     * @throws ServerException if the head is no JSON object
     */
    public static function read(string $head, string $payload): self
    {
        $values = self::message($head);
        if ($values !== null) {
            return new self($values, $payload);
        }
        try {
            $values = json_decode($head, true, 64, JSON_THROW_ON_ERROR | JSON_BIGINT_AS_STRING);
        } catch (JsonException $error) {
            throw new ServerException("the head of a frame is not JSON: {$error->getMessage()}", 0, false, $error);
        }
        if (!is_array($values) || !is_string($values['type'] ?? null)) {
            throw new ServerException('the head of a frame has no type');
        }
        return new self($values, $payload);
    }

    /**
     * Returns the part with the given number; null if `$number` is null.
     *
     * @throws ServerException if the frame has no part with this number
     */
    public function part(?int $number): ?string
    {
        $lengths = $this->head['parts'] ?? [];
        if ($number === null || ($lengths === [] && $number === 0)) {
            return $number === null ? null : $this->payload;
        }
        if (!isset($lengths[$number]) || array_sum($lengths) !== strlen($this->payload)) {
            throw new ServerException("a frame has no part $number");
        }
        return substr($this->payload, array_sum(array_slice($lengths, 0, $number)), $lengths[$number]);
    }

    /**
     * Decodes the head of a message's event. Returns null if it has other fields or another form,
     * so that it must be decoded as JSON.
     *
     * @return array<string, mixed>|null
     */
    private static function message(string $head): ?array
    {
        if (!str_starts_with($head, self::EVENT)) {
            return null;
        }
        $kind = 'text';
        $end = -strlen(self::TEXT);
        if (!str_ends_with($head, self::TEXT)) {
            if (!str_ends_with($head, self::BINARY)) {
                return null;
            }
            $kind = 'binary';
            $end = -strlen(self::BINARY);
        }
        $at = strpos($head, self::CONNECTION);
        if ($at === false) {
            return null;
        }
        $digits = substr($head, strlen(self::EVENT), $at - strlen(self::EVENT));
        $id = (int) $digits;
        $connection = substr($head, $at + strlen(self::CONNECTION), $end);
        if ((string) $id !== $digits || $connection === '') {
            return null;
        }
        // A JSON string without quotes and escapes is equal to its value.
        if (strpbrk($connection, '"\\') === false) {
            return [
                'type' => 'event', 'id' => $id, 'event' => 'message', 'connection' => $connection,
                'data_kind' => $kind, 'data' => 0,
            ];
        }
        [$connection, $user] = explode(self::USER, $connection, 2) + [1 => '"'];
        if (strpbrk($connection, '"\\') !== false || strpbrk($user, '"\\') !== false) {
            return null;
        }
        return [
            'type' => 'event', 'id' => $id, 'event' => 'message', 'connection' => $connection, 'user' => $user,
            'data_kind' => $kind, 'data' => 0,
        ];
    }
}
