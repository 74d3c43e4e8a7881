<?php

declare(strict_types=1);

namespace Veche\Exception;

/**
 * A WebSocket peer broke RFC 6455. The code is the close code that was sent to the peer.
 */
class ProtocolException extends ServerException
{
}
