<?php

/*
 * Like Workerman's example, sends a line of JSON over TCP: {"user":"tester01","message":"test"}.
 *
 *     php workerman.php tester01 test
 */

declare(strict_types=1);

require __DIR__ . '/../../../sdk/php/veche.php';
require __DIR__ . '/common.php';

program(['USER', 'MESSAGE'], static function (string $user, string $message): void {
    $veche = new Veche\LineClient(address('VECHE_PUSH', '127.0.0.1:1234'));
    $handed = $veche->push($user, $message)->handed;
    // With the engine on Redis the number of receivers is unknown.
    echo $handed === null ? "published\n" : "handed to $handed\n";
});
