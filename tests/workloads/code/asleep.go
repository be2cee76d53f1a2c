// Sleeps in known functions until it is killed: `disk` (fsync of its own file) or `lock` (a mutex that
// another goroutine holds).
package main

import (
	"os"
	"sync"
	"syscall"
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

// With its thread: it is none of the goroutines that wait.
func sleep(long time.Duration) {
	for left := syscall.NsecToTimespec(int64(long)); syscall.Nanosleep(&left, &left) != nil; {
	}
}

func hold() {
	for {
		lock.Lock()
		sleep(20 * time.Millisecond)
		lock.Unlock()
		sleep(time.Millisecond)
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
