// Keeps many objects and makes garbage; GOGC says how often they are looked at.
package main

import "fmt"

type node struct {
	next *node
	data [6]int
}

var kept *node
var last *node

func main() {
	for i := 0; i < 1000000; i++ {
		kept = &node{next: kept}
	}
	fmt.Println("spins")
	for {
		last = &node{}
	}
}
