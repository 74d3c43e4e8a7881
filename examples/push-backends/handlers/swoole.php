<?php

/*
 * The protocol of a Swoole back end, all on one public port. A client's first plain message, such as
 * tester01, is its user name. The frame {"command":"update_data","user":"tester01"}, from any client,
 * is passed on to tester01 unchanged.
 */

declare(strict_types=1);

require_once __DIR__ . '/../../../sdk/php/veche.php';

// Returns the channel that stands for a user. A connection's own `user` can't be used, because it is
// fixed in the handshake, before the client sends its user name.
$channel = static fn (mixed $user): ?string =>
    is_string($user) && preg_match('/^[^\x00-\x1f\x7f]{1,100}$/D', $user) === 1 ? "swoole:$user" : null;

$app = Veche\App::create();
$app->message(function (Veche\Connection $conn, string $data) use ($app, $channel): void {
    $order = json_decode($data, true);
    if (is_array($order)) {
        $to = ($order['command'] ?? null) === 'update_data' ? $channel($order['user'] ?? null) : null;
        if ($to !== null) {
            $app->publishTo($to, $data);
        }
    } elseif ($conn->get('is_known') === null) {
        $mine = $channel($data);
        if ($mine === null) {
            $conn->close(4000, 'a name has 1 to 100 bytes');
            return;
        }
        $conn->set('is_known', true);
        $conn->subscribe($mine);
    }
});
$app->run();
