<?php

declare(strict_types=1);

namespace Veche\Tests\Unit;

use PHPUnit\Framework\TestCase;
use Veche\Exception\CallerException;
use Veche\Exception\ServerException;
use Veche\Tests\Support\RuntimeVectors;
use Veche\Worker\Frame;
use Veche\Worker\FrameDecoder;

final class WorkerFrameTest extends TestCase
{
    /**
     * @return iterable<string, array{array<string, mixed>}>
     */
    public static function frames(): iterable
    {
        foreach (['hello', 'events', 'answers', 'calls', 'lenient'] as $file) {
            foreach (RuntimeVectors::read($file) as $name => $vector) {
                yield "$file: $name" => [$vector];
            }
        }
    }

    public function testThereAreVectors(): void
    {
        self::assertGreaterThan(50, iterator_count(self::frames()));
    }

    /**
     * @dataProvider frames
     * @param array<string, mixed> $vector
     */
    public function testAreReadHoweverTheyAreSplit(array $vector): void
    {
        $wire = RuntimeVectors::wire($vector);
        foreach ([strlen($wire), 7, 1] as $size) {
            $decoder = new FrameDecoder();
            $frames = [];
            // The decoder receives the frame twice, back to back.
            foreach (str_split($wire . $wire, $size) as $part) {
                $decoder->feed($part);
                while (($frame = $decoder->next()) !== null) {
                    $frames[] = $frame;
                }
            }
            self::assertCount(2, $frames);
            foreach ($frames as $frame) {
                self::assertSame($vector['head'], $frame->head);
                self::assertSame(RuntimeVectors::payload($vector), $frame->payload);
            }
            self::assertFalse($decoder->isWithinFrame());
            $decoder->feed($wire[0]);
            self::assertTrue($decoder->isWithinFrame());
        }
    }

    /**
     * @dataProvider frames
     * @param array<string, mixed> $vector
     */
    public function testAreWrittenAsTheServerReadsThem(array $vector): void
    {
        $head = $vector['head'];
        $payload = RuntimeVectors::payload($vector);
        $parts = [$payload];
        if (isset($head['parts'])) {
            $frame = new Frame($head, $payload);
            $parts = array_map($frame->part(...), array_keys($head['parts']));
            unset($head['parts']);
        }
        // Decoding turns an empty object into an empty array.
        $head = self::objects($head, json_decode(substr(RuntimeVectors::wire($vector), 8, -strlen($payload) ?: null)));
        self::assertSame($vector['wire'], bin2hex(Frame::encode($head, $parts, 1 << 20, 16 << 20)));
    }

    /**
     * @return iterable<string, array{array<string, mixed>}>
     */
    public static function brokenStreams(): iterable
    {
        foreach (RuntimeVectors::read('malformed') as $name => $vector) {
            if (isset($vector['error'])) {
                yield $name => [$vector];
            }
        }
    }

    /**
     * @dataProvider brokenStreams
     * @param array<string, mixed> $vector
     */
    public function testABrokenStreamIsRefused(array $vector): void
    {
        $decoder = new FrameDecoder();
        $decoder->feed(RuntimeVectors::wire($vector));
        $this->expectException(ServerException::class);
        $decoder->next();
    }

    /**
     * @testWith ["[]"]
     *           ["{"]
     *           ["{\"id\":1}"]
     *           ["{\"type\":7}"]
     */
    public function testAHeadIsAnObjectWithAType(string $head): void
    {
        $this->expectException(ServerException::class);
        Frame::read($head, '');
    }

    public function testParts(): void
    {
        $frame = new Frame(['type' => 'event', 'parts' => [2, 0, 3]], 'abcde');
        self::assertSame(['ab', '', 'cde', null], array_map($frame->part(...), [0, 1, 2, null]));
        self::assertSame('abc', (new Frame(['type' => 'event'], 'abc'))->part(0));
        foreach ([new Frame(['parts' => [2]], 'abc'), new Frame([], 'abc')] as $number => $broken) {
            try {
                $broken->part($number);
                self::fail('no such part');
            } catch (ServerException $error) {
                self::assertStringContainsString("a frame has no part $number", $error->getMessage());
            }
        }
    }

    public function testWhatIsTooLongIsNotWritten(): void
    {
        self::assertSame(8 + 12 + 4, strlen(Frame::encode(['type' => 'a'], ['data'], 12, 4)));
        foreach ([[['type' => 'ab'], ['data']], [['type' => 'a'], ['data5']]] as [$head, $parts]) {
            try {
                Frame::encode($head, $parts, 12, 4);
                self::fail('too long');
            } catch (CallerException $error) {
                self::assertStringContainsString('effects or data', $error->getMessage());
            }
        }
    }

    /**
     * Converts each empty array in `$value` to an object if `$other` has an object at the same position.
     */
    private static function objects(mixed $value, mixed $other): mixed
    {
        if ($value === [] && $other instanceof \stdClass) {
            return $other;
        }
        if (!is_array($value)) {
            return $value;
        }
        $found = [];
        foreach ($value as $key => $one) {
            $counterpart = $other instanceof \stdClass ? $other->$key ?? null : $other[$key] ?? null;
            $found[$key] = self::objects($one, $counterpart);
        }
        return $found;
    }

    /**
     * @return iterable<string, array{string}>
     */
    public static function messages(): iterable
    {
        $places = ['', '0.1.1', '3.17.2', 'a\\u0041', '0.1.1","user":"ann', '0.1.1","user":"', '0.1.1","user":"\\"x'];
        $places[] = '0.1.1","user":"a","attributes":{"user":"b"},"data_kind":"text';
        $ends = ['","data_kind":"text","data":0}', '","data_kind":"binary","data":0}', '"}'];
        $ends[] = '","data_kind":"text","data":1}';
        $ends[] = '","attributes":{"visits":3},"data_kind":"text","data":0}';
        foreach (['1', '9007199254740991', '12', '1.5', '-1'] as $id) {
            foreach (['message', 'close'] as $event) {
                foreach ($places as $place) {
                    foreach ($ends as $end) {
                        $head = '{"type":"event","id":' . $id . ',"event":"' . $event;
                        $head .= '","connection":"' . $place . $end;
                        yield $head => [$head];
                    }
                }
            }
        }
    }

    /**
     * @dataProvider messages
     */
    public function testHeadsOfMessagesAreReadAsAnyJson(string $head): void
    {
        $expected = json_decode($head, true, 64, JSON_THROW_ON_ERROR);
        self::assertSame($expected, Frame::read($head, '')->head);
    }

    public function testWhatIsNoJsonIsNoHeadOfAMessageEither(): void
    {
        $this->expectException(ServerException::class);
        Frame::read('{"type":"event","id":,"event":"message","connection":"0.1.1","data_kind":"text","data":0}', '');
    }
}
