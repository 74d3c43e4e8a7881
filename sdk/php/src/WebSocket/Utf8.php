<?php

declare(strict_types=1);

namespace Veche\WebSocket;

/**
 * Validates a text that arrives in parts.
 *
 * @internal
 */
final class Utf8
{
    /** The beginning of an incomplete character. */
    private string $open = '';

    /**
     * Validates the next part. Returns false as soon as no further bytes can make the text valid.
     */
    public function feed(string $part): bool
    {
        $text = $this->open . $part;
        // A character has at most four bytes, so an incomplete one has at most three.
        for ($cut = 0; $cut <= min(3, strlen($text)); $cut++) {
            $whole = $cut === 0 ? $text : substr($text, 0, -$cut);
            if (preg_match('//u', $whole) === 1) {
                $this->open = substr($text, strlen($whole));
                return $cut === 0 || self::isPrefix($this->open);
            }
        }
        return false;
    }

    /**
     * Returns whether the text may end here.
     */
    public function isComplete(): bool
    {
        return $this->open === '';
    }

    /**
     * Returns whether the bytes are the beginning of one character (RFC 3629, section 4).
     */
    private static function isPrefix(string $bytes): bool
    {
        $pattern = '/^(?:[\xc2-\xdf]|\xe0(?:[\xa0-\xbf])?|[\xe1-\xec\xee\xef](?:[\x80-\xbf])?|\xed(?:[\x80-\x9f])?'
            . '|\xf0(?:[\x90-\xbf][\x80-\xbf]?)?|[\xf1-\xf3](?:[\x80-\xbf][\x80-\xbf]?)?'
            . '|\xf4(?:[\x80-\x8f][\x80-\xbf]?)?)$/D';
        return preg_match($pattern, $bytes) === 1;
    }
}
