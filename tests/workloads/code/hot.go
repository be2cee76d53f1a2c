// Burns CPU in a function until stdin ends. "spins" is said first.
package main

import (
	"fmt"
	"io"
	"os"
)

var sink uint32

//go:noinline
func plantedDigest(rounds int) {
	for i := 0; i < rounds; i++ {
		sink = sink*1664525 + 1013904223
	}
}

func main() {
	fmt.Println("spins")
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		plantedDigest(3000000)
	}
}
