<?php

declare(strict_types=1);

/*
 * Writes docs/reference/php.md from the comments of the public classes. With --check the script only reports whether
 * the page is up to date.
 */

namespace Veche\Build;

require __DIR__ . '/Source.php';
require __DIR__ . '/Comment.php';
require __DIR__ . '/Page.php';
require __DIR__ . '/output.php';

$sources = Source::all(dirname(__DIR__) . '/src');
foreach ($sources as $source) {
    require_once $source->path;
}
$classes = array_map(static fn (Source $source): string => $source->class, $sources);
$page = (new Page(array_values(array_filter($classes, static fn (string $one): bool => !is_file($one)))))->render();
output(dirname(__DIR__, 3) . '/docs/reference/php.md', $page, in_array('--check', $argv, true));
