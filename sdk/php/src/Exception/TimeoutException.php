<?php

declare(strict_types=1);

namespace Veche\Exception;

/**
 * No response arrived within the time limit. `mayHaveRun` says whether the call had been sent by then.
 */
class TimeoutException extends NetworkException
{
}
