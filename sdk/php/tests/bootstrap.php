<?php

declare(strict_types=1);

// VECHE_SDK=single tests the single-file SDK instead of the sources.
if (getenv('VECHE_SDK') === 'single') {
    require __DIR__ . '/../veche.php';
}

if (getenv('VECHE_SDK') !== 'single') {
    require __DIR__ . '/../src/functions.php';
}

spl_autoload_register(static function (string $class): void {
    $folders = ['Veche\\Tests\\' => __DIR__];
    if (getenv('VECHE_SDK') !== 'single') {
        $folders['Veche\\'] = __DIR__ . '/../src';
    }
    foreach ($folders as $prefix => $folder) {
        if (str_starts_with($class, $prefix)) {
            $file = $folder . '/' . strtr(substr($class, strlen($prefix)), '\\', '/') . '.php';
            if (is_file($file)) {
                require $file;
            }
            return;
        }
    }
});

// Uses Debian's php-psr-log if it is installed.
if (is_file('/usr/share/php/Psr/Log/autoload.php')) {
    require_once '/usr/share/php/Psr/Log/autoload.php';
}
