<?php

declare(strict_types=1);

namespace Veche;

use JsonException;
use Veche\Exception\CallerException;

/**
 * A JSON text that is sent as it is, without being decoded and encoded again.
 *
 * ```php
 * $veche->publish('prices', new Veche\Json('{"EUR":1.10}'));    // the client gets 1.10, not 1.1
 * ```
 */
final class Json
{
    private const FLAGS = JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE
        | JSON_PRESERVE_ZERO_FRACTION;

    /** The text on one line. */
    public readonly string $text;

    /**
     * @throws CallerException if the text is not valid JSON
     */
    public function __construct(string $text)
    {
        self::decode($text);
        // A raw line end in JSON is white space, since strings contain only escaped ones, so a space can replace it.
        $this->text = strtr(trim($text), "\r\n", '  ');
    }

    /**
     * Encodes a value.
     *
     * @internal
     * @throws CallerException if JSON can't express it
     */
    public static function encode(mixed $value): string
    {
        if ($value instanceof self) {
            return $value->text;
        }
        try {
            return json_encode($value, self::FLAGS);
        } catch (JsonException $error) {
            $hint = $error->getCode() === JSON_ERROR_UTF8 ? '; wrap bytes in Veche\Binary' : '';
            $why = "the value can't be encoded as JSON: {$error->getMessage()}$hint";
            throw new CallerException($why, 0, false, $error);
        }
    }

    private static function decode(string $text): void
    {
        try {
            json_decode($text, false, 512, JSON_THROW_ON_ERROR);
        } catch (JsonException $error) {
            throw new CallerException("bad JSON: {$error->getMessage()}", 0, false, $error);
        }
    }
}
