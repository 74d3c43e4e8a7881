<?php

declare(strict_types=1);

namespace Veche\Exception;

/**
 * No response arrived within the time limit. `mayHaveRun` is true if the server may have executed the
 * call.
 */
class TimeoutException extends NetworkException
{
}
