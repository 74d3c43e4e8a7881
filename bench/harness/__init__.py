"""The bench harness: starts servers, drives them in turn, compares. Standard library only."""
