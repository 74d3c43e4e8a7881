<?php

declare(strict_types=1);

namespace Veche\Worker;

use Veche\Binary;
use Veche\Exception\CallerException;
use Veche\Exception\ServerException;

/**
 * Converts values of databases to and from bytes, in the form of the runtime protocol.
 *
 * @internal
 */
final class Values
{
    private const NULL = 0;
    private const FALSE = 1;
    private const TRUE = 2;
    private const NUMBER = 3;
    private const BYTES = 4;
    private const LIST = 5;
    private const MAP = 6;
    private const ERROR = 7;

    /** Up to this value every integer is exact as a 64-bit float. */
    private const WHOLE_MAX = 1 << 53;

    private int $at = 0;

    private function __construct(private readonly string $bytes)
    {
    }

    /**
     * @param iterable<mixed> $values
     * @throws CallerException
     */
    public static function encode(iterable $values): string
    {
        $bytes = '';
        foreach ($values as $value) {
            $bytes .= self::one($value);
        }
        return $bytes;
    }

    /**
     * @return list<mixed>
     * @throws ServerException
     */
    public static function decode(string $bytes): array
    {
        $reader = new self($bytes);
        $values = [];
        while ($reader->at < strlen($bytes)) {
            $values[] = $reader->next();
        }
        return $values;
    }

    /**
     * Encodes one value. It may also be a list or a map, which occur in results of Redis.
     */
    public static function one(mixed $value): string
    {
        return match (true) {
            $value === null => chr(self::NULL),
            is_bool($value) => chr($value ? self::TRUE : self::FALSE),
            is_int($value) && abs($value) > self::WHOLE_MAX => self::one((string) $value),
            is_int($value), is_float($value) => pack('Ce', self::NUMBER, $value),
            is_string($value) => pack('CV', self::BYTES, strlen($value)) . $value,
            $value instanceof Binary => self::one($value->bytes),
            is_array($value) && array_is_list($value)
                => pack('CV', self::LIST, count($value)) . self::encode($value),
            is_array($value) => pack('CV', self::MAP, count($value)) . implode('', array_map(
                static fn (string|int $key, mixed $one): string => self::one((string) $key) . self::one($one),
                array_keys($value),
                $value,
            )),
            default => throw new CallerException('a value must be null, a boolean, a number or a string'),
        };
    }

    private function next(): mixed
    {
        $kind = ord($this->take(1));
        switch ($kind) {
            case self::NULL:
                return null;
            case self::FALSE:
            case self::TRUE:
                return $kind === self::TRUE;
            case self::NUMBER:
                $number = unpack('e', $this->take(8))[1];
                $isWhole = floor($number) === $number && abs($number) <= self::WHOLE_MAX;
                return $isWhole ? (int) $number : $number;
            case self::BYTES:
                return $this->take($this->count());
            case self::LIST:
                return array_map(fn (): mixed => $this->next(), array_fill(0, $this->count(), null));
            case self::MAP:
                $map = [];
                for ($left = $this->count(); $left > 0; $left--) {
                    $key = $this->next();
                    $map[is_string($key) || is_int($key) ? $key : self::one($key)] = $this->next();
                }
                return $map;
            case self::ERROR:
                return new CallerException($this->take($this->count()));
            default:
                throw new ServerException("a value of the unknown kind $kind");
        }
    }

    private function count(): int
    {
        return unpack('V', $this->take(4))[1];
    }

    private function take(int $length): string
    {
        $taken = substr($this->bytes, $this->at, $length);
        $this->at += $length;
        return strlen($taken) === $length ? $taken : throw new ServerException('a truncated value');
    }
}
