<?php
// A back end in PHP that needs only a plain socket and no extension. If the answer is not needed, three lines suffice:
//
//   $veche = stream_socket_client('tcp://127.0.0.1:1234');
//   fwrite($veche, json_encode(['user' => 'tester01', 'data' => 'hello']) . "\n");
//   fclose($veche);
//
// This program also reads the answer, and exits with 1 if Veche is not running or refuses:
//
//   php push.php tester01 "hello"

declare(strict_types=1);

if ($argc !== 3) {
    fwrite(STDERR, "usage: php push.php USER MESSAGE\n");
    exit(2);
}

/**
 * Pushes a message to all connections of a user. Returns the number of connections to which Veche passed the message, or null
 * with the engine on Redis, where the number is unknown.
 */
function push(string $user, mixed $message): ?int
{
    $veche = @stream_socket_client('tcp://' . (getenv('VECHE_PUSH') ?: '127.0.0.1:1234'), $code, $why, 2.0);
    if ($veche === false) {
        throw new RuntimeException("Veche does not answer: $why");
    }
    stream_set_timeout($veche, 2);
    fwrite($veche, json_encode(['user' => $user, 'data' => $message, 'ack' => true], JSON_THROW_ON_ERROR) . "\n");
    $answer = json_decode(fgets($veche) ?: 'null', true);
    fclose($veche);

    $result = $answer['result']
        ?? throw new RuntimeException($answer['error']['message'] ?? 'no answer from Veche');

    return $result['handed'] ?? null;
}

try {
    $handed = push($argv[1], $argv[2]);
    echo $handed === null ? "published\n" : "handed to $handed\n";
} catch (RuntimeException | JsonException $error) {
    fwrite(STDERR, $error->getMessage() . "\n");
    exit(1);
}
