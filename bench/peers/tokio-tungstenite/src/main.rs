//! The peer tokio-tungstenite: echoes messages at any path, with a task per connection on a single-threaded
//! tokio runtime. It serves no HTTP requests except handshakes. `veche-bench-tokio-tungstenite PORT`.

use std::net::{Ipv4Addr, SocketAddr};

use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::accept_async_with_config;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

/// The library allocates this buffer as soon as a connection opens, and recommends less than its
/// default of 128 KiB for many connections. The largest measured message fits.
const READ_BUFFER_BYTES: usize = 16 << 10;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let port = std::env::args()
        .nth(1)
        .ok_or("usage: veche-bench-tokio-tungstenite PORT")?
        .parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}

async fn serve(address: SocketAddr) -> Result<(), Failure> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(4096)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            // At the end of a run, the load generator closes connections without a close handshake,
            // so errors are ignored.
            let _ = echo(stream).await;
        });
    }
}

async fn echo(stream: TcpStream) -> Result<(), Error> {
    let config = WebSocketConfig::default().read_buffer_size(READ_BUFFER_BYTES);
    let mut socket = accept_async_with_config(stream, Some(config)).await?;
    while let Some(message) = socket.next().await {
        // The library answers pings and close frames itself.
        let message = message?;
        if message.is_text() || message.is_binary() {
            socket.send(message).await?;
        }
    }
    Ok(())
}
