<?php

/*
 * A message as a back end with Hoa sends it: {"user":"tester01","command":"111111"} pushes 111111 to tester01.
 */

declare(strict_types=1);

require_once __DIR__ . '/../../../sdk/php/veche.php';
require_once __DIR__ . '/common.php';

$app = Veche\App::create();
$app->message(obeying(function (array $order) use ($app): void {
    $app->client()->push(text($order, 'user'), text($order, 'command'));
}));
$app->run();
