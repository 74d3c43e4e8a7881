//! The peer fastwebsockets, upgraded from hyper 1 on a single-threaded tokio runtime with a task
//! per connection. It echoes at any path and answers plain GET with a short body.
//! `veche-bench-fastwebsockets PORT`.

use std::net::{Ipv4Addr, SocketAddr};

use fastwebsockets::upgrade::{UpgradeFut, is_upgrade_request, upgrade};
use fastwebsockets::{FragmentCollector, OpCode, WebSocketError};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpSocket;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let port = std::env::args()
        .nth(1)
        .ok_or("usage: veche-bench-fastwebsockets PORT")?
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
            let io = TokioIo::new(stream);
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(io, service_fn(answer));
            // At the end of a run, the load generator closes connections without a close handshake,
            // so errors are ignored.
            let _ = connection.with_upgrades().await;
        });
    }
}

async fn answer(mut request: Request<Incoming>) -> Result<Response<Full<Bytes>>, WebSocketError> {
    if is_upgrade_request(&request) {
        let (response, socket) = upgrade(&mut request)?;
        tokio::spawn(async move {
            let _ = echo(socket).await;
        });
        return Ok(response.map(|_| Full::default()));
    }
    let mut response = Response::new(Full::from("Hello, world!\n"));
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    Ok(response)
}

async fn echo(socket: UpgradeFut) -> Result<(), WebSocketError> {
    let mut socket = FragmentCollector::new(socket.await?);
    loop {
        // `read_frame` answers pings and close frames itself.
        let frame = socket.read_frame().await?;
        match frame.opcode {
            OpCode::Text | OpCode::Binary => socket.write_frame(frame).await?,
            OpCode::Close => return Ok(()),
            _ => {}
        }
    }
}
