// Goroutines that wait in known functions, so many in each, until it is killed. One of them has the
// mutex and sleeps; nobody sends, receives or is done. Nine more wait for a connection.
package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"
)

var (
	lock    sync.Mutex
	shared  sync.RWMutex
	group   sync.WaitGroup
	changed = sync.NewCond(&sync.Mutex{})
	full    = make(chan int)
	empty   = make(chan int)
	others  = make(chan int)
)

//go:noinline
func plantedHolder() { lock.Lock(); shared.Lock(); full <- 0; time.Sleep(time.Hour) }

//go:noinline
func plantedMutex() { lock.Lock() }

//go:noinline
func plantedShared() { shared.RLock() }

//go:noinline
func plantedGroup() { group.Wait() }

//go:noinline
func plantedCond() { changed.L.Lock(); changed.Wait() }

//go:noinline
func plantedSend() { full <- 1 }

//go:noinline
func plantedReceive() { <-empty }

//go:noinline
func plantedSelect() {
	select {
	case <-others:
	case <-empty:
	}
}

//go:noinline
func plantedDeep(depth int) {
	var kept [64]byte
	if depth == 0 {
		<-empty
	} else {
		plantedDeep(depth - 1)
	}
	runtime.KeepAlive(&kept)
}

func start(count int, wait func()) {
	for i := 0; i < count; i++ {
		go wait()
	}
}

func main() {
	group.Add(1)
	go plantedHolder()
	<-full
	start(50, plantedMutex)
	start(3, plantedShared)
	start(7, plantedGroup)
	start(5, plantedCond)
	start(30, plantedSend)
	start(20, plantedReceive)
	start(10, plantedSelect)
	start(2, func() { plantedDeep(40) })
	for i := 0; i < 9; i++ {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		go listener.Accept()
	}
	// With one P each of these goes behind all that have been started.
	runtime.GOMAXPROCS(1)
	for i := 0; i < 1000; i++ {
		runtime.Gosched()
	}
	fmt.Println("spins")
	os.Stdin.Read(make([]byte, 1))
	fmt.Fprintln(os.Stderr, "ends")
}
