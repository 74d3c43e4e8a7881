<?php

declare(strict_types=1);

namespace Veche;

use Veche\Exception\AuthenticationException;
use Veche\Exception\CallerException;
use Veche\Exception\RateLimitException;
use Veche\Exception\ServerException;
use Veche\Exception\UnavailableException;
use Veche\Exception\VecheException;

/**
 * Error codes of Veche's API, as `getCode()` of an exception returns them.
 */
final class ErrorCode
{
    /** The server failed. */
    public const INTERNAL = 100;

    /** The API key is missing or wrong. */
    public const UNAUTHORIZED = 101;

    /** No `[[namespace]]` matches the channel, and `unknown_namespace` is `"error"`. */
    public const UNKNOWN_CHANNEL = 102;

    /** The server has no call with this name. */
    public const METHOD_NOT_FOUND = 104;

    /** The answer has too many elements, or a list on the server is full. */
    public const LIMIT_EXCEEDED = 106;

    /** An argument is invalid; the message names it. */
    public const BAD_REQUEST = 107;

    /** The channel has no history or no presence. */
    public const NOT_AVAILABLE = 108;

    /** The rate limit of the API key is exceeded. */
    public const TOO_MANY_REQUESTS = 111;

    /** The position belongs to another epoch of the channel. */
    public const UNRECOVERABLE_POSITION = 112;

    private function __construct()
    {
    }

    /**
     * Returns the exception for an error in an answer.
     *
     * @internal
     * @param bool $isPublication Error 106 of a publication means that the server is short of memory.
     */
    public static function exception(int $code, string $message, bool $isPublication): VecheException
    {
        return match (true) {
            $code === self::UNAUTHORIZED => new AuthenticationException($message, $code),
            $code === self::TOO_MANY_REQUESTS => new RateLimitException($message, $code),
            $code === self::LIMIT_EXCEEDED && $isPublication => new UnavailableException($message, $code),
            $code === self::INTERNAL => new ServerException($message, $code, true),
            default => new CallerException($message, $code),
        };
    }
}
