<?php

declare(strict_types=1);

namespace Veche;

/**
 * Says which side has to change something before a failed call can succeed.
 *
 * ```php
 * try {
 *     $veche->push('ann', 'hello');
 * } catch (Veche\Exception\VecheException $error) {
 *     if ($error->fault() === Veche\Fault::Caller) {
 *         throw $error;                // a bug or a wrong key: trying again does not help
 *     }
 *     $queue->later('push', 'ann');    // the network or the server: try again later
 * }
 * ```
 */
enum Fault
{
    /** The call is wrong: an argument or the key is invalid, or the key makes too many calls. */
    case Caller;

    /** The connection to the server was refused, broke off, or was too slow. */
    case Network;

    /** The server failed, is stopping, or answered with something unexpected. */
    case Server;
}
