<?php

/*
 * A chat with login. Messages are JSON objects with a "type".
 *
 *   the page sends                        and receives
 *   {"type":"enter"}                      {"type":"room","user":"ann","people":{ID:"ann",…},"lines":[…]}
 *   {"type":"say","text":"hello"}         {"type":"say","id":…,"user":"ann","text":"hello"}, like everyone in the room
 *                                         {"type":"join","id":ID,"user":"bob"}, {"type":"leave","id":ID}
 *
 * People have the ids of their connections: a user with two tabs is listed twice.
 */

declare(strict_types=1);

require_once __DIR__ . '/veche.php';
require_once __DIR__ . '/accounts.php';

const ROOM = 'room:lobby';
const LOGIN_SECONDS = 12 * 3600;

$accounts = new Accounts(__DIR__ . '/data/accounts.json');
$key = Veche\Token\Key::secret(trim((string) file_get_contents(__DIR__ . '/token.key')));
$tokens = new Veche\Token\Tokens($key, ttl: LOGIN_SECONDS);
$app = Veche\App::create();

// ------------------------------------------------------------------------------------------------ the chat

function tell(Veche\Connection $conn, array $message): void
{
    $conn->send(json_encode($message, JSON_THROW_ON_ERROR));
}

/** Returns the users in the room by the ids of their connections. */
function people(Veche\App $app): object
{
    return (object) array_column($app->client()->presence(ROOM), 'user', 'client');
}

// Veche has checked the token, so $conn->user is logged in.
$app->open(fn (Veche\Connection $conn) => $conn->subscribe(ROOM));

$app->message(function (Veche\Connection $conn, string $data) use ($app): void {
    // Clients may send anything. An exception would close the connection with 1011.
    $message = json_decode($data, true);
    $text = is_array($message) ? $message['text'] ?? '' : '';
    switch (is_array($message) ? $message['type'] ?? '' : '') {
        case 'enter':
            $lines = array_map(fn ($one) => $one->data, $app->client()->history(ROOM, limit: 100)->publications);
            $said = array_values(array_filter($lines, fn ($line) => $line['type'] === 'say'));
            tell($conn, ['type' => 'room', 'user' => $conn->user, 'people' => people($app), 'lines' => $said]);
            $app->publishTo(ROOM, ['type' => 'join', 'id' => $conn->id, 'user' => $conn->user]);
            break;
        case 'say':
            if (is_string($text) && $text !== '') {
                $id = bin2hex(random_bytes(8));
                $app->publishTo(ROOM, ['type' => 'say', 'id' => $id, 'user' => $conn->user, 'text' => $text]);
            }
            break;
    }
});

// Runs however the connection ends: a closed tab, a lost network, a logout.
$app->close(fn (Veche\Connection $conn) => $app->publishTo(ROOM, ['type' => 'leave', 'id' => $conn->id]));

// ------------------------------------------------------------------------------------------------ the login

function withLogin(string $token, int $seconds, array $body): Veche\Response
{
    // Behind HTTPS add "; Secure".
    $cookie = "login=$token; Path=/; HttpOnly; SameSite=Strict; Max-Age=$seconds";
    $headers = ['Content-Type' => 'application/json', 'Set-Cookie' => $cookie];
    return new Veche\Response(200, json_encode($body, JSON_THROW_ON_ERROR), $headers);
}

function refusal(int $status, string $why): Veche\Response
{
    return Veche\Response::json(['why' => $why], $status);
}

$app->request(function (Veche\Request $request) use ($app, $accounts, $tokens): Veche\Response {
    if ("$request->method $request->path" === 'GET /account/me') {
        return $request->user === null ? refusal(401, '') : Veche\Response::json(['user' => $request->user]);
    }
    // HTML forms on other sites can't send JSON.
    if ($request->method !== 'POST' || $request->header('Content-Type') !== 'application/json') {
        return refusal(400, 'a POST with JSON, please');
    }
    $form = json_decode($request->body, true);
    [$name, $password] = [$form['name'] ?? null, $form['password'] ?? null];
    switch ($request->path) {
        case '/account/logout':
            // The browser deletes the token. invalidateUserTokens() would also revoke copies on all
            // devices.
            if ($request->user !== null) {
                $app->client()->disconnect($request->user);
            }
            return withLogin('', 0, []);
        case '/account/register':
        case '/account/login':
            if (!is_string($name) || !is_string($password)) {
                return refusal(400, 'A name and a password, please.');
            }
            $why = $request->path === '/account/login'
                ? $accounts->check($name, $password)
                : $accounts->create($name, $password);
            return $why === null
                ? withLogin($tokens->connection($name), LOGIN_SECONDS, ['user' => $name])
                : refusal(403, $why);
        default:
            return refusal(404, 'there is nothing here');
    }
});

$app->run();
