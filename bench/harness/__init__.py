"""The bench harness: starts servers, puts load on them in turn, and compares them. It uses only the standard library."""
