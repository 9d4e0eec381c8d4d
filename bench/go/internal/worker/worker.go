// Package worker implements the worker's side of the harness's protocol in Go: see bench/src/worker.rs.
//
// A worker loads its input, prints "ready", waits for a line, does its passes, prints the result as one line of JSON
// and waits for the end of its input, so that the harness can read its costs before it exits.
package worker

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// Result is a worker's report of its passes.
type Result struct {
	Passes        int     `json:"passes"`
	BestSeconds   float64 `json:"best_seconds"`
	MedianSeconds float64 `json:"median_seconds"`
	// Items is the number of items that one pass found: equal for all contenders.
	Items uint64 `json:"items"`
	// KeptBytes is the heap that the result retains, if the job measures it.
	KeptBytes *uint64 `json:"kept_bytes,omitempty"`
}

// Serve times passes after an untimed one.
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
	finish(Result{Passes: passes, BestSeconds: times[0], MedianSeconds: times[len(times)/2], Items: items})
}

// ServeOnce runs make once, without an untimed pass, and reports the heap that its result retains.
func ServeOnce(make func() (items, kept uint64)) {
	start()
	started := time.Now()
	items, kept := make()
	seconds := time.Since(started).Seconds()
	finish(Result{Passes: 1, BestSeconds: seconds, MedianSeconds: seconds, Items: items, KeptBytes: &kept})
}

// Fail exits the program with an error.
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

func finish(result Result) {
	line, err := json.Marshal(result)
	if err != nil {
		Fail(err)
	}
	fmt.Println(string(line))
	_, _ = input.ReadString('\n')
}
