// Goroutines that wait for locks which others hold in known functions, until it is killed; with an
// argument only those that wait in that function. Beside them decoys: they hold the lock of another door, have held this one, or may.
package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

type door struct {
	name   string
	mu     sync.Mutex
	other  sync.Mutex
	shared sync.RWMutex
	filled *sync.Cond
	wake   chan int
}

type house struct{ front *door }

var (
	global sync.Mutex
	// Of one lock; more where it is the only one that is planted.
	waiters = 3
	kept    = &door{name: "kept"}
	held    = make(chan int, 100)
)

// Waits; all of these are met once a look.

//go:noinline
func (d *door) plantedForSleep() { d.mu.Lock() }

//go:noinline
func (d *door) plantedForDeferred() { d.mu.Lock() }

//go:noinline
func plantedForGlobal() { global.Lock() }

//go:noinline
func plantedForKept() { kept.mu.Lock() }

//go:noinline
func (d *door) plantedForCaller() { d.mu.Lock() }

//go:noinline
func (h *house) plantedForHouse() { h.front.mu.Lock() }

//go:noinline
func (d *door) plantedForReaders() { d.shared.Lock() }

//go:noinline
func (d *door) plantedForWriter() { d.shared.RLock() }

//go:noinline
func (d *door) plantedForCall() { d.mu.Lock() }

//go:noinline
func (d *door) plantedForPeer() { d.mu.Lock() }

//go:noinline
func (d *door) plantedForChannel() { d.mu.Lock() }

//go:noinline
func (d *door) plantedForLoop() { d.mu.Lock() }

//go:noinline
func (d *door) plantedForSecond() { d.other.Lock() }

//go:noinline
func (d *door) plantedForCond() { d.mu.Lock() }

//go:noinline
func (d *door) plantedForGone() { d.mu.Lock() }

//go:noinline
func (d *door) plantedForRuns() { d.mu.Lock() }

//go:noinline
func (d *door) plantedForMaybe() { d.mu.Lock() }

// Who holds.

//go:noinline
func (d *door) plantedSleeps() { d.mu.Lock(); held <- 0; time.Sleep(time.Hour); d.mu.Unlock() }

//go:noinline
func (d *door) plantedDefers() {
	d.mu.Lock()
	defer d.mu.Unlock()
	held <- 0
	time.Sleep(time.Hour)
	fmt.Println(d.name)
}

//go:noinline
func plantedGlobal() { global.Lock(); held <- 0; time.Sleep(time.Hour); global.Unlock() }

//go:noinline
func plantedKept() { kept.mu.Lock(); held <- 0; time.Sleep(time.Hour); kept.mu.Unlock() }

//go:noinline
func deep(depth int) {
	if depth > 0 {
		deep(depth - 1)
	} else {
		time.Sleep(time.Hour)
	}
	runtime.KeepAlive(depth)
}

//go:noinline
func (d *door) plantedCaller() {
	d.mu.Lock()
	held <- 0
	deep(3)
	if d.name == "" {
		d.mu.Unlock()
		return
	}
	fmt.Println(d.name)
	d.mu.Unlock()
}

//go:noinline
func (h *house) plantedHouse() {
	h.front.mu.Lock()
	held <- 0
	time.Sleep(time.Hour)
	h.front.mu.Unlock()
}

//go:noinline
func (d *door) plantedReads() {
	d.shared.RLock()
	defer d.shared.RUnlock()
	held <- 0
	time.Sleep(time.Hour)
}

//go:noinline
func (d *door) plantedWrites() { d.shared.Lock(); held <- 0; time.Sleep(time.Hour); d.shared.Unlock() }

//go:noinline
func (d *door) plantedCalls(file int) {
	d.mu.Lock()
	held <- 0
	syscall.Read(file, make([]byte, 1))
	d.mu.Unlock()
}

//go:noinline
func (d *door) plantedAsks(peer net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	held <- 0
	peer.Read(make([]byte, 1))
}

//go:noinline
func (d *door) plantedReceives() { d.mu.Lock(); held <- 0; <-d.wake; d.mu.Unlock() }

//go:noinline
func (d *door) plantedLoops() {
	for i := 0; ; i++ {
		d.mu.Lock()
		if i == 0 {
			held <- 0
			for j := 0; j < 3; j++ {
				time.Sleep(time.Hour)
			}
		}
		d.mu.Unlock()
		time.Sleep(time.Hour)
	}
}

//go:noinline
func (d *door) plantedSecond() {
	d.other.Lock()
	defer d.other.Unlock()
	held <- 0
	d.mu.Lock()
	defer d.mu.Unlock()
}

// Who is not known to hold, or does not.

//go:noinline
func (d *door) decoyHasHeld() {
	d.mu.Lock()
	d.mu.Unlock()
	held <- 0
	time.Sleep(time.Hour)
	d.mu.Lock()
	d.mu.Unlock()
}

//go:noinline
func (d *door) plantedMayHold(really bool) {
	if really {
		d.mu.Lock()
	}
	held <- 0
	time.Sleep(time.Hour)
	if really {
		d.mu.Unlock()
	}
}

//go:noinline
func (d *door) decoyLets() { d.mu.Lock(); held <- 0; d.filled.Wait(); d.mu.Unlock() }

//go:noinline
func (d *door) decoyLocksInside() { d.reopen(); d.mu.Unlock() }

//go:noinline
func (d *door) reopen() { held <- 0; time.Sleep(time.Hour); d.mu.Lock() }

//go:noinline
func (h *house) decoyLocksLater() {
	h.reopen()
	h.front.mu.Unlock()
}

//go:noinline
func (h *house) reopen() { held <- 0; time.Sleep(time.Hour); h.front.mu.Lock() }

//go:noinline
func (d *door) decoyByWrapper() {
	held <- 0
	time.Sleep(time.Hour)
	d.lock()
	fmt.Println(d.name)
	d.mu.Unlock()
}

//go:noinline
func (d *door) lock() {
	began := time.Now()
	d.mu.Lock()
	fmt.Println(time.Since(began))
}

type locker struct{ sync.Locker }

//go:noinline
func (l *locker) reopen() { held <- 0; time.Sleep(time.Hour); l.Lock() }

//go:noinline
func (d *door) decoyByInterface(l *locker) { l.reopen(); d.mu.Unlock() }

//go:noinline
func (d *door) locksAndEnds() { d.mu.Lock(); held <- 0 }

//go:noinline
func (d *door) plantedRuns() {
	d.mu.Lock()
	held <- 0
	for d.name != "" {
		spin++
	}
	d.mu.Unlock()
}

var spin int

func begin(what func()) { go what(); <-held }

func newDoor(name string) *door {
	d := &door{name: name, wake: make(chan int)}
	d.filled = sync.NewCond(&d.mu)
	return d
}

func waits(count int, what func()) {
	for i := 0; i < count; i++ {
		go what()
	}
}

// A door with its holder, its decoys and those that wait for it; the same beside it of nobody's interest.
func plant(hold func(d *door), wait func(d *door)) {
	d, same := newDoor("this"), newDoor("same")
	begin(func() { d.decoyHasHeld() })
	begin(func() { hold(d) })
	begin(func() { hold(same) })
	begin(func() { d.decoyLocksInside() })
	begin(func() { d.plantedMayHold(false) })
	begin(func() { (&house{d}).decoyLocksLater() })
	begin(d.decoyByWrapper)
	begin(func() { d.decoyByInterface(&locker{&d.mu}) })
	waits(waiters, func() { wait(d) })
}

func pair() (net.Conn, net.Conn) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		panic(err)
	}
	server, _ := listener.Accept()
	return client, server
}

// What is planted, by the function that waits.
var plants = map[string]func(){
	"plantedForSleep":    func() { plant((*door).plantedSleeps, (*door).plantedForSleep) },
	"plantedForDeferred": func() { plant((*door).plantedDefers, (*door).plantedForDeferred) },
	"plantedForGlobal":   func() { begin(plantedGlobal); waits(3, plantedForGlobal) },
	"plantedForKept":     func() { begin(plantedKept); waits(3, plantedForKept) },
	"plantedForCaller":   func() { plant((*door).plantedCaller, (*door).plantedForCaller) },
	"plantedForHouse": func() {
		plant(func(d *door) { (&house{d}).plantedHouse() }, func(d *door) { (&house{d}).plantedForHouse() })
	},
	"plantedForReaders": func() {
		d := newDoor("readers")
		begin(d.plantedReads)
		begin(d.plantedReads)
		waits(1, d.plantedForReaders)
	},
	"plantedForWriter": func() { plant((*door).plantedWrites, (*door).plantedForWriter) },
	"plantedForCall": func() {
		plant(func(d *door) {
			var ends [2]int
			syscall.Pipe(ends[:])
			d.plantedCalls(ends[0])
		}, (*door).plantedForCall)
	},
	"plantedForPeer": func() {
		client, server := pair()
		plant(func(d *door) { d.plantedAsks(client) }, (*door).plantedForPeer)
		connections = append(connections, server)
	},
	"plantedForChannel": func() { plant((*door).plantedReceives, (*door).plantedForChannel) },
	"plantedForLoop":    func() { plant((*door).plantedLoops, (*door).plantedForLoop) },
	"plantedForSecond": func() {
		d := newDoor("chain")
		begin(d.plantedSleeps)
		begin(d.plantedSecond)
		waits(3, d.plantedForSecond)
	},
	"plantedForCond": func() {
		d := newDoor("cond")
		begin(d.decoyLets)
		begin(d.plantedSleeps)
		waits(3, d.plantedForCond)
	},
	"plantedForGone": func() {
		d := newDoor("gone")
		begin(d.decoyHasHeld)
		begin(d.locksAndEnds)
		waits(3, d.plantedForGone)
	},
	"plantedForMaybe": func() {
		d := newDoor("maybe")
		begin(func() { d.plantedMayHold(true) })
		waits(3, d.plantedForMaybe)
	},
}

var connections []net.Conn

// With one P each of these goes behind all that have been started.
func settle(turns int) {
	before := runtime.GOMAXPROCS(1)
	for i := 0; i < turns; i++ {
		runtime.Gosched()
	}
	runtime.GOMAXPROCS(before)
}

func main() {
	if len(os.Args) > 1 {
		waiters = 30
	}
	for name, begins := range plants {
		if len(os.Args) < 2 || os.Args[1] == name {
			begins()
		}
	}
	settle(1000)
	if len(os.Args) < 2 {
		d := newDoor("runs")
		begin(d.plantedRuns)
		waits(3, d.plantedForRuns)
		// It has 10 ms of each turn.
		settle(30)
	}
	fmt.Println("spins")
	os.Stdin.Read(make([]byte, 1))
	runtime.KeepAlive(connections)
}
