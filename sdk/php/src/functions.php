<?php

declare(strict_types=1);

namespace Veche;

use Veche\Worker\Engine;
use Veche\Worker\Runner;

/**
 * Lets a handler wait while its worker handles other events.
 *
 * ```php
 * $app->message(function (Veche\Connection $conn, string $data): void {
 *     Veche\sleep(0.5);
 *     $conn->send($data);
 * });
 * ```
 */
function sleep(float $seconds): void
{
    Engine::current()->sleepUntil(Runner::now() + $seconds);
}
