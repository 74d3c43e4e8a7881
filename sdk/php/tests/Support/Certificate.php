<?php

declare(strict_types=1);

namespace Veche\Tests\Support;

/**
 * A self-signed certificate for localhost.
 */
final class Certificate
{
    public readonly string $certificate;
    public readonly string $key;

    public function __construct(string $name)
    {
        $config = (string) tempnam(sys_get_temp_dir(), 'veche-php-');
        file_put_contents($config, "[req]\ndistinguished_name=dn\n[dn]\n[v3]\nsubjectAltName=DNS:$name\n"
            . "basicConstraints=critical,CA:true\n");
        $options = ['config' => $config, 'x509_extensions' => 'v3', 'digest_alg' => 'sha256'];
        $private = openssl_pkey_new(['private_key_bits' => 2048]);
        $request = openssl_csr_new(['commonName' => $name], $private, $options);
        $signed = openssl_csr_sign($request, null, $private, 2, $options, random_int(1, PHP_INT_MAX));
        openssl_x509_export($signed, $certificate);
        openssl_pkey_export($private, $key);
        unlink($config);
        $this->certificate = $certificate;
        $this->key = $key;
    }
}
