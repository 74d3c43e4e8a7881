<?php

declare(strict_types=1);

namespace Veche\WebSocket;

/**
 * Encodes frames of a client: unfragmented and masked.
 *
 * @internal
 */
final class Frame
{
    /**
     * @param string|null $key Four bytes; by default random ones, as section 10.3 of RFC 6455 asks for.
     */
    public static function encode(Opcode $opcode, string $payload, ?string $key = null, bool $isFinal = true): string
    {
        $key ??= random_bytes(4);
        $length = strlen($payload);
        $head = chr(($isFinal ? 0x80 : 0) | $opcode->value) . match (true) {
            $length < 126 => chr(0x80 | $length),
            $length < 65536 => "\xfe" . pack('n', $length),
            default => "\xff" . pack('J', $length),
        };
        return $head . $key . self::mask($payload, $key);
    }

    public static function mask(string $payload, string $key): string
    {
        $length = strlen($payload);
        // XOR of two strings has the length of the shorter one.
        return $length === 0 ? '' : $payload ^ str_repeat($key, intdiv($length + 3, 4));
    }

    /**
     * Encodes a Close frame. For the codes 1005 and 1006 the frame has no code.
     */
    public static function close(int $code, string $reason = ''): string
    {
        $payload = in_array($code, [1005, 1006], true) ? '' : pack('n', $code) . $reason;
        return self::encode(Opcode::Close, $payload);
    }
}
