<?php

require_once __DIR__ . '/veche.php';

$app = Veche\App::create();
$app->message(fn (Veche\Connection $conn, string $data) => $conn->send($data));
$app->run();
