<?php

declare(strict_types=1);

namespace Veche\Result;

use Veche\Exception\ServerException;

/**
 * Typed access to the members of a decoded answer.
 *
 * @internal
 */
final class Fields
{
    /**
     * @param array<array-key, mixed> $values
     */
    public function __construct(private readonly array $values)
    {
    }

    /**
     * Decodes a JSON object. Returns null for any other text.
     */
    public static function decode(string $json): ?self
    {
        $values = json_decode($json, true, 512, JSON_BIGINT_AS_STRING);
        return is_array($values) ? new self($values) : null;
    }

    public function has(string $name): bool
    {
        return isset($this->values[$name]);
    }

    public function value(string $name): mixed
    {
        return $this->values[$name] ?? null;
    }

    public function int(string $name, ?int $default = null): int
    {
        $value = $this->values[$name] ?? $default;
        return is_int($value) ? $value : throw self::unexpected($name, 'an integer');
    }

    public function optionalInt(string $name): ?int
    {
        return $this->has($name) ? $this->int($name) : null;
    }

    public function string(string $name, ?string $default = null): string
    {
        $value = $this->values[$name] ?? $default;
        return is_string($value) ? $value : throw self::unexpected($name, 'a string');
    }

    public function optionalString(string $name): ?string
    {
        return $this->has($name) ? $this->string($name) : null;
    }

    public function bool(string $name, bool $default): bool
    {
        $value = $this->values[$name] ?? $default;
        return is_bool($value) ? $value : throw self::unexpected($name, 'a boolean');
    }

    public function object(string $name): self
    {
        return new self($this->array($name));
    }

    /**
     * Returns the result of `$each` for each element of a list or of an object of objects.
     *
     * @template T
     * @param callable(self): T $each
     * @return array<array-key, T>
     */
    public function map(string $name, callable $each): array
    {
        $found = [];
        foreach ($this->array($name) as $key => $element) {
            if (!is_array($element)) {
                throw self::unexpected($name, 'a list of objects');
            }
            $found[$key] = $each(new self($element));
        }
        return $found;
    }

    /**
     * @return array<array-key, mixed>
     */
    public function array(string $name): array
    {
        $value = $this->values[$name] ?? null;
        return is_array($value) ? $value : throw self::unexpected($name, 'a list or an object');
    }

    private static function unexpected(string $name, string $kind): ServerException
    {
        return new ServerException("unexpected answer: \"$name\" is not $kind", 0, true);
    }
}
