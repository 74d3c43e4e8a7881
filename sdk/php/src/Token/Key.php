<?php

declare(strict_types=1);

namespace Veche\Token;

use OpenSSLAsymmetricKey;
use Veche\Exception\CallerException;
use Veche\Json;

/**
 * A key that signs tokens: a secret (HS256, HS384, HS512), an RSA key (RS256, RS384, RS512), or a key on P-256, P-384
 * or P-521 (ES256, ES384, ES512).
 *
 * ```php
 * $key = Veche\Token\Key::secret(trim(file_get_contents('/etc/veche/jwt.secret')));
 * $key = Veche\Token\Key::pem(file_get_contents('/etc/shop/private.pem'));
 * ```
 */
final class Key
{
    /** The length in bytes of r and of s in a signature, by algorithm. */
    private const EC_BYTES = ['ES256' => 32, 'ES384' => 48, 'ES512' => 66];
    private const EC_CURVES = ['prime256v1' => 'ES256', 'secp384r1' => 'ES384', 'secp521r1' => 'ES512'];

    private function __construct(
        public readonly string $algorithm,
        private readonly string|OpenSSLAsymmetricKey $key,
        public readonly ?string $id,
    ) {
    }

    /**
     * Creates a key from a secret that the server knows too (`secret_file` of `[jwt]`).
     *
     * @param string $algorithm `HS256`, `HS384` or `HS512`.
     * @param string|null $id `kid` of the tokens' header.
     * @throws CallerException
     */
    public static function secret(string $secret, string $algorithm = 'HS256', ?string $id = null): self
    {
        if ($secret === '') {
            throw new CallerException('the secret is empty');
        }
        if (!in_array($algorithm, ['HS256', 'HS384', 'HS512'], true)) {
            throw new CallerException("$algorithm is not an algorithm for a secret");
        }
        return new self($algorithm, $secret, $id);
    }

    /**
     * Creates a key from a private key whose public half the server knows (`key_file` or `jwks` of `[jwt]`). Requires
     * ext-openssl.
     *
     * @param string $pem The private key.
     * @param string|null $algorithm By default the algorithm of the key's curve, or RS256 for an RSA key.
     * @param string|null $id `kid` of the tokens' header.
     * @throws CallerException
     */
    public static function pem(
        string $pem,
        ?string $algorithm = null,
        ?string $passphrase = null,
        ?string $id = null,
    ): self {
        if (!extension_loaded('openssl')) {
            throw new CallerException('ext-openssl is not loaded');
        }
        $key = openssl_pkey_get_private($pem, $passphrase);
        if ($key === false) {
            throw new CallerException('the text is not a private key in PEM, or the passphrase is wrong');
        }
        $details = openssl_pkey_get_details($key);
        $allowed = match ($details['type']) {
            OPENSSL_KEYTYPE_RSA => ['RS256', 'RS384', 'RS512'],
            OPENSSL_KEYTYPE_EC => array_filter([self::EC_CURVES[$details['ec']['curve_name']] ?? null]),
            default => [],
        };
        if ($allowed === []) {
            throw new CallerException('the key must be RSA or on P-256, P-384 or P-521');
        }
        $algorithm ??= $allowed[0];
        if (!in_array($algorithm, $allowed, true)) {
            throw new CallerException("$algorithm is not an algorithm for this key");
        }
        return new self($algorithm, $key, $id);
    }

    /**
     * Returns a signed token with these claims (RFC 7515, compact form).
     *
     * @param array<string, mixed> $claims
     * @throws CallerException if the claims can't be expressed in JSON
     */
    public function sign(array $claims): string
    {
        $header = ['alg' => $this->algorithm, 'typ' => 'JWT'] + ($this->id === null ? [] : ['kid' => $this->id]);
        $signed = self::base64(Json::encode($header)) . '.' . self::base64(Json::encode((object) $claims));
        return "$signed." . self::base64($this->signature($signed));
    }

    private function signature(string $signed): string
    {
        $hash = 'sha' . substr($this->algorithm, 2);
        if (is_string($this->key)) {
            return hash_hmac($hash, $signed, $this->key, true);
        }
        if (!openssl_sign($signed, $signature, $this->key, $hash)) {
            throw new CallerException('openssl can\'t sign with this key: ' . openssl_error_string());
        }
        $bytes = self::EC_BYTES[$this->algorithm] ?? null;
        return $bytes === null ? $signature : self::concatenated($signature, $bytes);
    }

    /**
     * Converts an ECDSA signature from DER, a sequence of two integers, to the concatenation of r and s (RFC 7518,
     * section 3.4).
     */
    private static function concatenated(string $der, int $bytes): string
    {
        // The sequence of P-521 is longer than 127 bytes, so its length takes two bytes.
        $at = ord($der[1]) === 0x81 ? 3 : 2;
        $numbers = '';
        for ($i = 0; $i < 2; $i++) {
            $length = ord($der[$at + 1]);
            $number = ltrim(substr($der, $at + 2, $length), "\0");
            $numbers .= str_pad($number, $bytes, "\0", STR_PAD_LEFT);
            $at += 2 + $length;
        }
        return $numbers;
    }

    private static function base64(string $bytes): string
    {
        return rtrim(strtr(base64_encode($bytes), '+/', '-_'), '=');
    }
}
