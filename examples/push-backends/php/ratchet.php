<?php

/*
 * Pushes like a back end with Ratchet: sends {"command":"update_data","user":"tester01"} over a WebSocket to the
 * internal port. The user gets a text that belongs to the command.
 *
 *     php ratchet.php tester01 update_data
 */

declare(strict_types=1);

require __DIR__ . '/../../../sdk/php/veche.php';
require __DIR__ . '/common.php';

program(['USER', 'COMMAND'], static function (string $user, string $command): void {
    order(address('VECHE_INTERNAL', 'ws://127.0.0.1:8081') . '/ratchet', ['command' => $command, 'user' => $user]);
});
