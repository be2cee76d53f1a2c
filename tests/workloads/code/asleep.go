// Sleeps in known functions until it is killed: `disk` (fsync of its own file) or `lock` (a mutex that
// another goroutine holds).
package main

import (
	"os"
	"sync"
	"time"
)

var lock sync.Mutex

//go:noinline
func plantedDump(file *os.File) {
	file.WriteAt(make([]byte, 1<<20), 0)
	file.Sync()
}

//go:noinline
func plantedEntry() {
	lock.Lock()
	lock.Unlock()
}

func hold() {
	for {
		lock.Lock()
		time.Sleep(20 * time.Millisecond)
		lock.Unlock()
		time.Sleep(time.Millisecond)
	}
}

func main() {
	file, err := os.Create(os.Args[2])
	if err != nil {
		panic(err)
	}
	if os.Args[1] == "lock" {
		go hold()
	}
	for {
		if os.Args[1] == "disk" {
			plantedDump(file)
		} else {
			plantedEntry()
		}
	}
}
