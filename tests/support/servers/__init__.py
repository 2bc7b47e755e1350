"""Real servers for the stack tests: started on loopback, stopped by pid, gone with the tests."""
