<?php

declare(strict_types=1);

namespace Veche\Exception;

/**
 * The API key is missing or wrong.
 */
class AuthenticationException extends CallerException
{
}
