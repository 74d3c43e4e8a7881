<?php

declare(strict_types=1);

namespace Veche\Tests\Unit;

use PHPUnit\Framework\TestCase;
use Veche\Exception\CallerException;
use Veche\Token\Key;
use Veche\Token\Tokens;

final class TokensTest extends TestCase
{
    public function testAKnownToken(): void
    {
        // The token that jwt.io shows.
        $expected = 'eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9'
            . '.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ'
            . '.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c';
        $claims = ['sub' => '1234567890', 'name' => 'John Doe', 'iat' => 1516239022];
        self::assertSame($expected, Key::secret('your-256-bit-secret')->sign($claims));
    }

    /**
     * @testWith ["HS256", "sha256"]
     *           ["HS384", "sha384"]
     *           ["HS512", "sha512"]
     */
    public function testSecrets(string $algorithm, string $hash): void
    {
        $token = Key::secret('secret', $algorithm, 'k1')->sign(['sub' => 'ann']);
        [$header, $claims, $signature] = explode('.', $token);
        self::assertSame(['alg' => $algorithm, 'typ' => 'JWT', 'kid' => 'k1'], self::json($header));
        self::assertSame(hash_hmac($hash, "$header.$claims", 'secret', true), self::bytes($signature));
    }

    /**
     * @testWith ["RS256", "sha256"]
     *           ["RS384", "sha384"]
     *           ["RS512", "sha512"]
     */
    public function testRsa(string $algorithm, string $hash): void
    {
        [$private, $public] = self::pair(['private_key_type' => OPENSSL_KEYTYPE_RSA, 'private_key_bits' => 2048]);
        [$header, $claims, $signature] = explode('.', Key::pem($private, $algorithm)->sign(['sub' => 'ann']));
        self::assertSame($algorithm, self::json($header)['alg']);
        self::assertSame(1, openssl_verify("$header.$claims", self::bytes($signature), $public, $hash));
    }

    /**
     * @testWith ["prime256v1", "ES256", "sha256", 64]
     *           ["secp384r1", "ES384", "sha384", 96]
     *           ["secp521r1", "ES512", "sha512", 132]
     */
    public function testEllipticCurves(string $curve, string $algorithm, string $hash, int $bytes): void
    {
        [$private, $public] = self::pair(['private_key_type' => OPENSSL_KEYTYPE_EC, 'curve_name' => $curve]);
        $key = Key::pem($private);
        self::assertSame($algorithm, $key->algorithm);
        // The numbers of a signature vary in length: about one in 256 is a byte shorter.
        for ($i = 0; $i < ($algorithm === 'ES256' ? 300 : 30); $i++) {
            [$header, $claims, $signature] = explode('.', $key->sign(['sub' => "ann$i"]));
            $raw = self::bytes($signature);
            self::assertSame($bytes, strlen($raw));
            $der = self::sequence(substr($raw, 0, $bytes >> 1), substr($raw, $bytes >> 1));
            self::assertSame(1, openssl_verify("$header.$claims", $der, $public, $hash));
        }
    }

    /**
     * @return iterable<array{callable(): mixed, string}>
     */
    public static function mistakes(): iterable
    {
        [$rsa] = self::pair(['private_key_type' => OPENSSL_KEYTYPE_RSA, 'private_key_bits' => 2048]);
        [$other] = self::pair(['private_key_type' => OPENSSL_KEYTYPE_EC, 'curve_name' => 'secp256k1']);
        $tokens = new Tokens(Key::secret('s'));
        yield [fn () => Key::secret(''), 'empty'];
        yield [fn () => Key::secret('s', 'RS256'), 'not an algorithm for a secret'];
        yield [fn () => Key::secret('s', 'none'), 'not an algorithm for a secret'];
        yield [fn () => Key::pem('s'), 'not a private key'];
        yield [fn () => Key::pem($rsa, 'ES256'), 'not an algorithm for this key'];
        yield [fn () => Key::pem($rsa, 'HS256'), 'not an algorithm for this key'];
        yield [fn () => Key::pem($other), 'P-256'];
        yield [fn () => new Tokens(Key::secret('s'), 0), 'at least 1 second'];
        yield [fn () => $tokens->subscription('ann', ''), 'channel is empty'];
        yield [fn () => $tokens->connection('ann', claims: ['channel' => 'c']), 'subscription token'];
        yield [fn () => $tokens->connection("\xff"), 'JSON'];
    }

    /**
     * @dataProvider mistakes
     */
    public function testMistakesAreNamed(callable $make, string $message): void
    {
        $this->expectException(CallerException::class);
        $this->expectExceptionMessage($message);
        $make();
    }

    public function testClaimsOfConnections(): void
    {
        $before = time();
        $tokens = new Tokens(Key::secret('s'), 60, 'https://shop.example', ['chat']);
        $claims = self::claims($tokens->connection(
            'ann',
            expireAt: 0,
            info: ['n' => 'Ann'],
            meta: ['shop' => 7],
            channels: ['news'],
            subs: ['chat:1' => ['info' => ['r' => 1]], 'chat:2' => []],
            id: 't1',
            claims: ['extra' => true],
        ));
        self::assertEqualsWithDelta($before + 60, $claims->exp, 2);
        self::assertEqualsWithDelta($before, $claims->iat, 2);
        unset($claims->exp, $claims->iat);
        self::assertEquals(json_decode('{"extra":true,"expire_at":0,"info":{"n":"Ann"},"meta":{"shop":7},
            "channels":["news"],"subs":{"chat:1":{"info":{"r":1}},"chat:2":{}},"sub":"ann",
            "iss":"https://shop.example","aud":["chat"],"jti":"t1"}'), $claims);
        $plain = self::claims((new Tokens(Key::secret('s')))->connection(''));
        self::assertSame(['iat', 'exp'], array_keys((array) $plain));
    }

    public function testClaimsOfSubscriptions(): void
    {
        $tokens = new Tokens(Key::secret('s'), 60);
        $claims = self::claims($tokens->subscription(
            'ann',
            'chat:$42',
            info: 1,
            data: 2,
            client: 'x',
            override: ['presence' => false],
            claims: ['exp' => 99],
        ));
        unset($claims->iat);
        self::assertEquals(json_decode('{"exp":99,"channel":"chat:$42","info":1,"data":2,"client":"x",
            "override":{"presence":{"value":false}},"sub":"ann"}'), $claims);
    }

    private static function claims(string $token): object
    {
        return json_decode(self::bytes(explode('.', $token)[1]), false, 512, JSON_THROW_ON_ERROR);
    }

    /**
     * @return array<string, mixed>
     */
    private static function json(string $base64): array
    {
        return json_decode(self::bytes($base64), true, 512, JSON_THROW_ON_ERROR);
    }

    private static function bytes(string $base64): string
    {
        return (string) base64_decode(strtr($base64, '-_', '+/'), true);
    }

    /**
     * @param array<string, mixed> $options
     * @return array{string, string}
     */
    private static function pair(array $options): array
    {
        $key = openssl_pkey_new($options);
        openssl_pkey_export($key, $private);
        return [$private, openssl_pkey_get_details($key)['key']];
    }

    /**
     * Writes two numbers as a DER sequence.
     */
    private static function sequence(string ...$numbers): string
    {
        $all = '';
        foreach ($numbers as $number) {
            $number = ltrim($number, "\0");
            $number = ord($number[0]) > 127 ? "\0$number" : $number;
            $all .= "\x02" . chr(strlen($number)) . $number;
        }
        $length = strlen($all) > 127 ? "\x81" . chr(strlen($all)) : chr(strlen($all));
        return "\x30$length$all";
    }
}
