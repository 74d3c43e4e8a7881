<?php

declare(strict_types=1);

/*
 * Runs Autobahn's test cases against the WebSocket client:
 *
 *     tests/conformance/autobahn_suite.py fast --client php THIS_FILE
 */

use Veche\Exception\VecheException;
use Veche\WebSocket\Client;

require __DIR__ . '/bootstrap.php';

$base = 'ws://127.0.0.1:' . getenv('WS_PORT');
$agent = (string) getenv('AGENT');
$open = static fn (string $path): Client
    => Client::connect("$base$path", messageBytesMax: 32 << 20, fragmentsMax: 100000);
$count = (int) $open('/getCaseCount')->receive(10)->data;
for ($case = 1; $case <= $count; $case++) {
    $socket = $open("/runCase?case=$case&agent=$agent");
    try {
        while (true) {
            $message = $socket->receive(60);
            $message->isBinary ? $socket->sendBinary($message->data) : $socket->send($message->data);
        }
    } catch (VecheException) {
        $socket->close();
    }
}
$open("/updateReports?agent=$agent")->close();
