<?php

declare(strict_types=1);

namespace Veche\Build;

/**
 * Writes a generated file, or ends the program with status 1 if it only checks and the file differs.
 */
function output(string $path, string $content, bool $isCheck): void
{
    $name = basename($path);
    if (!$isCheck) {
        file_put_contents($path, $content);
        echo "wrote $name\n";
    } elseif (!is_file($path) || file_get_contents($path) !== $content) {
        fwrite(STDERR, "$name is out of date: run the same program without --check\n");
        exit(1);
    } else {
        echo "$name is up to date\n";
    }
}
