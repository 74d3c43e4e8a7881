<?php

declare(strict_types=1);

namespace Veche\Tests\Server;

use PHPUnit\Framework\TestCase;
use Veche\Client;
use Veche\Exception\CallerException;
use Veche\Tests\Support\Server;
use Veche\Token\Key;
use Veche\Token\Tokens;
use Veche\WebSocket\Client as Socket;

/**
 * The server accepts the tokens that the SDK makes, with each kind of key.
 */
final class TokensTest extends TestCase
{
    private ?Server $server = null;

    protected function tearDown(): void
    {
        $this->server?->stop();
    }

    /**
     * @testWith ["HS256"]
     *           ["HS384"]
     *           ["HS512"]
     *           ["RS256"]
     *           ["RS512"]
     *           ["ES256"]
     *           ["ES384"]
     *           ["ES512"]
     */
    public function testKeysOfEachKind(string $algorithm): void
    {
        [$key, $setting, $file] = self::key($algorithm);
        $server = $this->server = new Server(<<<TOML
            [[listen]]
            address = "127.0.0.1:{port}"
            [[listen]]
            address = "127.0.0.1:{internal_port}"
            role = "internal"
            [[route]]
            path = "/push"
            handler = "push"
            identity = "jwt"
            [[route]]
            path = "/connection/*"
            handler = "centrifuge"
            identity = "jwt"
            [jwt]
            $setting = "key"
            issuer = ["https://shop.example"]
            audience = ["chat"]
            [[namespace]]
            name = "chat"
            subscribe = "token"
            presence = true
            [[namespace]]
            name = ""
            subscribe = "token"
            TOML, ['key' => $file]);
        $tokens = new Tokens($key, 60, 'https://shop.example', 'chat');
        $veche = new Client($server->api());

        $headers = ['Authorization' => 'Bearer ' . $tokens->connection('ann')];
        $push = Socket::connect($server->url('/push'), $headers);
        self::assertSame(1, $veche->push('ann', 'x')->handed);
        self::assertSame('x', $push->receive(5)->data);
        $push->close();

        $token = $tokens->connection('bob', info: ['n' => 'Bob'], subs: ['chat:1' => ['info' => 7]], id: 't1');
        $bob = Socket::connect($server->url('/connection/websocket'));
        $connected = self::ask($bob, ['id' => 1, 'connect' => ['token' => $token]])['connect'];
        $client = $connected['client'];
        self::assertSame(['#bob', 'chat:1'], array_keys($connected['subs']));
        $presence = $veche->presence('chat:1')[$client];
        self::assertSame(['bob', ['n' => 'Bob'], 7], [
            $presence->user,
            $presence->connectionInfo,
            $presence->channelInfo,
        ]);
        $wrong = self::ask($bob, ['id' => 2, 'subscribe' => ['channel' => 'chat:$2']]);
        self::assertSame(103, $wrong['error']['code']);
        $token = $tokens->subscription('bob', 'chat:$2', info: 8, client: $client);
        $right = self::ask($bob, ['id' => 3, 'subscribe' => ['channel' => 'chat:$2', 'token' => $token]]);
        self::assertArrayHasKey('subscribe', $right);
        self::assertSame(8, $veche->presence('chat:$2')[$client]->channelInfo);
        $bob->close();

        try {
            $headers = ['Authorization' => 'Bearer ' . self::otherTokens($algorithm)->connection('ann')];
            Socket::connect($server->url('/push'), $headers);
            self::fail('a token of another key was let in');
        } catch (CallerException $error) {
            self::assertSame(401, $error->getCode());
        }
    }

    private static function otherTokens(string $algorithm): Tokens
    {
        return new Tokens(self::key($algorithm)[0], 60, 'https://shop.example', 'chat');
    }

    /**
     * @return array{Key, string, string} A key, the server's setting, and its file content.
     */
    private static function key(string $algorithm): array
    {
        if (str_starts_with($algorithm, 'HS')) {
            $secret = bin2hex(random_bytes(32));
            return [Key::secret($secret, $algorithm), 'secret_file', $secret];
        }
        $curves = ['ES256' => 'prime256v1', 'ES384' => 'secp384r1', 'ES512' => 'secp521r1'];
        $private = openssl_pkey_new(isset($curves[$algorithm])
            ? ['private_key_type' => OPENSSL_KEYTYPE_EC, 'curve_name' => $curves[$algorithm]]
            : ['private_key_type' => OPENSSL_KEYTYPE_RSA, 'private_key_bits' => 2048]);
        openssl_pkey_export($private, $pem);
        return [Key::pem($pem, $algorithm), 'key_file', openssl_pkey_get_details($private)['key']];
    }

    /**
     * @param array<string, mixed> $command
     * @return array<string, mixed>
     */
    private static function ask(Socket $socket, array $command): array
    {
        $socket->send(json_encode($command, JSON_THROW_ON_ERROR));
        do {
            $answer = json_decode($socket->receive(5)->data, true, 512, JSON_THROW_ON_ERROR);
        } while (($answer['id'] ?? null) !== $command['id']);
        return $answer;
    }
}
