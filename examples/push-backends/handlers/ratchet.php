<?php

/*
 * Pushes in Ratchet's format: {"command":"update_data","user":"tester01"} pushes a text that is fixed for the command.
 */

declare(strict_types=1);

require_once __DIR__ . '/../../../sdk/php/veche.php';
require_once __DIR__ . '/common.php';

$app = Veche\App::create();
$app->message(obeying(function (array $order) use ($app): void {
    // The texts by command are in php.toml.
    $text = $app->options()['texts'][text($order, 'command')] ?? throw new UnexpectedValueException('no such command');
    $app->client()->push(text($order, 'user'), $text);
}));
$app->run();
