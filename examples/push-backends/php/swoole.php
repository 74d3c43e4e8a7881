<?php

/*
 * Pushes in the format of Swoole: sends {"command":"update_data","user":"tester01"} over a WebSocket on the public
 * port. The user receives this frame.
 *
 *     php swoole.php tester01
 */

declare(strict_types=1);

require __DIR__ . '/../../../sdk/php/veche.php';
require __DIR__ . '/common.php';

program(['USER'], static function (string $user): void {
    order(address('VECHE_PUBLIC', 'ws://127.0.0.1:8080') . '/swoole', ['command' => 'update_data', 'user' => $user]);
});
