//! The peer of the HTTP scenarios: hyper 1 on a single-threaded tokio runtime, a task per connection, one fixed
//! body for every request. `veche-bench-hyper ADDRESS FILE`; the file is read once at the start.

use std::convert::Infallible;
use std::net::SocketAddr;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let usage = "usage: veche-bench-hyper ADDRESS FILE";
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = arguments.next().ok_or(usage)?.parse()?;
    let body = Bytes::from(std::fs::read(arguments.next().ok_or(usage)?)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(address, body))
}

async fn serve(address: SocketAddr, body: Bytes) -> Result<(), Failure> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let body = body.clone();
        tokio::spawn(async move {
            let service = service_fn(|_: Request<Incoming>| {
                let mut response = Response::new(Full::new(body.clone()));
                let text = HeaderValue::from_static("text/plain; charset=utf-8");
                response.headers_mut().insert(CONTENT_TYPE, text);
                async { Ok::<_, Infallible>(response) }
            });
            // At the end of a run the load generator closes connections in the middle of a request, so errors are
            // ignored.
            let _ = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
