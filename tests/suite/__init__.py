"""The parts of `tests/run`: the steps and sets (`steps`), their order on the machine (`schedule`), the test binaries
that a build has made (`binaries`), running one of them (`running`), and the reading of their output (`tally`)."""
