<?php

declare(strict_types=1);

namespace Veche\Pool;

use Veche\Exception\VecheException;
use Veche\Worker\Engine;
use Veche\Worker\Frame;
use Veche\Worker\Values;

/**
 * A MySQL or MariaDB database over Veche's pool of connections. It needs no driver, and other
 * handlers of the worker run during a statement.
 *
 * ```php
 * $db = $app->mysql('shop');
 * $app->message(function (Veche\Connection $conn, string $data) use ($db): void {
 *     $name = $db->value('SELECT name FROM users WHERE id = ?', (int) $data);
 *     $conn->send($name ?? 'nobody');
 * });
 * ```
 *
 * Each statement may use another connection, so a transaction can't span several statements.
 * Numbers are int or float and other values are strings; whole numbers beyond 2^53, decimals and
 * dates are strings too.
 */
final class Mysql
{
    /**
     * @internal {@see \Veche\App::mysql()} makes one.
     */
    public function __construct(private readonly string $database)
    {
    }

    /**
     * Returns all rows of a result, each with its values by column.
     *
     * @param mixed ...$values The values of the statement, one for each `?`.
     * @return list<array<string, mixed>>
     * @throws VecheException
     */
    public function rows(string $sql, mixed ...$values): array
    {
        return self::table($this->ask('rows', $sql, $values));
    }

    /**
     * Returns the first row of a result; null where there is none.
     *
     * @param mixed ...$values The values of the statement, one for each `?`.
     * @return array<string, mixed>|null
     * @throws VecheException
     */
    public function row(string $sql, mixed ...$values): ?array
    {
        return self::table($this->ask('row', $sql, $values))[0] ?? null;
    }

    /**
     * Returns the first value of the first row; null where there is none.
     *
     * @param mixed ...$values The values of the statement, one for each `?`.
     * @throws VecheException
     */
    public function value(string $sql, mixed ...$values): mixed
    {
        return Values::decode((string) $this->ask('value', $sql, $values)->part(0))[0] ?? null;
    }

    /**
     * Carries out a statement that changes something.
     *
     * @param mixed ...$values The values of the statement, one for each `?`.
     * @throws VecheException
     */
    public function execute(string $sql, mixed ...$values): Changes
    {
        $head = $this->ask('changes', $sql, $values)->head;
        return new Changes($head['affected'] ?? 0, $head['last_id'] ?? null);
    }

    /**
     * @param array<mixed> $values
     */
    private function ask(string $wanted, string $sql, array $values): Frame
    {
        $head = ['database' => $this->database, 'sql' => $sql, 'wanted' => $wanted];
        return Engine::current()->call('mysql', $head, $values === [] ? null : Values::encode($values));
    }

    /**
     * @return list<array<string, mixed>>
     */
    private static function table(Frame $result): array
    {
        $columns = $result->head['columns'] ?? [];
        $values = Values::decode((string) $result->part(0));
        if ($columns === [] || $values === []) {
            return [];
        }
        $row = static fn (array $values): array => array_combine($columns, $values);
        return array_map($row, array_chunk($values, count($columns)));
    }
}
