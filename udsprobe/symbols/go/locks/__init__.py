"""Who holds a lock that goroutines wait for, from the memory of a Go program."""
