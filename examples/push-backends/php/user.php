<?php

/*
 * A user: prints the messages that arrive. On other paths than `/`, the first message names the user.
 *
 *     php user.php tester01 /
 *     php user.php tester01 /swoole
 */

declare(strict_types=1);

require __DIR__ . '/../../../sdk/php/veche.php';
require __DIR__ . '/common.php';

program(['USER', 'PATH'], static function (string $user, string $path): void {
    $base = address('VECHE_PUBLIC', 'ws://127.0.0.1:8080');
    $query = $path === '/' ? '?' . http_build_query(['user' => $user]) : '';
    $socket = Veche\WebSocket\Client::connect($base . $path . $query);
    if ($query === '') {
        $socket->send($user);
    }
    while (true) {
        echo $socket->receive()->data, "\n";
    }
});
