<?php

declare(strict_types=1);

namespace Veche\Exception;

/**
 * Nothing came in time. `mayHaveRun` says whether the call had been sent by then.
 */
class TimeoutException extends NetworkException
{
}
