<?php

declare(strict_types=1);

namespace Veche\Hook;

use Veche\Worker\Effects;

/**
 * A handler's decision on a command: a {@see Grant}, a {@see Refusal}, or a {@see Disconnection}.
 */
interface Decision
{
    /**
     * Returns the reply to the server for this decision, and adds the reply's data to the effects.
     *
     * @internal
     * @return array<string, mixed>
     */
    public function reply(Effects $effects): array;
}
