"""What `tests/run` consists of: the steps and sets (`steps`), their order on the machine (`schedule`), the test binaries
that a build has made (`binaries`), running one of them (`running`), and what their output says (`tally`)."""
