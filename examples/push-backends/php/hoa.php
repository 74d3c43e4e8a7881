<?php

/*
 * Pushes like a back end with the Hoa library: sends {"user":"tester01","command":"111111"} over a WebSocket to the
 * internal port. The user gets the command.
 *
 *     php hoa.php tester01 111111
 */

declare(strict_types=1);

require __DIR__ . '/../../../sdk/php/veche.php';
require __DIR__ . '/common.php';

program(['USER', 'COMMAND'], static function (string $user, string $command): void {
    order(address('VECHE_INTERNAL', 'ws://127.0.0.1:8081') . '/hoa', ['user' => $user, 'command' => $command]);
});
