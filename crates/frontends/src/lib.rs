//! One connection's whole life, and the client protocols. Pure.
