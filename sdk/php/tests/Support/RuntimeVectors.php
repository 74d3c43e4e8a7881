<?php

declare(strict_types=1);

namespace Veche\Tests\Support;

/**
 * The test vectors of the runtime protocol. The server's tests use the same vectors.
 *
 * The folder is $VECHE_RUNTIME_VECTORS, or crates/runtime/vectors.
 */
final class RuntimeVectors
{
    /**
     * @return array<string, array<string, mixed>> The test vectors by name.
     */
    public static function read(string $file): array
    {
        $folder = getenv('VECHE_RUNTIME_VECTORS') ?: dirname(__DIR__, 4) . '/crates/runtime/vectors';
        $vectors = [];
        foreach (file("$folder/$file.jsonl", FILE_IGNORE_NEW_LINES | FILE_SKIP_EMPTY_LINES) ?: [] as $line) {
            $vector = json_decode($line, true, 512, JSON_THROW_ON_ERROR);
            $vectors[$vector['name']] = $vector;
        }
        return $vectors;
    }

    /**
     * @param array<string, mixed> $vector
     */
    public static function wire(array $vector): string
    {
        return (string) hex2bin($vector['wire']);
    }

    /**
     * @param array<string, mixed> $vector
     */
    public static function payload(array $vector): string
    {
        return isset($vector['payload_hex']) ? (string) hex2bin($vector['payload_hex']) : $vector['payload'];
    }
}
