<?php

declare(strict_types=1);

/*
 * Writes veche.php, the whole SDK in one file for projects without Composer. With --check it only reports whether the
 * file is up to date.
 */

namespace Veche\Build;

require __DIR__ . '/Source.php';
require __DIR__ . '/output.php';

$head = <<<'PHP'
    <?php

    /*
     * The PHP SDK of Veche in one file, for projects without Composer:
     *
     *     require 'veche.php';
     *     $veche = new Veche\Client('http://127.0.0.1:8081', key: 'demo');
     *     $veche->push('tester01', 'hello');
     *
     * Generated from sdk/php/src by sdk/php/build/single.php; changes belong there. MIT or Apache-2.0.
     */

    declare(strict_types=1);

    PHP;
$parts = array_map(static fn (Source $source): string => $source->code, Source::all(dirname(__DIR__) . '/src'));
output(dirname(__DIR__) . '/veche.php', $head . "\n" . implode("\n", $parts), in_array('--check', $argv, true));
