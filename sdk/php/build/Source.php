<?php

declare(strict_types=1);

namespace Veche\Build;

use RuntimeException;

/**
 * One file of `src`: its namespace, the class that it declares, and the classes that have to be declared before that
 * class.
 */
final class Source
{
    private function __construct(
        public readonly string $path,
        public readonly string $class,
        public readonly string $code,
        /** @var list<string> */
        public readonly array $needs,
    ) {
    }

    /**
     * Reads all files of the folder, in an order in which each class comes after those that it extends.
     *
     * @return list<self>
     */
    public static function all(string $folder): array
    {
        $sources = [];
        $files = new \RecursiveIteratorIterator(new \RecursiveDirectoryIterator($folder));
        foreach ($files as $file) {
            if ($file->getExtension() === 'php') {
                $source = self::read($file->getPathname());
                $sources[$source->class] = $source;
            }
        }
        ksort($sources);
        $ordered = [];
        $add = static function (self $source) use (&$add, &$ordered, $sources): void {
            foreach ($source->needs as $class) {
                if (isset($sources[$class]) && !isset($ordered[$class])) {
                    $add($sources[$class]);
                }
            }
            $ordered[$source->class] ??= $source;
        };
        array_map($add, $sources);
        return array_values($ordered);
    }

    private static function read(string $path): self
    {
        $code = (string) file_get_contents($path);
        $isClass = preg_match('/^(?:abstract |final )*(?:class|interface|enum|trait) (\w+)([^{]*)\{/m', $code, $head);
        if (preg_match('/^namespace ([\w\\\\]+);$/m', $code, $namespace) !== 1) {
            throw new RuntimeException("$path: no namespace");
        }
        preg_match_all('/^use ([\w\\\\]+);$/m', $code, $uses);
        $imported = [];
        foreach ($uses[1] as $name) {
            $imported[substr((string) strrchr("\\$name", '\\'), 1)] = $name;
        }
        // `: int` of an enumeration names no class.
        $parents = preg_replace('/^:\s*\w+|\b(?:extends|implements)\b/', ' ', $head[2] ?? '');
        $names = preg_split('/[\s,]+/', (string) $parents, -1, PREG_SPLIT_NO_EMPTY);
        $full = static fn (string $name): string => $imported[$name] ?? "$namespace[1]\\$name";
        $body = (string) preg_replace('/^<\?php\s+declare\(strict_types=1\);\s+/', '', $code);
        // A file that declares only functions has no class, so its path is the key.
        $class = $isClass === 1 ? "$namespace[1]\\$head[1]" : $path;
        return new self($path, $class, rtrim($body) . "\n", array_map($full, $names ?: []));
    }
}
