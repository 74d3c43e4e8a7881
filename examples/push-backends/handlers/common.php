<?php

declare(strict_types=1);

/**
 * Returns a handler of messages that are JSON objects. The back end receives the error of an
 * invalid message; without the catch the error would end the connection.
 *
 * @param callable(array<string, mixed>): void $obey
 */
function obeying(callable $obey): Closure
{
    return static function (Veche\Connection $conn, string $data) use ($obey): void {
        try {
            $order = json_decode($data, true, flags: JSON_THROW_ON_ERROR);
            $obey(is_array($order) ? $order : throw new UnexpectedValueException('an order is an object'));
        } catch (JsonException | UnexpectedValueException | Veche\Exception\VecheException $error) {
            $conn->send(json_encode(['error' => $error->getMessage()], JSON_THROW_ON_ERROR));
        }
    };
}

/**
 * Returns a field of an order. Throws an exception if the field is not a string.
 *
 * @param array<string, mixed> $order
 */
function text(array $order, string $name): string
{
    $text = $order[$name] ?? null;
    return is_string($text) ? $text : throw new UnexpectedValueException("$name has to be a text");
}
