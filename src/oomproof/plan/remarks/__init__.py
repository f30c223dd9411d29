"""What a plan tells beside its settings: each change's share, what was turned down, memory against time, and what
would have to be allowed. Takes the problem and the estimates."""
