<?php

declare(strict_types=1);

namespace Veche\Tests\Unit;

use PHPUnit\Framework\TestCase;
use Veche\Exception\ProtocolException;
use Veche\WebSocket\Event;
use Veche\WebSocket\Frame;
use Veche\WebSocket\Opcode;
use Veche\WebSocket\Receiver;

/**
 * Runs the receiver on the vectors that test the server's codec.
 */
final class ReceiverTest extends TestCase
{
    /**
     * @return iterable<string, array{array<string, mixed>}>
     */
    public static function vectors(): iterable
    {
        $file = dirname(__DIR__, 4) . '/crates/proto/vectors/websocket.json';
        $vectors = json_decode((string) file_get_contents($file), true, 512, JSON_THROW_ON_ERROR);
        foreach ($vectors as $vector) {
            if ($vector['role'] === 'client' && !isset($vector['deflate'])) {
                yield $vector['name'] => [$vector];
            }
        }
    }

    public function testThereAreVectors(): void
    {
        self::assertGreaterThan(30, iterator_count(self::vectors()));
    }

    /**
     * @dataProvider vectors
     * @param array<string, mixed> $vector
     */
    public function testVectorWhole(array $vector): void
    {
        $this->check($vector, [self::wire($vector)]);
    }

    /**
     * @dataProvider vectors
     * @param array<string, mixed> $vector
     */
    public function testVectorByteByByte(array $vector): void
    {
        $this->check($vector, str_split(self::wire($vector)));
    }

    /**
     * @param array<string, mixed> $vector
     * @param list<string> $parts
     */
    private function check(array $vector, array $parts): void
    {
        $receiver = self::receiver($vector);
        $events = [];
        $error = null;
        $taken = 0;
        foreach ($parts as $part) {
            $receiver->feed($part);
            $taken += strlen($part);
            try {
                while (($event = $receiver->next()) !== null) {
                    $events[] = self::described($event);
                }
            } catch (ProtocolException $failure) {
                $error = $failure->getCode();
                break;
            }
        }
        self::assertSame($vector['events'] ?? [], $events);
        self::assertSame($vector['error'] ?? null, $error);
        if ($error === null) {
            self::assertSame($vector['midway'] ?? false, $receiver->isMidway());
        } elseif (isset($vector['after']) && count($parts) > 1) {
            self::assertSame($vector['after'], $taken);
        }
    }

    /**
     * @return array<string, mixed>
     */
    private static function described(Event $event): array
    {
        $isZeros = strlen($event->data) > 200 && trim($event->data, "\0") === '';
        return match ($event->kind) {
            Opcode::Text => ['text' => $event->data],
            Opcode::Binary => $isZeros ? ['zeros' => strlen($event->data)] : ['binary' => bin2hex($event->data)],
            Opcode::Ping => ['ping' => bin2hex($event->data)],
            Opcode::Pong => ['pong' => bin2hex($event->data)],
            default => ['close' => $event->code === 1005 ? null : $event->code, 'reason' => $event->data],
        };
    }

    /**
     * @param array<string, mixed> $vector
     */
    private static function receiver(array $vector): Receiver
    {
        return new Receiver($vector['message_bytes_max'] ?? 1 << 20, $vector['fragments_max'] ?? 1000);
    }

    /**
     * @param array<string, mixed> $vector
     */
    private static function wire(array $vector): string
    {
        return (string) hex2bin(str_replace(' ', '', $vector['wire']));
    }

    public function testALengthOfNothingIsOneByte(): void
    {
        $receiver = new Receiver(1000, 10);
        $receiver->feed("\x82\x7e\0\0");
        $this->expectExceptionCode(1002);
        $receiver->next();
    }

    public function testManyFragmentsCostTimeInProportion(): void
    {
        $receiver = new Receiver(8 << 20, 100000);
        $started = microtime(true);
        $receiver->feed("\x01\x00" . str_repeat("\x00\x40" . str_repeat('x', 64), 65535) . "\x80\x00");
        self::assertSame(64 * 65535, strlen((string) $receiver->next()?->data));
        self::assertLessThan(3, microtime(true) - $started);
    }

    public function testFramesAreMaskedAndHaveTheShortestLength(): void
    {
        // The first frame is the example of RFC 6455, section 5.7.
        self::assertSame('818537fa213d7f9f4d5158', bin2hex(Frame::encode(Opcode::Text, 'Hello', "\x37\xfa\x21\x3d")));
        $key = "\0\0\0\0";
        $lengths = [0 => '80', 125 => 'fd', 126 => 'fe007e', 65535 => 'feffff', 65536 => 'ff0000000000010000'];
        foreach ($lengths as $length => $head) {
            $frame = Frame::encode(Opcode::Binary, str_repeat('x', $length), $key);
            self::assertSame("82$head", bin2hex(substr($frame, 0, 1 + intdiv(strlen($head), 2))));
            self::assertSame(1 + intdiv(strlen($head), 2) + 4 + $length, strlen($frame));
        }
        self::assertNotSame(Frame::encode(Opcode::Text, 'x'), Frame::encode(Opcode::Text, 'x'), 'keys are random');
        self::assertSame('', Frame::mask('', 'abcd'));
        self::assertSame("\x00\x00\x00\x00\x00", Frame::mask('abcda', 'abcd'));
        self::assertSame('8880' . '00000000', bin2hex(Frame::encode(Opcode::Close, '', $key)));
        self::assertSame(6, strlen(Frame::close(1005)));
    }
}
