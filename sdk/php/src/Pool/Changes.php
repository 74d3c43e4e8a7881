<?php

declare(strict_types=1);

namespace Veche\Pool;

/**
 * The effect of a statement on the database.
 */
final class Changes
{
    /**
     * @param int $affected Rows that were changed.
     * @param int|null $lastId The first id that the database has generated for a new row.
     */
    public function __construct(public readonly int $affected, public readonly ?int $lastId = null)
    {
    }
}
