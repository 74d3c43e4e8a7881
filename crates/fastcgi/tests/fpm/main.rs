//! Tests of the FastCGI client against Debian's php-fpm with two processes, and against misbehaving
//! servers.

mod faults;
mod pool;
mod requests;
mod support;

#[path = "../../../../tests/fpm.rs"]
mod fpm;
#[path = "../../../../tests/now.rs"]
mod now;
#[path = "../../../../tests/skip.rs"]
mod skip;
