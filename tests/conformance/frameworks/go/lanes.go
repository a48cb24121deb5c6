package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Send makes one call in a lane. What the programs in Go share: lanes of calls, and lines as python_sender.py's.
type Send func(ctx context.Context, lane int, id string) error

var ending atomic.Bool
var speaking sync.Mutex

func say(words ...string) {
	speaking.Lock()
	defer speaking.Unlock()
	fmt.Println(strings.Join(words, "\t"))
}

func run(send Send, lane int, name string, pause time.Duration) {
	for number := 0; !ending.Load(); number++ {
		id, begun := fmt.Sprintf("%s-%d-%d", name, lane, number), time.Now()
		say("begun", id)
		if err := send(context.Background(), lane, id); err != nil {
			say("failed", id, strings.Join(strings.Fields(err.Error()), " "))
		} else {
			say("accepted", id, fmt.Sprintf("%.1f", float64(time.Since(begun).Microseconds())/1000))
		}
		time.Sleep(pause)
	}
}

// runLanes calls until the end of standard input; arguments: PROGRAM ENTITY PREFIX LANES PAUSE_MS.
func runLanes(send Send) {
	lanes, _ := strconv.Atoi(os.Args[4])
	pause, _ := strconv.Atoi(os.Args[5])
	var group sync.WaitGroup
	for lane := range lanes {
		group.Go(func() { run(send, lane, os.Args[3], time.Duration(pause)*time.Millisecond) })
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	ending.Store(true)
	group.Wait()
	say("ended")
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}
