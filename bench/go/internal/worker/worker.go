// Package worker is the other end of the harness's protocol, in Go: see bench/src/worker.rs.
//
// A worker loads its input, says "ready", waits for a line, does its passes, answers with one line of JSON and waits
// for the end of its input, so that the harness can read its costs while it still exists.
package worker

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// Answer is what a worker says about its passes.
type Answer struct {
	Passes        int     `json:"passes"`
	BestSeconds   float64 `json:"best_seconds"`
	MedianSeconds float64 `json:"median_seconds"`
	// Items is what one pass found: all contenders must find the same.
	Items uint64 `json:"items"`
	// KeptBytes is what the result keeps on the heap, where that is the question.
	KeptBytes *uint64 `json:"kept_bytes,omitempty"`
}

// Serve times passes after one that is not counted.
func Serve(passes int, pass func() uint64) {
	items := pass()
	start()
	times := make([]float64, passes)
	for number := range times {
		started := time.Now()
		items = pass()
		times[number] = time.Since(started).Seconds()
	}
	slices.Sort(times)
	finish(Answer{Passes: passes, BestSeconds: times[0], MedianSeconds: times[len(times)/2], Items: items})
}

// ServeOnce makes something once, without practice, and says what it keeps.
func ServeOnce(make func() (items, kept uint64)) {
	start()
	started := time.Now()
	items, kept := make()
	seconds := time.Since(started).Seconds()
	finish(Answer{Passes: 1, BestSeconds: seconds, MedianSeconds: seconds, Items: items, KeptBytes: &kept})
}

// Fail ends the program with a reason.
func Fail(reason any) {
	fmt.Fprintln(os.Stderr, "error:", reason)
	os.Exit(1)
}

var input = bufio.NewReader(os.Stdin)

func start() {
	fmt.Println("ready")
	if _, err := input.ReadString('\n'); err != nil {
		Fail(err)
	}
}

func finish(answer Answer) {
	line, err := json.Marshal(answer)
	if err != nil {
		Fail(err)
	}
	fmt.Println(string(line))
	_, _ = input.ReadString('\n')
}
