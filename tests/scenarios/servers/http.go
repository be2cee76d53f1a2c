// An HTTP server on net/http: http-go ADDRESS [option=value …]. ADDRESS: a path or HOST:PORT.
//
// spin_ms=T computes · sleep_ms=T · mutex_ms=T one lock held for T ms · body=N bytes ·
// fan_ms=T two goroutines sleep, one for T ms, and the request waits for both ·
// one_in=N, forget=1 each Nth request waits for a channel into which nobody sends ·
// upstream=ADDRESS asks an HTTP server first · keep=0 with a new connection each ·
// log_to=PATH writes a line of 2,000 bytes there for each request ·
// threads=N N goroutines on N threads compute all the time beside it
package main

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var options = map[string]string{}
var lock sync.Mutex
var sink int
var requests atomic.Int64

func milliseconds(name string) time.Duration {
	value, _ := strconv.ParseFloat(options[name], 64)
	return time.Duration(value * float64(time.Millisecond))
}

func network(address string) string {
	if strings.HasPrefix(address, "/") {
		return "unix"
	}
	return "tcp"
}

func spin(long time.Duration) {
	for end := time.Now().Add(long); time.Now().Before(end); {
		for i := 0; i < 1000; i++ {
			sink += i * i
		}
	}
}

func ask(client *http.Client) error {
	reply, err := client.Get("http://upstream/")
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, reply.Body)
	reply.Body.Close()
	return err
}

func makeClient(address string) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network(address), address)
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: dial, MaxIdleConnsPerHost: 64, DisableKeepAlives: options["keep"] == "0",
	}}
}

func part(long time.Duration, parts *sync.WaitGroup) {
	defer parts.Done()
	time.Sleep(long)
}

func fanOut(long time.Duration) {
	var parts sync.WaitGroup
	parts.Add(2)
	go part(long, &parts)
	go part(long/4, &parts)
	parts.Wait()
}

func burn() {
	runtime.LockOSThread()
	for {
		spin(time.Second)
	}
}

func main() {
	for _, text := range os.Args[2:] {
		name, value, _ := strings.Cut(text, "=")
		options[name] = value
	}
	size, err := strconv.Atoi(options["body"])
	if err != nil {
		size = 64
	}
	body := bytes.Repeat([]byte("x"), size)
	client := makeClient(options["upstream"])
	threads, _ := strconv.Atoi(options["threads"])
	if threads > 0 {
		runtime.GOMAXPROCS(threads + 2)
	}
	for i := 0; i < threads; i++ {
		go burn()
	}
	oneIn, _ := strconv.ParseInt(options["one_in"], 10, 64)
	nothing := make(chan int)
	var logger *log.Logger
	if options["log_to"] != "" {
		pipe, err := os.OpenFile(options["log_to"], os.O_WRONLY, 0)
		if err != nil {
			panic(err)
		}
		pipe.Fd() // as standard output: a write waits in the call
		logger = log.New(pipe, "", 0)
	}
	line := strings.Repeat("x", 1999)
	handler := func(w http.ResponseWriter, r *http.Request) {
		if logger != nil {
			logger.Println(line)
		}
		spin(milliseconds("spin_ms"))
		time.Sleep(milliseconds("sleep_ms"))
		if options["fan_ms"] != "" {
			fanOut(milliseconds("fan_ms"))
		}
		if options["mutex_ms"] != "" {
			lock.Lock()
			time.Sleep(milliseconds("mutex_ms"))
			lock.Unlock()
		}
		if options["forget"] != "" && requests.Add(1)%oneIn == 0 {
			<-nothing
		}
		if options["upstream"] != "" && ask(client) != nil {
			w.WriteHeader(502)
			return
		}
		w.Write(body)
	}
	listener, err := net.Listen(network(os.Args[1]), os.Args[1])
	if err != nil {
		panic(err)
	}
	panic(http.Serve(listener, http.HandlerFunc(handler)))
}
